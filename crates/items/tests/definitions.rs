//! Databases, containers, scripts, users, offers: what is kept, shown, refused (section 5, 15, 19).

#![allow(clippy::unwrap_used, reason = "a test")]

mod world;

use otobus_items::*;
use world::*;

fn json_of(document: &Document) -> json::Value {
    json::parse(&document.body).unwrap()
}

fn names(world: &mut World, of: QueryScope) -> Vec<String> {
    match world.ask(Command::List { of, listing: Listing::default() }).unwrap() {
        Answer::Page(page) => page.values.iter().map(|value| id_of(value)).collect(),
        other => panic!("{other:?}"),
    }
}

// CX-5.1.1, P-24, P-25, P-26, P-27, P-28
#[test]
fn databases_are_made_read_by_name_and_rid_listed_and_deleted() {
    let mut world = World::new();
    let read = |segment: &str| Command::ReadDatabase { database: segment.to_owned() };
    let shown = world.ask(read("d")).map(document).unwrap();
    let rid = json_of(&shown).get("_rid").unwrap().as_str().unwrap().to_owned();
    assert_eq!(json_of(&shown).get("_self").unwrap().as_str(), Some(&*format!("dbs/{rid}/")));
    assert_eq!(json_of(&shown).get("_colls").unwrap().as_str(), Some("colls/"));
    assert_eq!(json_of(&shown).get("_users").unwrap().as_str(), Some("users/"));
    assert_eq!(json_of(&shown).get("_etag").unwrap().as_str(), Some(&*shown.etag));
    assert_eq!(json_of(&shown).get("_ts").unwrap().as_number().unwrap().as_i64(), Some(START / 1000));
    assert_eq!(world.ask(read(&rid)).map(document).unwrap(), shown);
    let create = Command::CreateDatabase { body: r#"{"id":"d"}"#.into(), throughput: None };
    assert_eq!(status(&world.ask(create)), 409);
    // A name that looks like the rid of another is a name first.
    let body = format!(r#"{{"id":"{rid}"}}"#).into();
    world.ask(Command::CreateDatabase { body, throughput: None }).unwrap();
    assert_ne!(world.ask(read(&rid)).map(document).unwrap(), shown);
    assert_eq!(names(&mut world, QueryScope::Databases), ["d".to_owned(), rid.clone()]);
    assert_eq!(world.ask(Command::DeleteDatabase { database: "d".into() }), Ok(Answer::Deleted));
    assert_eq!(world.ask(read("d")), Err(Refusal::NotFound));
    assert_eq!(world.ask(Command::DeleteDatabase { database: "d".into() }), Err(Refusal::NotFound));
    for bad in ["", "{", "[]", "{}", r#"{"id":1}"#, r#"{"id":""}"#, r#"{"id":"a/b"}"#, r#"{"id":"a "}"#] {
        let create = Command::CreateDatabase { body: bad.to_owned().into(), throughput: None };
        assert_eq!(status(&world.ask(create)), 400, "{bad}");
    }
    let named = |bytes: usize| Command::CreateDatabase {
        body: format!(r#"{{"id":"{}"}}"#, "x".repeat(bytes)).into(),
        throughput: None,
    };
    assert_eq!(status(&world.ask(named(255))), 200);
    assert_eq!(status(&world.ask(named(256))), 400);
    world.check();
}

// CX-5.2.1, CX-5.2.3, C-37
#[test]
fn a_container_keeps_every_member_and_gets_what_it_lacks() {
    let mut world = World::new();
    let made = world
        .create_container(
            r#""defaultTtl":7,"vectorEmbeddingPolicy":{"x":[1]},"mine":{"a":1.50},"_ts":5,"_docs":"x""#,
        )
        .unwrap();
    assert_eq!(world.read_container(), made);
    let shown = json_of(&made);
    for (name, expected) in [
        ("partitionKey", r#"{"paths":["/pk"],"kind":"Hash","version":2}"#),
        ("defaultTtl", "7"),
        ("vectorEmbeddingPolicy", r#"{"x":[1]}"#),
        ("mine", r#"{"a":1.5}"#),
        (
            "indexingPolicy",
            r#"{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]}"#,
        ),
        (
            "conflictResolutionPolicy",
            r#"{"mode":"LastWriterWins","conflictResolutionPath":"/_ts","conflictResolutionProcedure":""}"#,
        ),
        ("geospatialConfig", r#"{"type":"Geography"}"#),
        ("uniqueKeyPolicy", r#"{"uniqueKeys":[]}"#),
        ("_docs", r#""docs/""#),
        ("_sprocs", r#""sprocs/""#),
        ("_triggers", r#""triggers/""#),
        ("_udfs", r#""udfs/""#),
        ("_conflicts", r#""conflicts/""#),
    ] {
        let expected = json::parse(expected.as_bytes()).unwrap();
        assert!(json::equal(shown.get(name).unwrap(), &expected), "{name}: {:?}", shown.get(name));
    }
    assert_eq!(shown.get("_ts").unwrap().as_number().unwrap().as_i64(), Some(START / 1000));
    assert_eq!(names(&mut world, QueryScope::Containers { database: "d".into() }), ["c"]);
    assert_eq!(status(&world.create_container("")), 409);
}

// CX-5.2.2, P-40
#[test]
fn a_partition_key_is_needed_and_its_kind_and_version_default() {
    let mut world = World::new();
    let mut create = |key: &str| {
        let body = format!(r#"{{"id":"c"{key}}}"#).into();
        let made = world
            .ask(Command::CreateContainer { database: "d".into(), body, throughput: None })
            .map(document);
        let _ = world.ask(Command::DeleteContainer { container: path() });
        made.map(|made| String::from_utf8(json_of(&made).get("partitionKey").unwrap().to_text()).unwrap())
    };
    assert_eq!(
        create(r#","partitionKey":{"paths":["/_partitionKey"]}"#).unwrap(),
        r#"{"paths":["/_partitionKey"],"kind":"Hash"}"#
    );
    assert_eq!(
        create(r#","partitionKey":{"paths":["/a","/b"],"kind":"MultiHash"}"#).unwrap(),
        r#"{"paths":["/a","/b"],"kind":"MultiHash","version":2}"#
    );
    assert!(create(r#","partitionKey":{"paths":["/a","/b","/c"],"kind":"MultiHash","version":2}"#).is_ok());
    assert!(create(r#","partitionKey":{"paths":["/\"a-b\"/c"],"version":1}"#).is_ok());
    for bad in [
        "",
        r#","partitionKey":null"#,
        r#","partitionKey":5"#,
        r#","partitionKey":{}"#,
        r#","partitionKey":{"paths":[]}"#,
        r#","partitionKey":{"paths":["a"]}"#,
        r#","partitionKey":{"paths":["/"]}"#,
        r#","partitionKey":{"paths":["/a","/b"]}"#,
        r#","partitionKey":{"paths":["/a"],"kind":"Range"}"#,
        r#","partitionKey":{"paths":["/a"],"version":3}"#,
        r#","partitionKey":{"paths":["/a","/b"],"kind":"MultiHash","version":1}"#,
        r#","partitionKey":{"paths":["/a","/b","/c","/d"],"kind":"MultiHash"}"#,
        r#","partitionKey":{"paths":["/a b"]}"#,
    ] {
        assert_eq!(status(&create(bad)), 400, "{bad}");
    }
    // What tests of the SDKs look for in the words.
    for (members, words) in [
        (
            r#","partitionKey":{"paths":["/a","/b","/c","/d"],"kind":"MultiHash"}"#,
            "Too many partition key paths",
        ),
        (r#","partitionKey":{"paths":["/a b"]}"#, "Partition key paths must contain only valid characters"),
        (r#","partitionKey":{"paths":["id"]}"#, "definition path 'id' could not be accepted"),
    ] {
        let why = create(members).unwrap_err().to_string();
        assert!(why.contains(words), "{why}");
    }
    assert!(create(r#","partitionKey":{"paths":["/\"a b\""]}"#).is_ok());
}

// CX-5.2.5
#[test]
fn a_replace_changes_what_may_change_and_keeps_what_it_must() {
    let mut world = World::with(
        r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]},"changeFeedPolicy":{"retentionDuration":5}"#,
    );
    let before = world.read_container();
    // Everything that was read can be sent back.
    let body = before.body.clone();
    let after = world
        .ask(Command::ReplaceContainer { container: path(), body, if_match: Some(before.etag.clone()) })
        .map(document)
        .unwrap();
    assert_ne!(after.etag, before.etag);
    let refused = world.ask(Command::ReplaceContainer {
        container: path(),
        body: before.body.clone(),
        if_match: Some(before.etag),
    });
    assert_eq!(status(&refused), 412);
    let after =
        world.replace_container(r#""defaultTtl":5,"conflictResolutionPolicy":{"mode":"Custom"}"#).unwrap();
    for (name, expected) in [
        ("uniqueKeyPolicy", r#"{"uniqueKeys":[{"paths":["/u"]}]}"#),
        ("changeFeedPolicy", r#"{"retentionDuration":5}"#),
        ("defaultTtl", "5"),
    ] {
        assert_eq!(member(&after, name).as_deref(), Some(expected));
    }
    for bad in [
        r#"{"id":"other","partitionKey":{"paths":["/pk"],"version":2}}"#,
        r#"{"id":"c","partitionKey":{"paths":["/other"],"version":2}}"#,
        r#"{"id":"c","partitionKey":{"paths":["/pk"],"version":1}}"#,
        r#"{"id":"c","uniqueKeyPolicy":{"uniqueKeys":[]}}"#,
        r#"{"id":"c","uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/v"]}]}}"#,
        r#"{"id":"c","conflictResolutionPolicy":{"mode":"Sometimes"}}"#,
        r#"{"id":"c","computedProperties":[{"name":"x"}]}"#,
        r#"{"id":"c","changeFeedPolicy":{"retentionDuration":-1}}"#,
        "{",
    ] {
        let replace =
            Command::ReplaceContainer { container: path(), body: bad.to_owned().into(), if_match: None };
        assert_eq!(status(&world.ask(replace)), 400, "{bad}");
    }
    assert_eq!(world.read_container(), after);
    world.check();
}

// CX-5.2.6, CX-5.2.7, P-27
#[test]
fn a_container_made_anew_has_a_new_rid_and_a_client_of_the_old_one_hears_of_it() {
    let mut world = World::with("");
    let old = json_of(&world.read_container()).get("_rid").unwrap().as_str().unwrap().to_owned();
    world.create("i", "").unwrap();
    world.ask(Command::DeleteContainer { container: path() }).unwrap();
    assert_eq!(world.read("i"), Err(Refusal::OwnerNotFound));
    world.create_container("").unwrap();
    let new = json_of(&world.read_container()).get("_rid").unwrap().as_str().unwrap().to_owned();
    assert_ne!(old, new);
    assert!(!world.is_there("i"), "nothing of the old one shows");
    let mut intended = item("i");
    intended.container.intended_rid = Some(old.clone());
    let read = Command::ReadItem { item: intended.clone(), if_none_match: None, session: None };
    let refused = world.ask(read).unwrap_err();
    assert_eq!(refused.status(), (400, 1024));
    intended.container.intended_rid = Some(new.clone());
    let read = Command::ReadItem { item: intended, if_none_match: None, session: None };
    assert_eq!(world.ask(read), Err(Refusal::NotFound));
    // Addressed by rid, the old one is gone and the new one is there.
    let by_rid =
        |rid: &str| Command::ReadContainer { container: ContainerPath::new("d", rid), if_none_match: None };
    assert_eq!(world.ask(by_rid(&old)), Err(Refusal::NotFound));
    assert!(world.ask(by_rid(&new)).is_ok());
    assert_eq!(world.stored_items(), 1);
    world.purge();
    assert_eq!(world.stored_items(), 0, "the purge removes what the old one held");
    world.check();
}

// P-49
#[test]
fn reading_a_container_with_its_etag_is_not_modified() {
    let mut world = World::with("");
    let etag = world.read_container().etag;
    let read =
        |etag: &str| Command::ReadContainer { container: path(), if_none_match: Some(etag.to_owned()) };
    assert_eq!(world.ask(read(&etag)), Ok(Answer::NotModified { etag: etag.clone() }));
    assert_eq!(world.ask(read(etag.trim_matches('"'))), Ok(Answer::NotModified { etag }));
    assert!(matches!(world.ask(read("\"x\"")), Ok(Answer::Found(_))));
}

// CX-5.2.8, limits
#[test]
fn unique_keys_are_ten_of_sixteen_paths() {
    let policy = |keys: usize, paths: usize| {
        let paths: Vec<String> = (0..paths).map(|n| format!("\"/p{n}\"")).collect();
        let one = format!(r#"{{"paths":[{}]}}"#, paths.join(","));
        format!(r#""uniqueKeyPolicy":{{"uniqueKeys":[{}]}}"#, vec![one; keys].join(","))
    };
    assert!(World::new().create_container(&policy(10, 16)).is_ok());
    assert_eq!(status(&World::new().create_container(&policy(11, 1))), 400);
    assert_eq!(status(&World::new().create_container(&policy(1, 17))), 400);
    assert_eq!(status(&World::new().create_container(&policy(1, 0))), 400);
}

// Section 19
#[test]
fn scripts_users_and_permissions_are_documents() {
    let mut world = World::with("");
    let kind = ScriptKind::Trigger;
    let body = r#"{"id":"t","body":"x","triggerType":"Pre","triggerOperation":"All"}"#;
    let create = Command::CreateScript { container: path(), kind, body: body.into() };
    let made = world.ask(create.clone()).map(document).unwrap();
    assert_eq!(status(&world.ask(create)), 409);
    assert_eq!(member(&made, "body").as_deref(), Some("\"x\""));
    let read = Command::ReadScript { container: path(), kind, id: "t".into() };
    assert_eq!(world.ask(read.clone()).map(document).unwrap(), made);
    let body = r#"{"id":"t","body":"y","triggerType":"post","triggerOperation":"Create"}"#;
    world.ask(Command::ReplaceScript { container: path(), kind, id: "t".into(), body: body.into() }).unwrap();
    assert_eq!(member(&world.ask(read.clone()).map(document).unwrap(), "body").as_deref(), Some("\"y\""));
    assert_eq!(names(&mut world, QueryScope::Scripts { container: path(), kind }), ["t"]);
    assert_eq!(
        names(&mut world, QueryScope::Scripts { container: path(), kind: ScriptKind::Function }),
        [""; 0]
    );
    for bad in [
        r#"{"id":"u"}"#,
        r#"{"id":"u","body":"x"}"#,
        r#"{"id":"u","body":"x","triggerType":"Never","triggerOperation":"All"}"#,
    ] {
        let create = Command::CreateScript { container: path(), kind, body: bad.into() };
        assert_eq!(status(&world.ask(create)), 400, "{bad}");
    }
    world.ask(Command::DeleteScript { container: path(), kind, id: "t".into() }).unwrap();
    assert_eq!(world.ask(read), Err(Refusal::NotFound));

    let user = |name: &str, is_upsert: bool| Command::CreateUser {
        database: "d".into(),
        body: format!(r#"{{"id":"{name}"}}"#).into(),
        is_upsert,
    };
    let made = world.ask(user("u", false)).map(document).unwrap();
    assert_eq!(member(&made, "_permissions").as_deref(), Some("\"permissions/\""));
    assert_eq!(status(&world.ask(user("u", false))), 409);
    assert!(matches!(world.ask(user("u", true)), Ok(Answer::Found(_))));
    let body = r#"{"id":"p","permissionMode":"Read","resource":"dbs/d/colls/c"}"#;
    let permission = Command::CreatePermission {
        database: "d".into(),
        user: "u".into(),
        body: body.into(),
        is_upsert: false,
    };
    world.ask(permission).unwrap();
    let scope = QueryScope::Permissions { database: "d".into(), user: "u".into() };
    assert_eq!(names(&mut world, scope.clone()), ["p"]);
    world.check();
    world.ask(Command::DeleteUser { database: "d".into(), user: "u".into() }).unwrap();
    assert_eq!(
        world.ask(Command::List { of: scope, listing: Listing::default() }),
        Err(Refusal::OwnerNotFound)
    );
    world.check();
}

// Section 19
#[test]
fn client_encryption_keys_are_documents_of_a_database() {
    let mut world = World::new();
    let create = Command::CreateEncryptionKey { database: "d".into(), body: r#"{"id":"k","x":1}"#.into() };
    let made = world.ask(create.clone()).map(document).unwrap();
    assert_eq!(status(&world.ask(create)), 409);
    let read = Command::ReadEncryptionKey { database: "d".into(), key: "k".into() };
    assert_eq!(world.ask(read.clone()).map(document).unwrap(), made);
    let body = r#"{"id":"k","x":2}"#.into();
    world.ask(Command::ReplaceEncryptionKey { database: "d".into(), key: "k".into(), body }).unwrap();
    assert_eq!(member(&world.ask(read.clone()).map(document).unwrap(), "x").as_deref(), Some("2"));
    assert_eq!(names(&mut world, QueryScope::EncryptionKeys { database: "d".into() }), ["k"]);
    world.check();
    world.ask(Command::DeleteEncryptionKey { database: "d".into(), key: "k".into() }).unwrap();
    assert_eq!(world.ask(read), Err(Refusal::NotFound));
}

// P-75, P-76, P-77, P-81
#[test]
fn offers_belong_to_databases_and_containers_and_can_be_replaced() {
    let mut world = World::new();
    let body = r#"{"id":"shared"}"#.into();
    let throughput = Some(Throughput::Autoscale { most: 4000, increment_percent: 7 });
    world.ask(Command::CreateDatabase { body, throughput }).unwrap();
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"]}}"#;
    let create = |throughput| Command::CreateContainer {
        database: "d".into(),
        body: body.into(),
        throughput: Some(throughput),
    };
    assert_eq!(status(&world.ask(create(Throughput::Fixed(399)))), 400);
    world.ask(create(Throughput::Fixed(500))).unwrap();
    let offers =
        match world.ask(Command::List { of: QueryScope::Offers, listing: Listing::default() }).unwrap() {
            Answer::Page(page) => page.values,
            other => panic!("{other:?}"),
        };
    let parsed: Vec<json::Value> = offers.iter().map(|offer| json::parse(offer).unwrap()).collect();
    let container = json_of(&world.read_container());
    let offer = &parsed[1];
    for (name, of) in [("resource", "_self"), ("offerResourceId", "_rid")] {
        assert_eq!(offer.get(name).unwrap().as_str(), container.get(of).unwrap().as_str());
    }
    let rid = offer.get("_rid").unwrap().as_str().unwrap().to_owned();
    assert_eq!(offer.get("id").unwrap().as_str(), Some(&*rid));
    assert_eq!(offer.get("_self").unwrap().as_str(), Some(&*format!("offers/{rid}/")));
    let throughput = |offer: &json::Value| {
        offer.get("content").unwrap().get("offerThroughput").unwrap().as_number().unwrap().as_i64()
    };
    assert_eq!(throughput(offer), Some(500));
    assert_eq!(throughput(&parsed[0]), Some(400));
    let autoscale = parsed[0].get("content").unwrap().get("offerAutopilotSettings").unwrap();
    assert_eq!(autoscale.get("maxThroughput").unwrap().as_number().unwrap().as_i64(), Some(4000));
    let replace = |units: u32| Command::ReplaceOffer {
        offer: rid.clone(),
        body: format!(r#"{{"content":{{"offerThroughput":{units}}}}}"#).into(),
    };
    assert_eq!(status(&world.ask(replace(450))), 400);
    let replaced = world.ask(replace(600)).map(document).unwrap();
    assert_eq!(throughput(&json_of(&replaced)), Some(600));
    assert_eq!(world.ask(Command::ReadOffer { offer: rid.clone() }).map(document).unwrap(), replaced);
    world.check();
    world.ask(Command::DeleteContainer { container: path() }).unwrap();
    assert_eq!(world.ask(Command::ReadOffer { offer: rid }), Err(Refusal::NotFound));
    world.check();
}

/// All offers, as they are told.
fn offers(world: &mut World) -> Vec<json::Value> {
    match world.ask(Command::List { of: QueryScope::Offers, listing: Listing::default() }).unwrap() {
        Answer::Page(page) => page.values.iter().map(|offer| json::parse(offer).unwrap()).collect(),
        other => panic!("{other:?}"),
    }
}

fn throughput_of(offer: &json::Value) -> Option<i64> {
    offer.get("content").unwrap().get("offerThroughput").unwrap().as_number().unwrap().as_i64()
}

// P-75, P-76
#[test]
fn a_container_without_throughput_has_the_least_offer_and_meets_no_limit_by_it() {
    let mut world = World::with("");
    let told = offers(&mut world);
    assert_eq!(told.iter().map(throughput_of).collect::<Vec<_>>(), [Some(400)]);
    let container = json_of(&world.read_container());
    assert_eq!(told[0].get("resource").unwrap().as_str(), container.get("_self").unwrap().as_str());
    let rid = told[0].get("_rid").unwrap().as_str().unwrap().to_owned();
    let read = Command::ReadItem { item: item("i"), if_none_match: None, session: None };
    let spend = |world: &World| {
        let mut throttle = throttle::Throttle::default();
        throttle.spend(&world.inner.account, &read, 100_000, Time(START));
        throttle.admit(&world.inner.account, &read, Time(START)).is_ok()
    };
    assert!(spend(&world), "nobody asked for a limit");
    // Whoever replaces it asks for one.
    let body = r#"{"content":{"offerThroughput":500}}"#.into();
    let replaced = world.ask(Command::ReplaceOffer { offer: rid.clone(), body }).map(document).unwrap();
    assert_eq!(throughput_of(&json_of(&replaced)), Some(500));
    assert_eq!(world.ask(Command::ReadOffer { offer: rid.clone() }).map(document).unwrap(), replaced);
    assert_eq!(offers(&mut world).len(), 1);
    assert!(!spend(&world));
    world.check();
    world.ask(Command::DeleteContainer { container: path() }).unwrap();
    assert_eq!(world.ask(Command::ReadOffer { offer: rid }), Err(Refusal::NotFound));
    assert!(offers(&mut world).is_empty());
    world.check();
}

// P-76
#[test]
fn a_container_that_shares_its_databases_throughput_has_no_offer_of_its_own() {
    let mut world = World::new();
    let throughput = Some(Throughput::Fixed(1_000));
    world.ask(Command::CreateDatabase { body: r#"{"id":"shared"}"#.into(), throughput }).unwrap();
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"]}}"#.into();
    world.ask(Command::CreateContainer { database: "shared".into(), body, throughput: None }).unwrap();
    assert_eq!(offers(&mut world).iter().map(throughput_of).collect::<Vec<_>>(), [Some(1_000)]);
}

// P-80, C-14
#[test]
fn requests_above_what_is_provisioned_wait_for_the_next_second() {
    let mut world = World::new();
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"]}}"#.into();
    let throughput = Some(Throughput::Fixed(400));
    world.ask(Command::CreateContainer { database: "d".into(), body, throughput }).unwrap();
    let mut throttle = throttle::Throttle::default();
    let read = Command::ReadItem { item: item("i"), if_none_match: None, session: None };
    let account = world.inner.account.clone();
    let number = 2; // the second thing that was defined
    let now = Time(START + 250);
    assert_eq!(throttle.left(&account, number, now), Some(40_000));
    throttle.spend(&account, &read, 39_999, now);
    assert_eq!(throttle.admit(&account, &read, now), Ok(()));
    assert_eq!(throttle.left(&account, number, now), Some(1));
    throttle.spend(&account, &read, 60_001, now);
    assert_eq!(throttle.admit(&account, &read, now), Err(Refusal::TooManyRequests { retry_after_ms: 1_750 }));
    assert_eq!(Refusal::TooManyRequests { retry_after_ms: 1 }.status(), (429, 3200));
    assert_eq!(throttle.left(&account, number, now), Some(0));
    assert!(throttle.admit(&account, &read, Time(START + 1_999)).is_err());
    assert_eq!(throttle.admit(&account, &read, Time(START + 2_000)), Ok(()));
    assert_eq!(throttle.left(&account, number, Time(START + 2_000)), Some(20_000));
    // Definitions are not counted, and a container without an offer has no limit.
    let metadata = Command::ReadContainer { container: path(), if_none_match: None };
    assert_eq!(throttle.admit(&account, &metadata, now), Ok(()));
    assert_eq!(throttle.left(&World::with("").inner.account, number, now), None);
}

// CX-8.1, P-44, P-45
#[test]
fn the_one_range_has_all_keys_and_keeps_its_etag() {
    let mut world = World::with("");
    let read = || Command::ReadRanges { container: path() };
    let first = world.ask(read()).map(document).unwrap();
    assert_eq!(member(&first, "id").as_deref(), Some("\"0\""));
    assert_eq!(member(&first, "minInclusive").as_deref(), Some("\"\""));
    assert_eq!(member(&first, "maxExclusive").as_deref(), Some("\"FF\""));
    world.create("i", "").unwrap();
    assert_eq!(world.ask(read()).map(document).unwrap().etag, first.etag);
}

// P-51, P-52
#[test]
fn a_list_goes_on_where_it_ended() {
    let mut world = World::new();
    for name in ["e", "f", "g"] {
        world
            .ask(Command::CreateDatabase { body: format!(r#"{{"id":"{name}"}}"#).into(), throughput: None })
            .unwrap();
    }
    let mut found = Vec::new();
    let mut continuation = None;
    loop {
        let listing = Listing { max_items: Some(3), continuation };
        let Answer::Page(page) = world.ask(Command::List { of: QueryScope::Databases, listing }).unwrap()
        else {
            panic!()
        };
        found.extend(page.values.iter().map(|value| id_of(value)));
        continuation = page.continuation;
        if continuation.is_none() {
            break;
        }
    }
    assert_eq!(found, ["d", "e", "f", "g"]);
    let listing = Listing { max_items: None, continuation: Some("x".into()) };
    assert_eq!(status(&world.ask(Command::List { of: QueryScope::Databases, listing })), 400);
    for bad in [0, -2] {
        let listing = Listing { max_items: Some(bad), continuation: None };
        assert_eq!(status(&world.ask(Command::List { of: QueryScope::Databases, listing })), 400);
    }
}

// W-43
#[test]
fn definitions_of_the_account_have_a_total_and_what_is_deleted_makes_room() {
    let mut world = World::with("");
    let script = |name: String, bytes: usize| {
        let body = format!(r#"{{"id":"{name}","body":"{}"}}"#, "x".repeat(bytes)).into();
        Command::CreateScript { container: path(), kind: ScriptKind::Procedure, body }
    };
    let container = |name: &str, bytes: usize| {
        let body = format!(
            r#"{{"id":"{name}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}},"x":"{}"}}"#,
            "x".repeat(bytes)
        );
        Command::CreateContainer { database: "d".into(), body: body.into(), throughput: None }
    };
    let most = limits::DEFINITIONS_BYTES;
    let long = limits::DEFINITION_BYTES - 1_000;
    let mut made = 0;
    while made < 150 && world.ask(container(&format!("c{made}"), long)).is_ok() {
        made += 1;
    }
    assert_eq!(made, most / (2 * limits::DEFINITION_BYTES));
    let refused = world.ask(container("more", long)).unwrap_err();
    assert_eq!(refused, Refusal::DefinitionsFull { most });
    assert_eq!(refused.status(), (403, 0));
    let fill = (0..10).take_while(|nth| world.ask(script(format!("f{nth}"), long)).is_ok()).count();
    assert!(fill < 10);
    assert!(world.ask(script("small".into(), 10)).is_ok());
    let replace = Command::ReplaceScript {
        container: path(),
        kind: ScriptKind::Procedure,
        id: "small".into(),
        body: format!(r#"{{"id":"small","body":"{}"}}"#, "x".repeat(long)).into(),
    };
    assert_eq!(world.ask(replace.clone()), Err(Refusal::DefinitionsFull { most }));
    world.ask(Command::DeleteContainer { container: ContainerPath::new("d", "c0") }).unwrap();
    assert!(world.ask(replace).is_ok());
}
