//! Queries through the account: which items they see, how pages go on, what they read.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

mod world;

use otobus_items::*;
use world::*;

fn query(text: &str, listing: Listing) -> Query {
    let of = QueryScope::Items { container: path() };
    Query { of, scope: Scope::All, text: text.to_owned(), parameters: Vec::new(), listing, session: None }
}

fn page(world: &mut World, query: Query) -> Page {
    match world.ask(Command::Query(query)).unwrap() {
        Answer::Page(page) => page,
        other => panic!("{other:?}"),
    }
}

fn texts(page: &Page) -> Vec<String> {
    page.values.iter().map(|value| String::from_utf8(value.to_vec()).unwrap()).collect()
}

fn definitions(world: &mut World, of: QueryScope, text: &str) -> Vec<String> {
    texts(&page(world, Query { of, ..query(text, Listing::default()) }))
}

// C-33, C-16
#[test]
fn an_expired_item_is_in_no_query_and_no_count() {
    let mut world = World::with("\"defaultTtl\":5");
    world.create("gone", "\"n\":1").unwrap();
    world.create("stays", "\"n\":1,\"ttl\":-1").unwrap();
    world.pass(5);
    for (text, expected) in [
        ("SELECT VALUE COUNT(1) FROM c", "1"),
        ("SELECT VALUE COUNT(1) FROM c WHERE c.n = 1", "1"),
        ("SELECT VALUE c.id FROM c", "\"stays\""),
        ("SELECT VALUE c.id FROM c WHERE c.n > 0", "\"stays\""),
        ("SELECT VALUE c.id FROM c WHERE c.id IN ('gone', 'stays') AND c.pk = 'p'", "\"stays\""),
        ("SELECT VALUE c.id FROM c ORDER BY c._ts DESC", "\"stays\""),
        ("SELECT VALUE SUM(c.n) FROM c", "1"),
    ] {
        assert_eq!(world.query(text).unwrap(), [expected], "{text}");
    }
    assert_eq!(world.stored_items(), 2);
}

// P-55
#[test]
fn a_patch_whose_condition_does_not_hold_changes_nothing() {
    let mut world = World::with("");
    world.create("i", "\"n\":1").unwrap();
    let patch = |condition: &str| {
        format!(r#"{{"operations":[{{"op":"incr","path":"/n","value":1}}],"condition":"{condition}"}}"#)
    };
    assert_eq!(status(&world.patch("i", &patch("from c where c.n = 2"))), 412);
    assert_eq!(status(&world.patch("i", &patch("from c where c.missing = 2"))), 412);
    assert_eq!(status(&world.patch("i", &patch("from c where"))), 400);
    assert_eq!(member(&world.read("i").unwrap(), "n").as_deref(), Some("1"));
    world.patch("i", &patch("from root where root.n = 1 and root._ts > 0")).unwrap();
    assert_eq!(member(&world.read("i").unwrap(), "n").as_deref(), Some("2"));
    let batch =
        format!(r#"[{{"operationType":"Patch","id":"i","resourceBody":{}}}]"#, patch("from c where c.n = 5"));
    assert_eq!(world.batch(&batch).unwrap()[0].status, 412);
}

// CX-5.1.1, P-76, CX-12.1
#[test]
fn definitions_are_queried_the_way_each_client_asks() {
    let mut world = World::new();
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"]}}"#.into();
    let throughput = Some(Throughput::Fixed(400));
    world.ask(Command::CreateContainer { database: "d".into(), body, throughput }).unwrap();
    let container = world.read_container();
    let of =
        |name: &str| json::walk::string(member(&container, name).unwrap().as_bytes()).unwrap().into_owned();
    let (link, rid) = (of("_self"), of("_rid"));
    for text in [
        format!(r#"SELECT VALUE root.content.offerThroughput from root where root.resource = "{link}""#),
        format!("SELECT VALUE c.content.offerThroughput FROM c WHERE c.offerResourceId = '{rid}'"),
    ] {
        assert_eq!(definitions(&mut world, QueryScope::Offers, &text), ["400"], "{text}");
    }
    let mut python = query(
        "SELECT VALUE r.content.offerThroughput FROM root r WHERE r.resource=@link",
        Listing::default(),
    );
    python.of = QueryScope::Offers;
    python.parameters = vec![("@link".into(), format!("\"{link}\"").into())];
    assert_eq!(texts(&page(&mut world, python)), ["400"]);
    assert_eq!(
        definitions(&mut world, QueryScope::Databases, "SELECT VALUE r.id FROM r WHERE r.id = 'd'"),
        ["\"d\""]
    );
    let containers = QueryScope::Containers { database: "d".into() };
    assert_eq!(definitions(&mut world, containers, "SELECT VALUE r.id FROM r"), ["\"c\""]);
}

// CX-5.2.9
#[test]
fn computed_properties_are_usable_and_not_shown() {
    let mut world =
        World::with(r#""computedProperties":[{"name":"low","query":"SELECT VALUE LOWER(c.name) FROM c"}]"#);
    world.create("i", "\"name\":\"ABC\"").unwrap();
    assert_eq!(world.query("SELECT VALUE c.low FROM c WHERE c.low = 'abc'").unwrap(), ["\"abc\""]);
    assert!(!world.query("SELECT * FROM c").unwrap()[0].contains("\"low\""));
    let bad = r#""computedProperties":[{"name":"low","query":"SELECT VALUE FROM"}]"#;
    assert_eq!(status(&world.replace_container(bad)), 400);
    world.check();
}

// CX-13.9
#[test]
fn a_distance_is_measured_as_the_container_says_unless_the_query_does() {
    let mut world = World::with(
        r#""vectorEmbeddingPolicy":{"vectorEmbeddings":[{"path":"/at/v","dataType":"float32","dimensions":2,"distanceFunction":"euclidean"}]}"#,
    );
    for (id, vector) in [("far", "[9,12]"), ("near", "[0,1]"), ("here", "[0,0]")] {
        world.create(id, &format!("\"at\":{{\"v\":{vector}}},\"other\":{vector}")).unwrap();
    }
    let mut rows = |text: &str| world.query(text).unwrap();
    for vectors in
        ["c.at.v, [0,0]", "[0,0], c.at.v", "c.at.v, [0,0], true", "c.at.v, [0,0], false, {'dataType':'int8'}"]
    {
        let text =
            format!("SELECT VALUE VectorDistance({vectors}) FROM c ORDER BY VectorDistance({vectors})");
        assert_eq!(rows(&text), ["0", "1", "15"], "{text}");
    }
    let dot = "VectorDistance(c.at.v, [0,2], false, {'distanceFunction':'dotproduct'})";
    assert_eq!(rows(&format!("SELECT VALUE {dot} FROM c ORDER BY {dot}")), ["24", "2", "0"]);
    assert_eq!(rows("SELECT VALUE VectorDistance(c.other, [0,2]) FROM c WHERE c.id = 'near'"), ["1"]);
}

// P-51, P-52, P-53, P-62
#[test]
fn pages_go_on_across_writes_and_belong_to_their_query() {
    for text in [
        "SELECT VALUE c.id FROM c",
        "SELECT VALUE c.id FROM c WHERE c.n >= 0",
        "SELECT VALUE c.id FROM c WHERE c.n >= 0 ORDER BY c.n",
        "SELECT VALUE c.id FROM c ORDER BY c.n DESC",
        "SELECT VALUE c.id FROM c ORDER BY c._ts",
        "SELECT VALUE c.id FROM c WHERE c.pk = 'p' AND c.id IN ('i1','i2','i3','i4','i5','i6','i7')",
    ] {
        let mut world = World::with("");
        for number in 0..300 {
            world.create(&format!("i{number}"), &format!("\"n\":{}", number * 7 % 300)).unwrap();
            world.pass_ms(400);
        }
        let expected = page(&mut world, query(text, Listing { max_items: Some(1000), continuation: None }));
        assert_eq!(expected.continuation, None);
        let mut found = Vec::new();
        let mut continuation: Option<String> = None;
        loop {
            let next = page(
                &mut world,
                query(text, Listing { max_items: Some(3), continuation: continuation.take() }),
            );
            found.extend(texts(&next));
            continuation = next.continuation;
            let Some(token) = &continuation else { break };
            assert!(token.len() <= limits::CONTINUATION_BYTES);
            if found.len() == 3 {
                // Something new, which sorts behind everything or before: what was there comes once all the same.
                let id = json::walk::string(found[0].as_bytes()).unwrap().into_owned();
                world.delete(&id).unwrap();
                let other = query(
                    "SELECT VALUE c.n FROM c",
                    Listing { max_items: Some(3), continuation: continuation.clone() },
                );
                assert_eq!(status(&world.ask(Command::Query(other))), 400, "of another query");
            }
        }
        assert_eq!(found, texts(&expected), "{text}");
    }
}

// P-52: whatever is long in an item, a token is short, and leads on.
#[test]
fn a_continuation_stays_short_with_the_longest_ids_and_sort_keys() {
    let mut world = World::with("");
    let long = "x".repeat(900);
    for number in 0..6 {
        world.create(&format!("{long}{number}"), &format!("\"n\":\"{long}{}\"", number % 3)).unwrap();
    }
    for text in [
        "SELECT VALUE c.id FROM c",
        "SELECT VALUE c.id FROM c WHERE c.n > 'a'",
        "SELECT VALUE c.id FROM c ORDER BY c.n",
        "SELECT VALUE c.id FROM c ORDER BY c.n DESC, c.id",
        "SELECT VALUE c.id FROM c ORDER BY CONCAT(c.n, c.n)",
    ] {
        let all = page(&mut world, query(text, Listing { max_items: Some(100), continuation: None }));
        let (mut found, mut continuation) = (Vec::new(), None);
        loop {
            let next = page(&mut world, query(text, Listing { max_items: Some(1), continuation }));
            found.extend(texts(&next));
            continuation = next.continuation;
            let Some(token) = &continuation else { break };
            assert!(token.len() <= limits::CONTINUATION_BYTES, "{} for {text}", token.len());
        }
        assert_eq!(found, texts(&all), "{text}");
    }
}

// CX-12.2
#[test]
fn an_explanation_names_the_index_and_metrics_tell_what_was_read() {
    let mut world = World::with("");
    for number in 0..50 {
        world.create(&format!("i{number}"), &format!("\"n\":{number}")).unwrap();
    }
    let asked = query("SELECT * FROM c WHERE c.n = 7", Listing::default());
    let metrics = page(&mut world, asked.clone()).metrics.unwrap();
    assert_eq!((metrics.retrieved_items, metrics.returned_items, metrics.used_index), (1, 1, true));
    let Answer::Explanation(text) = world.ask(Command::Explain(asked)).unwrap() else { panic!() };
    let used = json::parse(&text).unwrap();
    let used = used.get("UtilizedSingleIndexes").unwrap().as_array().unwrap();
    assert_eq!(used[0].get("IndexSpec").unwrap().as_str(), Some("/n/?"));
    let scoped = Query { scope: Scope::Key(key("p")), ..query("SELECT * FROM c", Listing::default()) };
    let Answer::Explanation(text) = world.ask(Command::Explain(scoped)).unwrap() else { panic!() };
    let expected = r#""UtilizedSingleIndexes":[{"FilterExpression":"","IndexSpec":"/pk/?","FilterPreciseSet":true,"IndexPreciseSet":true,"IndexImpactScore":"High"}]"#;
    assert!(String::from_utf8_lossy(&text).contains(expected), "{text:?}");
    let scan =
        page(&mut world, query("SELECT * FROM c WHERE c.n + 1 = 8", Listing::default())).metrics.unwrap();
    assert_eq!((scan.retrieved_items, scan.returned_items, scan.used_index), (50, 1, false));
}

// CX-12.2
#[test]
fn counting_items_retrieves_none_of_them() {
    let mut world = World::with("");
    for number in 0..50 {
        world.create(&format!("i{number}"), &format!("\"n\":{number}")).unwrap();
    }
    let mut read = |text: &str, scope: Scope| {
        let page = page(&mut world, Query { scope, ..query(text, Listing::default()) });
        let metrics = page.metrics.unwrap();
        (texts(&page), metrics.retrieved_items, metrics.retrieved_bytes > 0, metrics.used_index)
    };
    for text in ["SELECT VALUE COUNT(1) FROM c", "SELECT VALUE COUNT(c) FROM c"] {
        for scope in [Scope::All, Scope::Key(key("p"))] {
            assert_eq!(read(text, scope), (vec!["50".to_owned()], 0, false, true), "{text}");
        }
    }
    for text in ["SELECT VALUE COUNT(c.n) FROM c", "SELECT VALUE COUNT(1) FROM c WHERE c.n + 1 > 0"] {
        assert_eq!(read(text, Scope::All), (vec!["50".to_owned()], 50, true, false), "{text}");
    }
}

// P-41, P-66
#[test]
fn a_query_stays_in_its_scope() {
    let mut world = World::with("");
    for number in 0..9 {
        let body = format!(r#"{{"id":"i{number}","pk":"p{}","n":{number}}}"#, number % 3).into();
        world
            .ask(Command::CreateItem(ItemWrite { container: path(), body, ..ItemWrite::default() }))
            .unwrap();
    }
    let in_scope = |scope: Scope, text: &str| Query { scope, ..query(text, Listing::default()) };
    let count = "SELECT VALUE COUNT(1) FROM c";
    assert_eq!(texts(&page(&mut world, in_scope(Scope::Key(key("p1")), count))), ["3"]);
    assert_eq!(
        texts(&page(
            &mut world,
            in_scope(Scope::Key(key("p1")), "SELECT VALUE COUNT(1) FROM c WHERE c.n >= 4")
        )),
        ["2"]
    );
    let epk = effective_key::hex(&[KeyPart::String("p2".into())], effective_key::Hashing::V2);
    let range = KeyRange { end: format!("{epk}FF"), start: epk };
    assert_eq!(texts(&page(&mut world, in_scope(Scope::Range(range), count))), ["3"]);
    assert_eq!(texts(&page(&mut world, in_scope(Scope::All, count))), ["9"]);
}

/// Ids, one letter each, page after page.
fn ranked(world: &mut World, text: &str, max_items: i64) -> String {
    let (mut found, mut continuation) = (String::new(), None);
    loop {
        let next = page(world, query(text, Listing { max_items: Some(max_items), continuation }));
        found.extend(texts(&next).iter().map(|id| id.trim_matches('"').to_owned()));
        continuation = next.continuation;
        if continuation.is_none() {
            return found;
        }
    }
}

// CX-13.9
#[test]
fn words_that_every_text_is_full_of_count_neither_as_hits_nor_as_length() {
    let texts = [
        ("a", r#""text":"The bicycle of the man who was there with them all""#),
        ("b", r#""text":"bicycle repair shop""#),
        ("c", r#""text":"A shop, of 1,977 people""#),
    ];
    let policy = |language: &str| {
        format!(r#""fullTextPolicy":{{"defaultLanguage":"{language}","fullTextPaths":[{{"path":"/text"}}]}}"#)
    };
    for (members, bicycle, of) in [
        ("", "abc", "abc"),
        (policy("en-US").as_str(), "abc", "abc"),
        (policy("1033").as_str(), "abc", "abc"),
        // The words of one language may be names in another.
        (policy("fr-FR").as_str(), "bac", "cab"),
    ] {
        let mut world = World::with(members);
        texts.iter().for_each(|(id, members)| drop(world.create(id, members).unwrap()));
        for (word, expected) in [("bicycle", bicycle), ("of", of), ("1,977", "cab"), ("977", "abc")] {
            let text = format!("SELECT VALUE c.id FROM c ORDER BY RANK FullTextScore(c.text, '{word}')");
            assert_eq!(ranked(&mut world, &text, 100), expected, "{word} {members}");
        }
    }
}

// CX-13.9
#[test]
fn rows_are_ranked_by_words_by_vectors_and_by_both() {
    let mut world = World::with("");
    for (id, members) in [
        ("b", r#""text":"Red bicycle","v":[0.1,1]"#),
        ("a", r#""text":"A red bicycle and a long tale of many other things that nobody reads","v":[0,1]"#),
        ("c", r#""text":"bicycle, bicycle: RED bicycle!","v":[1,0]"#),
        ("d", r#""text":"blue car","v":[1,0.1]"#),
        ("e", r#""n":1"#),
    ] {
        world.create(id, members).unwrap();
    }
    for (text, expected) in [
        (
            "SELECT VALUE c.id FROM c WHERE FullTextContains(c.text, 'bicycle') ORDER BY RANK FullTextScore(c.text, 'bicycle')",
            "cba",
        ),
        ("SELECT TOP 2 VALUE c.id FROM c ORDER BY RANK FullTextScore(c.text, 'bicycle')", "cb"),
        ("SELECT VALUE c.id FROM c ORDER BY RANK FullTextScore(c.text, 'bicycle')", "cbade"),
        ("SELECT VALUE c.id FROM c ORDER BY RANK FullTextScore(c.text, 'nothing')", "bacde"),
        (
            "SELECT VALUE c.id FROM c ORDER BY RANK FullTextScore(c.text, 'red bicycle', 'nothing') OFFSET 1 LIMIT 2",
            "ca",
        ),
        ("SELECT VALUE c.id FROM c ORDER BY RANK FullTextScore(c.text, ['car']) OFFSET 0 LIMIT 1", "d"),
        ("SELECT TOP 4 VALUE c.id FROM c ORDER BY RANK VectorDistance(c.v, [0, 1])", "abdc"),
        (
            "SELECT TOP 1 VALUE c.id FROM c ORDER BY RANK RRF(FullTextScore(c.text, 'bicycle'), VectorDistance(c.v, [0, 1]))",
            "a",
        ),
        (
            "SELECT TOP 1 VALUE c.id FROM c ORDER BY RANK RRF(FullTextScore(c.text, 'bicycle'), VectorDistance(c.v, [0, 1]), [1, 100])",
            "a",
        ),
        (
            "SELECT TOP 1 VALUE c.id FROM c ORDER BY RANK RRF(FullTextScore(c.text, 'bicycle'), VectorDistance(c.v, [0, 1]), [100, 1])",
            "c",
        ),
    ] {
        for max_items in [1, 2, 100] {
            assert_eq!(ranked(&mut world, text, max_items), expected, "{text}");
        }
    }
    for (text, message) in [
        (
            "SELECT * FROM c ORDER BY RANK FullTextScore(c.text, 'x') DESC",
            "Specifying a sort order (ASC or DESC) in the ORDER BY RANK clause",
        ),
        (
            "SELECT * FROM c ORDER BY VectorDistance(c.v, [0, 1]) ASC",
            "Specifying a sorting order (ASC or DESC) with VectorDistance",
        ),
        (
            "SELECT * FROM c ORDER BY RANK RRF(FullTextScore(c.text, 'x'), FullTextScore(c.text, 'y'), [1])",
            "The weights of the RRF function",
        ),
        ("SELECT * FROM c ORDER BY RANK RRF(FullTextScore(c.text, 'x'))", "requires at least 2"),
        ("SELECT * FROM c ORDER BY RANK FullTextScore(c.text, c.n)", "constant words"),
        ("SELECT * FROM c ORDER BY RANK c.n", "must be followed by"),
        ("SELECT FullTextScore(c.text, 'x') FROM c", "not a recognized built-in function"),
        ("SELECT COUNT(1) AS n FROM c ORDER BY RANK FullTextScore(c.text, 'x')", "takes one score"),
    ] {
        let refused = world.query(text).unwrap_err();
        assert_eq!(refused.status(), (400, 0), "{text}");
        assert!(refused.to_string().contains(message), "{refused}");
    }
}

// P7
#[test]
fn of_an_item_with_many_rows_a_query_holds_no_more_than_it_may() {
    let mut world = World::with("");
    let numbers: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
    world.create("i", &format!(r#""x":[{}],"t":"a word""#, numbers.join(","))).unwrap();
    let rows = "FROM c JOIN a IN c.x JOIN b IN c.x";
    let first = world.query(&format!("SELECT TOP 3 VALUE b {rows} ORDER BY c.id")).unwrap();
    assert_eq!(first, ["0", "1", "2"], "a million rows in order, of which three are held");
    let text = format!("SELECT VALUE b {rows} ORDER BY RANK FullTextScore(c.t, 'word')");
    let refused = world.query(&text).unwrap_err();
    assert!(refused.to_string().contains("too much memory"), "{refused}");
}

// CX-12.1
#[test]
fn a_query_without_leave_to_ask_all_partitions_names_one() {
    let mut world = World::with("");
    world.create("i", "\"n\":1").unwrap();
    let mut ask = |text: &str| {
        world.ask(Command::Query(Query { scope: Scope::WithoutLeave, ..query(text, Listing::default()) }))
    };
    for text in
        ["SELECT * FROM c WHERE c.pk = 'p'", "SELECT * FROM c WHERE c.n = 1 AND c.pk IN ('p')", "SELECT 1"]
    {
        let Answer::Page(page) = ask(text).unwrap() else { panic!() };
        assert_eq!(page.values.len(), 1, "{text}");
    }
    for text in [
        "SELECT * FROM c",
        "SELECT * FROM c WHERE c.id = 'i'",
        "SELECT * FROM c WHERE c.pk = 'p' OR c.pk = 'q'",
        "SELECT VALUE COUNT(1) FROM c WHERE c.pk IN ('p', 'q')",
    ] {
        let refused = ask(text).unwrap_err();
        assert_eq!(refused.status(), (400, 0), "{text}");
        assert!(
            refused.to_string().starts_with("Cross partition query is required but disabled"),
            "{refused}"
        );
    }
}

const ALL_BUT_N: &str =
    r#""indexingPolicy":{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/n/?"}]}"#;

fn listing(continuation: Option<String>) -> Listing {
    Listing { max_items: Some(2), continuation }
}

// P-53
#[test]
fn pages_of_a_sorted_query_go_on_when_an_index_is_there_that_was_not() {
    let mut world = World::with(ALL_BUT_N);
    // Several items have the same number: what breaks the tie must be the same for both.
    for nth in 0..8 {
        world.create(&format!("i{nth}"), &format!("\"n\":{}", nth / 3)).unwrap();
    }
    let text = "SELECT VALUE c.id FROM c WHERE c.n >= 0 ORDER BY c.n";
    let expected: Vec<String> = (0..8).map(|nth| format!("\"i{nth}\"")).collect();
    let first = page(&mut world, query(text, listing(None)));
    assert!(!first.metrics.unwrap().used_index);
    world.replace_container("\"indexingPolicy\":{}").unwrap();
    world.purge();
    let (mut found, mut continuation) = (texts(&first), first.continuation);
    while let Some(token) = continuation {
        let next = page(&mut world, query(text, listing(Some(token))));
        assert!(next.metrics.unwrap().used_index);
        found.extend(texts(&next));
        continuation = next.continuation;
    }
    assert_eq!(found, expected);
}

// P-53
#[test]
fn a_continuation_of_an_index_that_is_gone_is_refused_and_not_taken_for_another() {
    let text = "SELECT VALUE c.id FROM c WHERE c.n >= 0 ORDER BY c.n";
    let (mut world, continuation) = first_page_by_an_index(text);
    world.replace_container(ALL_BUT_N).unwrap();
    world.purge();
    assert_eq!(status(&world.ask(Command::Query(query(text, listing(continuation))))), 400);
}

// P-53
#[test]
fn rows_as_their_items_were_made_go_on_without_the_index_that_led_to_them() {
    let text = "SELECT VALUE c.id FROM c WHERE c.n = 1";
    let (mut world, continuation) = first_page_by_an_index(text);
    world.replace_container(ALL_BUT_N).unwrap();
    world.purge();
    let next = page(&mut world, query(text, listing(continuation)));
    assert_eq!(texts(&next), ["\"i21\"", "\"i31\""]);
}

/// The first page of two, and where it goes on.
fn first_page_by_an_index(text: &str) -> (World, Option<String>) {
    let mut world = World::with("");
    (0..300).for_each(|nth| drop(world.create(&format!("i{nth}"), &format!("\"n\":{}", nth % 10)).unwrap()));
    let first = page(&mut world, query(text, listing(None)));
    assert!(first.metrics.unwrap().used_index, "{text}");
    (world, first.continuation)
}
