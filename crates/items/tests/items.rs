//! Items: point operations, conditions, unique keys, patches, batches, feeds (sections 6 to 11, 14).

#![allow(clippy::unwrap_used, reason = "a test")]

mod world;

use otobus_items::*;
use world::*;

// CX-6.1, CX-6.3, P-25, P-26, P-29, P-35
#[test]
fn a_created_item_is_read_back_with_system_properties() {
    let mut world = World::with("");
    let made = world
        .create("i", r#""n":1.50,"big":12345678901234567890,"_ts":1,"_etag":"x","s":"é\u00e9""#)
        .unwrap();
    let rid = json::walk::string(member(&made, "_rid").unwrap().as_bytes()).unwrap().into_owned();
    let container = member(&world.read_container(), "_self").unwrap();
    assert_eq!(
        member(&made, "_self").unwrap(),
        format!("{}docs/{rid}/\"", &container[..container.len() - 1])
    );
    assert_eq!(member(&made, "n").as_deref(), Some("1.50"));
    assert_eq!(member(&made, "big").as_deref(), Some("12345678901234567890"));
    assert_eq!(member(&made, "_ts"), Some((START / 1000).to_string()));
    assert_eq!(member(&made, "_attachments").as_deref(), Some("\"attachments/\""));
    let etag = json::walk::string(member(&made, "_etag").unwrap().as_bytes()).unwrap().into_owned();
    assert_eq!(etag, made.etag);
    assert_eq!(world.read("i").unwrap(), made);
    // What was read can be written back.
    let write = ItemWrite {
        container: path(),
        partition_key: None,
        body: made.body.clone(),
        condition: Precondition::default(),
    };
    let again = world.ask(Command::ReplaceItem { id: "i".into(), write }).map(document).unwrap();
    assert_eq!(member(&again, "_rid"), member(&made, "_rid"));
    assert_ne!(again.etag, made.etag);
    world.check();
}

// P-28
#[test]
fn an_item_is_read_replaced_patched_and_deleted_by_its_rid() {
    let mut world = World::with("\"defaultTtl\":-1");
    let made = world.create("i", "\"n\":1").unwrap();
    let rid = |document: &Document| {
        json::walk::string(member(document, "_rid").unwrap().as_bytes()).unwrap().into_owned()
    };
    let own = rid(&made);
    assert_eq!(world.read(&own).unwrap(), made);
    let replace = Command::ReplaceItem { id: own.clone(), write: World::write("i", "\"n\":2") };
    assert_eq!(member(&world.ask(replace).map(document).unwrap(), "n").as_deref(), Some("2"));
    let patched = world.patch(&own, r#"{"operations":[{"op":"incr","path":"/n","value":1}]}"#).unwrap();
    assert_eq!((rid(&patched), member(&patched, "n").as_deref()), (own.clone(), Some("3")));
    // The rid of another item names that one, whose new id is taken, and so does another partition's.
    let other = rid(&world.create("j", "").unwrap());
    let replace = Command::ReplaceItem { id: other.clone(), write: World::write("i", "") };
    assert_eq!(status(&world.ask(replace)), 409);
    let replace = Command::ReplaceItem { id: other.clone(), write: World::write("k", "") };
    let renamed = world.ask(replace).map(document).unwrap();
    assert_eq!((rid(&renamed), world.read("j")), (other.clone(), Err(Refusal::NotFound)));
    let elsewhere = ItemPath { partition_key: key("q"), ..item(&own) };
    let read = Command::ReadItem { item: elsewhere, if_none_match: None, session: None };
    assert_eq!(world.ask(read), Err(Refusal::NotFound));
    // An item whose id looks like a rid is found by its id first.
    world.create(&other, "\"n\":9").unwrap();
    assert_eq!(member(&world.read(&other).unwrap(), "n").as_deref(), Some("9"));
    world.check();
    assert_eq!(world.delete(&own), Ok(Answer::Deleted));
    assert_eq!((world.read(&own), world.read("i")), (Err(Refusal::NotFound), Err(Refusal::NotFound)));
    // Made anew it is another item with another rid; one that has expired is gone by either name.
    let again = rid(&world.create("i", "\"ttl\":1").unwrap());
    assert!(again != own && world.read(&own) == Err(Refusal::NotFound));
    world.inner.now = world.inner.now.after_ms(1_000);
    assert_eq!(world.read(&again), Err(Refusal::NotFound));
    let anew = rid(&world.create("i", "").unwrap());
    assert_eq!(world.read(&again), Err(Refusal::NotFound));
    assert_eq!(member(&world.read(&anew).unwrap(), "id").as_deref(), Some("\"i\""));
    world.check();
}

// CX-6.1, CX-6.2, CX-6.4, CX-6.5, P-30
#[test]
fn each_operation_answers_as_it_should() {
    let mut world = World::with("");
    world.create("i", "").unwrap();
    assert_eq!(status(&world.create("i", "")), 409);
    assert!(matches!(world.upsert("i", "\"n\":1"), Ok(Answer::Found(_))));
    assert!(matches!(world.upsert("j", ""), Ok(Answer::Created(_))));
    assert_eq!(member(&world.replace("i", "\"n\":2").unwrap(), "n").as_deref(), Some("2"));
    assert_eq!(world.replace("none", ""), Err(Refusal::NotFound));
    assert_eq!(world.delete("i"), Ok(Answer::Deleted));
    assert_eq!(world.delete("i"), Err(Refusal::NotFound));
    assert_eq!(world.read("i"), Err(Refusal::NotFound));
    // The same id in another partition is another item.
    let write =
        ItemWrite { container: path(), body: r#"{"id":"j","pk":"q"}"#.into(), ..ItemWrite::default() };
    assert!(matches!(world.ask(Command::CreateItem(write)), Ok(Answer::Created(_))));
    for missing in [ContainerPath::new("d", "none"), ContainerPath::new("none", "c")] {
        let write = ItemWrite { container: missing, ..World::write("i", "") };
        assert_eq!(world.ask(Command::CreateItem(write)), Err(Refusal::OwnerNotFound));
    }
    world.check();
}

// P-33, P-39
#[test]
fn the_partition_key_of_a_point_operation_is_whole() {
    let mut world = World::with("");
    for (id, value) in [("null", r#""pk":null,"#), ("undefined", "")] {
        let body = format!(r#"{{{value}"id":"{id}"}}"#).into();
        world
            .ask(Command::CreateItem(ItemWrite { container: path(), body, ..ItemWrite::default() }))
            .unwrap();
    }
    let mut read = |id: &str, key: Vec<KeyPart>| {
        let item = ItemPath { container: path(), partition_key: PartitionKey(key), id: id.into() };
        status(&world.ask(Command::ReadItem { item, if_none_match: None, session: None }))
    };
    assert_eq!(read("null", vec![KeyPart::Null]), 200);
    assert_eq!(read("null", vec![KeyPart::Undefined]), 404);
    assert_eq!(read("undefined", vec![KeyPart::Undefined]), 200);
    assert_eq!(read("undefined", vec![]), 200);
    assert_eq!(read("undefined", vec![KeyPart::Null]), 404);
    assert_eq!(read("null", vec![KeyPart::Null, KeyPart::Null]), 400);
}

// P-48, P-49, P-50
#[test]
fn conditions_hold_or_nothing_happens() {
    let mut world = World::with("");
    let etag = world.create("i", "").unwrap().etag;
    let with = |if_match: Option<&str>, if_none_match: Option<&str>| ItemWrite {
        condition: Precondition {
            if_match: if_match.map(str::to_owned),
            if_none_match: if_none_match.map(str::to_owned),
        },
        ..World::write("i", "")
    };
    let replace = |write: ItemWrite| Command::ReplaceItem { id: "i".into(), write };
    for wrong in ["\"x\"", "x", ""] {
        assert_eq!(status(&world.ask(replace(with(Some(wrong), None)))), 412);
        assert_eq!(status(&world.ask(Command::UpsertItem(with(Some(wrong), None)))), 412);
        let condition = with(Some(wrong), None).condition;
        assert_eq!(status(&world.ask(Command::DeleteItem { item: item("i"), condition })), 412);
    }
    let read = |etag: &str| Command::ReadItem {
        item: item("i"),
        if_none_match: Some(etag.to_owned()),
        session: None,
    };
    assert_eq!(world.ask(read(&etag)), Ok(Answer::NotModified { etag: etag.clone() }));
    assert!(matches!(world.ask(read("\"x\"")), Ok(Answer::Found(_))));
    assert_eq!(status(&world.ask(Command::UpsertItem(with(None, Some("*"))))), 412);
    assert_eq!(status(&world.ask(Command::CreateItem(with(None, Some("*"))))), 412);
    let etag = world.ask(replace(with(Some(&etag), None))).map(document).unwrap().etag;
    let etag = world.ask(replace(with(Some(etag.trim_matches('"')), None))).map(document).unwrap().etag;
    world.ask(replace(with(Some("*"), None))).unwrap();
    assert_eq!(status(&world.ask(replace(with(Some(&etag), None)))), 412, "it was changed since");
    world.delete("i").unwrap();
    assert!(matches!(world.ask(Command::UpsertItem(with(Some("\"x\""), None))), Ok(Answer::Created(_))));
    assert!(matches!(world.ask(Command::UpsertItem(with(None, Some("\"x\"")))), Ok(Answer::Found(_))));
}

// CX-5.2.8
#[test]
fn unique_keys_hold_within_a_logical_partition_and_missing_counts_as_null() {
    let mut world =
        World::with(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a","/b/c"]},{"paths":["/d"]}]}"#);
    world.create("1", r#""a":1,"b":{"c":"x"},"d":1"#).unwrap();
    assert_eq!(status(&world.create("2", r#""a":1.0,"b":{"c":"x"},"d":2"#)), 409);
    world.create("2", r#""a":1,"b":{"c":"y"},"d":2"#).unwrap();
    assert_eq!(status(&world.create("3", r#""a":2,"d":2"#)), 409);
    world.create("3", r#""a":2"#).unwrap();
    assert_eq!(status(&world.create("4", r#""a":2,"d":3"#)), 409, "the missing path is null twice");
    assert_eq!(status(&world.create("4", r#""a":2,"b":{"c":null},"d":3"#)), 409);
    assert_eq!(status(&world.create("4", r#""a":9,"d":null"#)), 409);
    let other = ItemWrite {
        container: path(),
        body: r#"{"id":"1","pk":"q","a":1,"b":{"c":"x"},"d":1}"#.into(),
        ..ItemWrite::default()
    };
    world.ask(Command::CreateItem(other)).unwrap();
    assert_eq!(status(&world.replace("2", r#""a":1,"b":{"c":"x"},"d":2"#)), 409);
    assert_eq!(status(&world.patch("2", r#"[{"op":"set","path":"/d","value":1}]"#)), 409);
    world.replace("2", r#""a":1,"b":{"c":"z"},"d":2"#).unwrap();
    world.create("5", r#""a":1,"b":{"c":"y"},"d":5"#).unwrap();
    world.delete("1").unwrap();
    world.create("6", r#""a":1,"b":{"c":"x"},"d":1"#).unwrap();
    let long = "x".repeat(5_000);
    world.create("7", &format!(r#""a":7,"d":"{long}""#)).unwrap();
    assert_eq!(status(&world.create("8", &format!(r#""a":8,"d":"{long}""#))), 409);
    world.create("8", &format!(r#""a":8,"d":"{long}y""#)).unwrap();
    world.check();
}

// P-55, P-56
#[test]
fn a_patch_is_all_or_nothing() {
    let mut world = World::with("");
    world.create("i", "\"n\":1").unwrap();
    let refused = world.patch("i", r#"[{"op":"incr","path":"/n","value":1},{"op":"remove","path":"/none"}]"#);
    assert_eq!(status(&refused), 400);
    assert_eq!(member(&world.read("i").unwrap(), "n").as_deref(), Some("1"));
    let patched = world.patch("i", r#"{"operations":[{"op":"incr","path":"/n","value":1}]}"#).unwrap();
    assert_eq!(member(&patched, "n").as_deref(), Some("2"));
    assert_eq!(world.read("i").unwrap(), patched);
    world.check();
}

fn statuses(results: &[OperationResult]) -> Vec<u16> {
    results.iter().map(|result| result.status).collect()
}

// P-57, P-58, P-59
#[test]
fn a_batch_happens_whole_in_order_and_under_one_number() {
    let mut world = World::with("");
    world.create("old", "\"n\":1").unwrap();
    let lsn = world.lsn();
    let results = world
        .batch(
            r#"[{"operationType":"Create","resourceBody":{"id":"a","pk":"p","n":1}},
                {"operationType":"Read","id":"a"},
                {"operationType":"Upsert","resourceBody":{"id":"a","pk":"p","n":2}},
                {"operationType":"Replace","id":"a","resourceBody":{"id":"a","pk":"p","n":3}},
                {"operationType":"Patch","id":"a","resourceBody":{"operations":[{"op":"incr","path":"/n","value":1}]}},
                {"operationType":"Delete","id":"old"},
                {"operationType":"Upsert","resourceBody":{"id":"b","pk":"p"}}]"#,
        )
        .unwrap();
    assert_eq!(statuses(&results), [201, 200, 200, 200, 200, 204, 201]);
    assert_eq!(world.lsn(), lsn + 1);
    let item = world.read("a").unwrap();
    assert_eq!(member(&item, "n").as_deref(), Some("4"));
    assert_eq!(results[4].document.as_ref().unwrap(), &item);
    assert!(!world.is_there("old"));
    world.check();
}

// P-58
#[test]
fn a_failed_batch_changes_nothing_and_says_which_operation_failed() {
    let mut world = World::with("");
    world.create("old", "").unwrap();
    let before = world.inner.store.clone();
    for (failing, expected) in [
        (r#"{"operationType":"Create","resourceBody":{"id":"old","pk":"p"}}"#, 409),
        (r#"{"operationType":"Create","resourceBody":{"id":"a","pk":"p"}}"#, 409),
        (r#"{"operationType":"Create","resourceBody":{"id":"x","pk":"other"}}"#, 400),
        (r#"{"operationType":"Create"}"#, 400),
        (r#"{"operationType":"Read","id":"none"}"#, 404),
        (r#"{"operationType":"Replace","id":"none","resourceBody":{"id":"none","pk":"p"}}"#, 404),
        (r#"{"operationType":"Delete","id":"old","ifMatch":"\"x\""}"#, 412),
        (
            r#"{"operationType":"Patch","id":"old","resourceBody":{"operations":[{"op":"remove","path":"/x"}]}}"#,
            400,
        ),
    ] {
        let batch = format!(
            r#"[{{"operationType":"Create","resourceBody":{{"id":"a","pk":"p"}}}},{failing},{{"operationType":"Delete","id":"old"}}]"#
        );
        assert_eq!(statuses(&world.batch(&batch).unwrap()), [424, expected, 424], "{failing}");
        assert_eq!(world.inner.store, before);
    }
}

// P-59
#[test]
fn a_batch_has_one_to_a_hundred_operations_and_two_mebibytes() {
    let mut world = World::with("");
    let with = |count: usize| {
        format!(
            "[{}]",
            vec![r#"{"operationType":"Upsert","resourceBody":{"id":"a","pk":"p"}}"#; count].join(",")
        )
    };
    assert_eq!(world.batch(&with(0)), Err(Refusal::BadRequest("Batch request has no operations.".into())));
    assert_eq!(world.batch(&with(100)).unwrap().len(), 100);
    assert_eq!(
        world.batch(&with(101)),
        Err(Refusal::BadRequest("Batch request has more operations than what is supported.".into()))
    );
    let big = format!(
        r#"[{{"operationType":"Upsert","resourceBody":{{"id":"a","pk":"p","x":"{}"}}}}]"#,
        "x".repeat(limits::BATCH_BYTES)
    );
    assert_eq!(status(&world.batch(&big)), 413);
    for bad in ["", "{}", "1", "[1]", r#"[{"operationType":"Jump"}]"#, "[{]"] {
        assert_eq!(status(&world.batch(bad)), 400, "{bad}");
    }
    world.check();
}

// CX-6.4
#[test]
fn a_replace_may_change_the_id_of_an_item() {
    let mut world = World::with(
        r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/mail"]}]},"changeFeedPolicy":{"retentionDuration":5},"defaultTtl":100"#,
    );
    let rename = |from: &str, to: &str, mail: &str, if_match: Option<&str>| {
        let mut write = World::write(to, &format!(r#""mail":"{mail}""#));
        write.condition.if_match = if_match.map(str::to_owned);
        Command::ReplaceItem { id: from.into(), write }
    };
    let first = world.create("a", r#""mail":"m""#).unwrap();
    world.create("taken", r#""mail":"n""#).unwrap();
    assert_eq!(status(&world.ask(rename("a", "taken", "m", None))), 409);
    assert_eq!(status(&world.ask(rename("none", "b", "o", None))), 404);
    assert_eq!(status(&world.ask(rename("a", "b", "m", Some("\"x\"")))), 412);
    assert_eq!(status(&world.ask(rename("a", "b", "n", None))), 409);
    assert!(world.is_there("a") && !world.is_there("b"));
    let lsn = world.lsn();
    let renamed = world.ask(rename("a", "b", "m", Some(&first.etag))).map(document).unwrap();
    let rid = |document: &Document| member(document, "_rid").unwrap();
    assert_eq!((id_of(&renamed.body), rid(&renamed)), ("b".to_owned(), rid(&first)));
    // It happens at once: nobody sees both or neither.
    assert_eq!(world.lsn(), lsn + 1);
    assert!(!world.is_there("a") && world.is_there("b"));
    assert_eq!(world.stored_items(), 2);
    world.check();
    // P-33: another partition is another item.
    let elsewhere = ItemWrite { body: r#"{"id":"c","pk":"q"}"#.into(), ..World::write("c", "") };
    assert_eq!(status(&world.ask(Command::ReplaceItem { id: "b".into(), write: elsewhere })), 400);
    // C-31: one that has expired is not there to be renamed, and takes nobody's id.
    world.pass(100);
    assert_eq!(status(&world.ask(rename("b", "c", "m", None))), 404);
    world.create("fresh", r#""mail":"m""#).unwrap();
    assert!(world.ask(rename("fresh", "b", "m", None)).is_ok());
    world.check();
}

// P-57, P-58
#[test]
fn a_replace_in_a_batch_may_change_the_id_of_an_item() {
    let mut world = World::with(
        r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/mail"]}]},"changeFeedPolicy":{"retentionDuration":5},"defaultTtl":100"#,
    );
    let rename = |from: &str, to: &str, more: &str| {
        format!(
            r#"[{{"operationType":"Replace","id":"{from}"{more},"resourceBody":{{"id":"{to}","pk":"p","mail":"m"}}}}]"#
        )
    };
    let first = world.create("a", r#""mail":"m""#).unwrap();
    world.create("taken", r#""mail":"n""#).unwrap();
    assert_eq!(statuses(&world.batch(&rename("a", "taken", "")).unwrap()), [409]);
    assert_eq!(statuses(&world.batch(&rename("none", "b", "")).unwrap()), [404]);
    assert_eq!(statuses(&world.batch(&rename("a", "b", r#","ifMatch":"\"x\"""#)).unwrap()), [412]);
    assert_eq!(statuses(&world.batch(&rename("a", "b", "").replace(r#""m""#, r#""n""#)).unwrap()), [409]);
    let rid = |document: &Document| member(document, "_rid").unwrap();
    let renamed = world.batch(&rename("a", "b", "")).unwrap();
    assert_eq!(statuses(&renamed), [200]);
    assert_eq!(rid(renamed[0].document.as_ref().unwrap()), rid(&first));
    assert!(!world.is_there("a") && world.is_there("b"));
    assert!(world.is_there(rid(&first).trim_matches('"')));
    // P-57: what follows in the same batch sees it.
    let batch = format!(
        r#"{},{{"operationType":"Create","resourceBody":{{"id":"b","pk":"p","mail":"o"}}}},{{"operationType":"Read","id":"c"}}]"#,
        rename("b", "c", "").trim_end_matches(']')
    );
    assert_eq!(statuses(&world.batch(&batch).unwrap()), [200, 201, 200]);
    world.check();
    // C-31: one that has expired is not there to be renamed, and takes nobody's id.
    world.pass(100);
    assert_eq!(statuses(&world.batch(&rename("c", "d", "")).unwrap()), [404]);
    world.create("fresh", r#""mail":"m""#).unwrap();
    assert_eq!(statuses(&world.batch(&rename("fresh", "c", "")).unwrap()), [200]);
    world.check();
}

// P-60
#[test]
fn bulk_operations_stand_for_themselves() {
    let mut world = World::with("");
    let body = r#"[{"operationType":"Create","resourceBody":{"id":"a","pk":"p"},"partitionKey":"[\"p\"]"},
        {"operationType":"Create","resourceBody":{"id":"a","pk":"p"},"partitionKey":"[\"p\"]"},
        {"operationType":"Upsert","resourceBody":{"id":"a","pk":"q"},"partitionKey":"[\"q\"]"},
        {"operationType":"Read","id":"a","partitionKey":"[\"q\"]"},
        {"operationType":"Create","resourceBody":{"id":"b"}},
        {"operationType":"Delete","id":"a"}]"#;
    let mut bulk = |continue_on_error: bool| {
        let command = Command::Bulk { container: path(), body: body.into(), continue_on_error };
        match world.ask(command).unwrap() {
            Answer::Operations(results) => statuses(&results),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(bulk(true), [201, 409, 201, 200, 201, 400]);
    assert_eq!(bulk(false), [409, 424, 424, 424, 424, 424]);
    assert_eq!(world.lsn(), 3, "each is a transaction of its own");
    world.check();
}

/// Twenty items in four partitions.
fn many() -> World {
    let mut world = World::with("");
    for number in 0..20 {
        let body = format!(r#"{{"id":"i{number}","pk":"p{}"}}"#, number % 4).into();
        world
            .ask(Command::CreateItem(ItemWrite { container: path(), body, ..ItemWrite::default() }))
            .unwrap();
    }
    world
}

// CX-6.7
#[test]
fn deleting_a_partition_key_leaves_the_others() {
    let mut world = many();
    let lsn = world.lsn();
    world.ask(Command::DeletePartition { container: path(), partition_key: key("p1") }).unwrap();
    assert_eq!(world.feed(Scope::Key(key("p1"))), [""; 0]);
    assert_eq!(world.feed(Scope::All).len(), 15);
    assert_eq!(world.lsn(), lsn + 1);
    world.ask(Command::DeletePartition { container: path(), partition_key: key("none") }).unwrap();
    world.check();
}

// CX-6.7
#[test]
fn deleting_a_large_partition_hides_it_at_once_and_the_purge_removes_it() {
    let mut world = World::with("");
    for number in 0..=limits::PARTITION_DELETE_ITEMS {
        world.create(&format!("i{number}"), "").unwrap();
    }
    world.ask(Command::DeletePartition { container: path(), partition_key: key("p") }).unwrap();
    assert_eq!(world.stored_items(), limits::PARTITION_DELETE_ITEMS + 1);
    assert_eq!(world.feed(Scope::All), [""; 0]);
    assert!(!world.is_there("i0"));
    assert_eq!(world.changes(ChangeFeedMode::LatestVersion, ChangeFeedStart::Beginning).0, [""; 0]);
    // What is written behind it counts.
    assert!(matches!(world.upsert("i0", ""), Ok(Answer::Created(_))));
    world.create("new", "").unwrap();
    world.purge();
    assert_eq!(world.stored_items(), 2);
    assert!(world.is_there("i0") && world.is_there("new"));
    world.check();
}

// P-41, CX-6.7
#[test]
fn a_prefix_of_a_hierarchical_key_is_a_scope() {
    let mut world = World::new();
    let body = r#"{"id":"c","partitionKey":{"paths":["/a","/b"],"kind":"MultiHash","version":2}}"#.into();
    world.ask(Command::CreateContainer { database: "d".into(), body, throughput: None }).unwrap();
    for (id, a, b) in [("1", "x", "1"), ("2", "x", "2"), ("3", "y", "1")] {
        let body = format!(r#"{{"id":"{id}","a":"{a}","b":"{b}"}}"#).into();
        world
            .ask(Command::CreateItem(ItemWrite { container: path(), body, ..ItemWrite::default() }))
            .unwrap();
    }
    let mut ids = world.feed(Scope::Key(key("x")));
    ids.sort();
    assert_eq!(ids, ["1", "2"]);
    let full = PartitionKey(vec![KeyPart::String("x".into()), KeyPart::String("2".into())]);
    assert_eq!(world.feed(Scope::Key(full)), ["2"]);
    // As clients send it: the effective key of the prefix, and FF behind it.
    let start = effective_key::hex(&[KeyPart::String("x".into())], effective_key::Hashing::Multi);
    let range = KeyRange { end: format!("{start}FF"), start };
    assert_eq!(world.feed(Scope::Range(range)).len(), 2);
    let all = KeyRange { start: String::new(), end: "FF".into() };
    assert_eq!(world.feed(Scope::Range(all)).len(), 3);
    world.ask(Command::DeletePartition { container: path(), partition_key: key("x") }).unwrap();
    assert_eq!(world.feed(Scope::All), ["3"]);
    world.check();
}

// CX-6.6, P-51, P-53
#[test]
fn a_feed_goes_on_at_a_position_whatever_happens_between_pages() {
    let mut world = many();
    let page = |continuation: Option<String>, world: &mut World| {
        let listing = Listing { max_items: Some(6), continuation };
        let command = Command::ReadFeed { container: path(), scope: Scope::All, listing, session: None };
        match world.ask(command).unwrap() {
            Answer::Page(page) => {
                (page.values.iter().map(|value| id_of(value)).collect::<Vec<_>>(), page.continuation)
            }
            other => panic!("{other:?}"),
        }
    };
    let (first, token) = page(None, &mut world);
    // One of the first page goes away: nothing of what follows is passed over.
    let number: usize = first[0][1..].parse().unwrap();
    let gone =
        ItemPath { container: path(), partition_key: key(&format!("p{}", number % 4)), id: first[0].clone() };
    world.ask(Command::DeleteItem { item: gone, condition: Precondition::default() }).unwrap();
    let mut found = first;
    let mut token = token;
    while let Some(continuation) = token {
        let (ids, next) = page(Some(continuation), &mut world);
        found.extend(ids);
        token = next;
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 20);
    let listing = Listing { max_items: None, continuation: Some("nonsense".into()) };
    let command = Command::ReadFeed { container: path(), scope: Scope::All, listing, session: None };
    assert_eq!(status(&world.ask(command)), 400);
}

// P-36
#[test]
fn a_page_has_four_mebibytes() {
    let mut world = World::with("");
    for number in 0..5 {
        world.create(&format!("i{number}"), &format!("\"x\":\"{}\"", "x".repeat(1024 * 1024))).unwrap();
    }
    let listing = Listing { max_items: Some(-1), continuation: None };
    let Answer::Page(page) = world
        .ask(Command::ReadFeed { container: path(), scope: Scope::All, listing, session: None })
        .unwrap()
    else {
        panic!()
    };
    assert_eq!(page.values.len(), 3);
    assert!(page.continuation.is_some());
}

fn latest(world: &mut World, start: ChangeFeedStart) -> (Vec<String>, String) {
    let (values, etag) = world.changes(ChangeFeedMode::LatestVersion, start);
    (values.iter().map(|value| id_of(value.as_bytes())).collect(), etag)
}

// P-69, P-70, P-72, P-74
#[test]
fn the_latest_version_feed_has_each_item_once_in_the_order_of_changes() {
    let mut world = World::with("");
    let (_, beginning) = latest(&mut world, ChangeFeedStart::Now);
    for id in ["a", "b", "c"] {
        world.create(id, "").unwrap();
        world.pass(10);
    }
    world.upsert("a", "\"n\":1").unwrap();
    world.delete("b").unwrap();
    world.create("own", "\"ttl\":5").unwrap();
    let (ids, etag) = latest(&mut world, ChangeFeedStart::Beginning);
    assert_eq!(ids, ["c", "a", "own"]);
    assert_eq!(latest(&mut world, ChangeFeedStart::After(beginning)).0, ["c", "a", "own"]);
    assert_eq!(latest(&mut world, ChangeFeedStart::After(etag.clone())), (vec![], etag.clone()));
    assert_eq!(latest(&mut world, ChangeFeedStart::Now), (vec![], etag.clone()));
    assert_eq!(latest(&mut world, ChangeFeedStart::Time(START / 1000 + 21)).0, ["a", "own"]);
    assert_eq!(latest(&mut world, ChangeFeedStart::Time(START / 1000 + 20)).0, ["c", "a", "own"]);
    assert_eq!(latest(&mut world, ChangeFeedStart::Time(START / 1000 + 99)).0, [""; 0]);
    world.upsert("c", "").unwrap();
    assert_eq!(latest(&mut world, ChangeFeedStart::After(etag)).0, ["c"]);
    let (values, _) = world.changes(ChangeFeedMode::LatestVersion, ChangeFeedStart::Beginning);
    assert!(values[0].contains("\"_lsn\":"));
    let bad = world.change_feed(ChangeFeedMode::LatestVersion, ChangeFeedStart::After("\"x\"".into()), None);
    assert_eq!(status(&bad), 400);
}

// P-70, P-71
#[test]
fn a_page_of_the_change_feed_ends_between_transactions_and_stays_in_its_scope() {
    let mut world = many();
    let operations: Vec<String> = (0..5)
        .map(|n| format!(r#"{{"operationType":"Create","resourceBody":{{"id":"b{n}","pk":"p"}}}}"#))
        .collect();
    world.batch(&format!("[{}]", operations.join(","))).unwrap();
    let mut start = ChangeFeedStart::Beginning;
    let mut sizes = Vec::new();
    loop {
        let Answer::Changes { page, etag } =
            world.change_feed(ChangeFeedMode::LatestVersion, start, Some(9)).unwrap()
        else {
            panic!()
        };
        if page.values.is_empty() {
            break;
        }
        sizes.push(page.values.len());
        start = ChangeFeedStart::After(etag);
    }
    assert_eq!(sizes, [9, 9, 7], "the batch is not divided");
    let command = Command::ChangeFeed {
        container: path(),
        scope: Scope::Key(key("p1")),
        mode: ChangeFeedMode::LatestVersion,
        start: ChangeFeedStart::Beginning,
        max_items: None,
    };
    let Answer::Changes { page, .. } = world.ask(command).unwrap() else { panic!() };
    assert_eq!(page.values.len(), 5);
}

// P-73
#[test]
fn all_versions_and_deletes_are_told_where_the_container_keeps_them() {
    let mut world = World::with("");
    let refused = world.change_feed(ChangeFeedMode::AllVersionsAndDeletes, ChangeFeedStart::Now, None);
    let Err(Refusal::BadRequest(text)) = refused else { panic!("{refused:?}") };
    assert!(text.contains("All Versions and Deletes") && text.contains("must be enabled"));
    let mut world = World::with(r#""changeFeedPolicy":{"retentionDuration":5}"#);
    for start in [ChangeFeedStart::Beginning, ChangeFeedStart::Time(5)] {
        assert_eq!(status(&world.change_feed(ChangeFeedMode::AllVersionsAndDeletes, start, None)), 400);
    }
    let (_, start) = world.changes(ChangeFeedMode::AllVersionsAndDeletes, ChangeFeedStart::Now);
    world.create("i", "\"n\":1").unwrap();
    world.replace("i", "\"n\":2").unwrap();
    world.delete("i").unwrap();
    let (events, etag) =
        world.changes(ChangeFeedMode::AllVersionsAndDeletes, ChangeFeedStart::After(start.clone()));
    let metadata = |event: &str| json::parse(event.as_bytes()).unwrap().get("metadata").unwrap().clone();
    let kinds: Vec<String> = events
        .iter()
        .map(|event| metadata(event).get("operationType").unwrap().as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds, ["create", "replace", "delete"]);
    let replaced = json::parse(events[1].as_bytes()).unwrap();
    let n = |image: &str| replaced.get(image).unwrap().get("n").unwrap().as_number().unwrap().as_i64();
    assert_eq!((n("previous"), n("current")), (Some(1), Some(2)));
    assert_eq!(metadata(&events[1]).get("previousImageLSN").unwrap().as_number().unwrap().as_i64(), Some(1));
    let deleted = metadata(&events[2]);
    assert_eq!(deleted.get("id").unwrap().as_str(), Some("i"));
    assert_eq!(deleted.get("timeToLiveExpired").unwrap().as_bool(), Some(false));
    assert_eq!(world.changes(ChangeFeedMode::AllVersionsAndDeletes, ChangeFeedStart::After(etag)).0, [""; 0]);
    // P-74: what is older than the retention is forgotten.
    world.pass(300);
    world.create("j", "").unwrap();
    world.purge();
    let refused =
        world.change_feed(ChangeFeedMode::AllVersionsAndDeletes, ChangeFeedStart::After(start), None);
    assert_eq!(status(&refused), 400);
    let (events, _) =
        world.changes(ChangeFeedMode::AllVersionsAndDeletes, ChangeFeedStart::After("\"3\"".into()));
    assert_eq!(events.len(), 1);
    world.check();
}

// P-78, P-79, P-82, P-84
#[test]
fn every_answer_says_its_charge_and_the_number_of_its_transaction_which_only_rises() {
    let mut world = World::with("");
    let mut last = 0;
    for round in 0..5 {
        let reply = world.reply(Command::UpsertItem(World::write("i", &format!("\"n\":{round}")))).unwrap();
        let place = reply.place.unwrap();
        assert_eq!((place.lsn, place.item_lsn), (last + 1, Some(last + 1)));
        assert!(reply.charge > 0);
        assert_eq!(place.item_count, 1);
        last = place.lsn;
        let reply = world
            .reply(Command::ReadItem { item: item("i"), if_none_match: None, session: Some(last) })
            .unwrap();
        assert_eq!((reply.charge, reply.place.as_ref().unwrap().lsn), (100, last));
        assert_eq!(reply.place.unwrap().item_bytes, world.read("i").unwrap().body.len() as u64);
    }
    world.delete("i").unwrap();
    assert_eq!(world.lsn(), last + 1);
    // A restart does not take it back.
    world.inner.account = Account::load(&world.inner.store).unwrap();
    assert_eq!(world.lsn(), last + 1);
}

// C-35, indexing: a changed policy builds another index in the background
#[test]
fn a_changed_indexing_policy_is_carried_out_by_the_purge() {
    let mut world = World::with("");
    for number in 0..limits::INDEX_BUILD_ITEMS + 50 {
        world.create(&format!("i{number}"), &format!("\"a\":{number},\"b\":[1,2]")).unwrap();
    }
    world.check();
    world
        .replace_container(
            r#""indexingPolicy":{"includedPaths":[{"path":"/a/?"}],"excludedPaths":[{"path":"/*"}]}"#,
        )
        .unwrap();
    world.check();
    world.upsert("i3", "\"a\":-3").unwrap();
    world.delete("i4").unwrap();
    world.check();
    world.purge();
    world.check();
    world.replace_container(r#""indexingPolicy":{"indexingMode":"none"}"#).unwrap();
    world.upsert("i3", "\"a\":-4").unwrap();
    world.purge();
    world.check();
    let entries = world
        .inner
        .store
        .entries
        .keys()
        .filter(|key| key.first() == Some(&0x10) && key.get(5) == Some(&6))
        .count();
    assert_eq!(entries, 0);
}

/// Ids that are given in another order than their partitions and ids have.
fn shuffled(count: u64) -> impl Iterator<Item = String> {
    (0..count).map(|nth| format!("{:04}", nth.wrapping_mul(7_919) % 10_007))
}

fn pages_of(world: &mut World, scope: &Scope, max_items: i64) -> Vec<String> {
    let (mut found, mut continuation) = (Vec::new(), None);
    loop {
        let listing = Listing { max_items: Some(max_items), continuation };
        let command = Command::ReadFeed { container: path(), scope: scope.clone(), listing, session: None };
        let Answer::Page(page) = world.ask(command).unwrap() else { panic!() };
        found.extend(page.values.iter().map(|value| id_of(value)));
        continuation = page.continuation;
        if continuation.is_none() {
            return found;
        }
    }
}

fn queried(world: &mut World, scope: &Scope, text: &str, max_items: i64) -> Vec<String> {
    let (mut found, mut continuation) = (Vec::new(), None);
    loop {
        let query = Query {
            of: QueryScope::Items { container: path() },
            scope: scope.clone(),
            text: text.to_owned(),
            parameters: Vec::new(),
            listing: Listing { max_items: Some(max_items), continuation },
            session: None,
        };
        let Answer::Page(page) = world.ask(Command::Query(query)).unwrap() else { panic!() };
        found.extend(page.values.iter().map(|value| id_of(value)));
        continuation = page.continuation;
        if continuation.is_none() {
            return found;
        }
    }
}

// CX-6.6: few items, and more than are put in order for each page.
#[test]
fn items_of_which_nobody_asked_for_an_order_come_as_they_were_made() {
    for count in [40, limits::MADE_SORTED as u64 + 100] {
        let mut world = World::with("\"defaultTtl\":-1");
        let mut ids: Vec<String> = shuffled(count).collect();
        for id in &ids {
            world.create(id, "\"n\":1").unwrap();
        }
        // Replaced, it stays where it is; made anew, it comes last. What is gone is not there.
        world.upsert(&ids[3], "\"n\":2").unwrap();
        let again = ids.remove(5);
        world.delete(&again).unwrap();
        world.create(&again, "\"n\":1").unwrap();
        ids.push(again);
        world.upsert(&ids.remove(7), "\"ttl\":1").unwrap();
        world.pass(1);
        for scope in [Scope::All, Scope::Key(key("p"))] {
            for max_items in [7, 1_000] {
                assert_eq!(pages_of(&mut world, &scope, max_items), ids, "{scope:?}");
                assert_eq!(queried(&mut world, &scope, "SELECT * FROM c", max_items), ids, "{scope:?}");
            }
        }
        if count < limits::MADE_SORTED as u64 {
            let without_third: Vec<String> = ids.iter().filter(|id| **id != ids[3]).cloned().collect();
            for text in ["SELECT * FROM c WHERE c.n = 1", "SELECT * FROM c WHERE c.n + 1 = 2"] {
                assert_eq!(queried(&mut world, &Scope::All, text, 7), without_third, "{text}");
            }
            assert_eq!(queried(&mut world, &Scope::All, "SELECT TOP 3 * FROM c", 2), ids[..3]);
            assert_eq!(queried(&mut world, &Scope::All, "SELECT * FROM c OFFSET 2 LIMIT 4", 3), ids[2..6]);
        }
    }
}

// P-53
#[test]
fn a_feed_goes_on_when_there_are_suddenly_many_items_or_few() {
    let mut world = World::with("");
    let many: Vec<String> = shuffled(limits::MADE_SORTED as u64 + 50).collect();
    let (first, later) = many.split_at(30);
    first.iter().for_each(|id| drop(world.create(id, "").unwrap()));
    let feed = |world: &mut World, continuation| {
        let listing = Listing { max_items: Some(20), continuation };
        let command = Command::ReadFeed { container: path(), scope: Scope::All, listing, session: None };
        let Answer::Page(page) = world.ask(command).unwrap() else { panic!() };
        (page.values.iter().map(|value| id_of(value)).collect::<Vec<_>>(), page.continuation)
    };
    let (page, token) = feed(&mut world, None);
    assert_eq!(page, first[..20]);
    later.iter().for_each(|id| drop(world.create(id, "").unwrap()));
    let (page, token) = feed(&mut world, token);
    assert_eq!(page, many[20..40]);
    many[60..].iter().for_each(|id| drop(world.delete(id).unwrap()));
    let (page, token) = feed(&mut world, token);
    assert_eq!((page, token), (many[40..60].to_vec(), None));
}
