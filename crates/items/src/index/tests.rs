//! Plans against a naive filter: whatever is asked of an indexed path, the plan gives every item that passes and, where an index serves,
//! few others.

use super::plan::{self, Access, Plan};
use super::source::PlanSource;
use crate::item::scope::Scope;
use crate::json::{self, Value};
use crate::keys::{self, Section};
use crate::query::{Candidate, Conjunct, Path, SortPath, Source, Step, Test, Wants};
use crate::view::{Direction, Entries, Memory, Unreadable, View};
use crate::{Answer, Budget, Command, ContainerPath, InMemory, ItemWrite, Listing, PartitionKey};
use crate::{Query, QueryScope, Time, limits, order};
use bytes::Bytes;
use proptest::prelude::*;
use std::cell::Cell;

fn world(policy: &str, items: &[String]) -> InMemory {
    keyed(r#"{"paths":["/pk"],"version":2}"#, policy, items)
}

fn keyed(key: &str, policy: &str, items: &[String]) -> InMemory {
    let mut world = InMemory { now: Time(1_700_000_000_000), ..InMemory::default() };
    world.ask(&Command::CreateDatabase { body: r#"{"id":"d"}"#.into(), throughput: None }).unwrap();
    let body = format!(r#"{{"id":"c","partitionKey":{key},"indexingPolicy":{policy}}}"#);
    world
        .ask(&Command::CreateContainer { database: "d".into(), body: body.into(), throughput: None })
        .unwrap();
    for body in items {
        write(&mut world, body);
    }
    world
}

fn write(world: &mut InMemory, body: &str) {
    world.now = world.now.after_ms(1_000);
    let container = ContainerPath::new("d", "c");
    let write = ItemWrite { container, body: body.to_owned().into(), ..ItemWrite::default() };
    world.ask(&Command::UpsertItem(write)).unwrap();
}

fn member(name: &str) -> Path {
    vec![Step::Member(name.to_owned())]
}

fn wants(conjuncts: Vec<Conjunct>) -> Wants {
    let is_filtered = !conjuncts.is_empty();
    let wants = Wants { reads_items: true, conjuncts, is_filtered, ..Wants::default() };
    Wants { streams: true, streams_in_order: true, ..wants }
}

fn choose(world: &InMemory, wants: &Wants, resume: Option<&Bytes>) -> Plan {
    let container = world.account.definitions.containers.values().next().unwrap();
    let start = resume.map(|resume| crate::read::position::start(resume));
    plan::choose(container, &world.store, wants, Scope::all(), start).unwrap()
}

/// Every candidate in order, and how many keys were looked at. `page` candidates are taken at a time.
fn run(world: &InMemory, wants: &Wants, page: usize) -> (Vec<Candidate>, u64) {
    let container = world.account.definitions.containers.values().next().unwrap();
    let mut found: Vec<Candidate> = Vec::new();
    let mut steps = 0;
    let mut resume: Option<Bytes> = None;
    loop {
        let plan = choose(world, wants, resume.as_ref());
        let mut source = PlanSource::open(container, &world.store, world.now, plan, resume.as_ref()).unwrap();
        let mut taken = 0;
        resume = None;
        while let Some(candidate) = source.next().unwrap() {
            if taken == page {
                resume = Some(candidate.position);
                break;
            }
            taken += 1;
            found.push(candidate);
        }
        steps += source.steps;
        if resume.is_none() {
            return (found, steps);
        }
    }
}

fn ids(candidates: &[Candidate]) -> Vec<String> {
    let id = |body: &[u8]| json::walk::string(json::walk::member(body, "id").unwrap()).unwrap().into_owned();
    candidates.iter().map(|candidate| id(&candidate.body)).collect()
}

fn hundred() -> InMemory {
    let items: Vec<String> = (0..100)
        .map(|n| {
            format!(
                r#"{{"id":"i{n}","pk":"p{}","n":{n},"s":"text {n}","deep":{{"x":{}}},"list":[{},"all"]}}"#,
                n % 5,
                n % 10,
                n % 20
            )
        })
        .collect();
    world("{}", &items)
}

fn used(world: &InMemory, wants: &Wants) -> (usize, u64) {
    let (found, steps) = run(world, wants, usize::MAX);
    (found.len(), steps)
}

#[test]
fn equality_range_prefix_and_in_read_only_what_matches() {
    let world = hundred();
    let number = |n: i64| Value::integer(n);
    let deep = vec![Step::Member("deep".into()), Step::Member("x".into())];
    for (path, test, expected) in [
        (member("n"), Test::Equal(number(7)), 1),
        (member("n"), Test::Equal(Value::double(7.0)), 1),
        (member("n"), Test::Equal(Value::text("7")), 0),
        (member("n"), Test::In(vec![number(1), number(1), number(5), number(500)]), 2),
        (member("n"), Test::Range { low: Some((number(10), true)), high: Some((number(19), true)) }, 10),
        (member("n"), Test::Range { low: Some((number(10), false)), high: Some((number(19), false)) }, 8),
        (member("n"), Test::Range { low: Some((number(95), false)), high: None }, 4),
        (member("n"), Test::Range { low: None, high: Some((number(3), false)) }, 3),
        (member("s"), Test::StartsWith("text 4".into()), 11),
        (member("s"), Test::Range { low: Some((Value::text("text 98"), true)), high: None }, 2),
        (deep, Test::Equal(number(3)), 10),
        (member("list"), Test::ArrayContains(number(3)), 5),
        (member("id"), Test::Equal(Value::text("i42")), 1),
    ] {
        let wants = wants(vec![Conjunct { path: path.clone(), test: test.clone() }]);
        assert_eq!(used(&world, &wants), (expected, expected as u64), "{path:?} {test:?}");
        assert!(choose(&world, &wants, None).index_path().is_some());
    }
    // What no index serves reads everything.
    for test in [Test::IsDefined, Test::Equal(Value::Array(vec![]))] {
        assert_eq!(used(&world, &wants(vec![Conjunct { path: member("n"), test }])), (100, 100));
    }
    assert_eq!(used(&world, &wants(vec![])), (100, 100));
    assert_eq!(used(&world, &Wants::default()), (0, 0), "a query without FROM reads nothing");
}

#[test]
fn the_partition_key_and_the_id_lead_to_places() {
    let world = hundred();
    let equal =
        |name: &str, value: &str| Conjunct { path: member(name), test: Test::Equal(Value::text(value)) };
    let some_in = |name: &str, values: &[&str]| Conjunct {
        path: member(name),
        test: Test::In(values.iter().map(|value| Value::text(*value)).collect()),
    };
    assert_eq!(used(&world, &wants(vec![equal("pk", "p1")])), (20, 20));
    assert_eq!(used(&world, &wants(vec![equal("pk", "p1"), equal("id", "i6")])), (1, 1));
    assert_eq!(used(&world, &wants(vec![equal("pk", "p1"), some_in("id", &["i6", "i11", "i7"])])), (2, 2));
    assert_eq!(used(&world, &wants(vec![some_in("pk", &["p1", "p2", "none"])])), (40, 40));
    // Entries of one value within one partition are a range.
    let both = vec![
        equal("pk", "p1"),
        Conjunct { path: member("list"), test: Test::ArrayContains(Value::text("all")) },
    ];
    assert_eq!(used(&world, &wants(both)), (20, 20));
    let one = vec![
        equal("pk", "p1"),
        Conjunct { path: member("list"), test: Test::ArrayContains(Value::integer(6)) },
    ];
    assert_eq!(used(&world, &wants(one)), (5, 5));
}

fn in_texts(name: &str, texts: impl Iterator<Item = String>) -> Conjunct {
    Conjunct { path: member(name), test: Test::In(texts.map(|text| Value::text(&text)).collect()) }
}

fn named(world: &InMemory, wants: &Wants) -> usize {
    match choose(world, wants, None).access {
        Access::Items(ranges) => ranges.len(),
        other => panic!("{other:?}"),
    }
}

// P-62
#[test]
fn a_key_that_holds_the_id_names_one_item_for_each_id() {
    let items: Vec<String> = (0..20).map(|n| format!(r#"{{"id":"i{n}","t":"t{}"}}"#, n % 2)).collect();
    let all = || (0..limits::PLAN_RANGES).map(|n| format!("i{n}"));
    let plain = keyed(r#"{"paths":["/id"],"version":2}"#, "{}", &items);
    let by_id = wants(vec![in_texts("id", all())]);
    assert_eq!((named(&plain, &by_id), run(&plain, &by_id, 7).0.len()), (limits::PLAN_RANGES, 20));
    let levels = keyed(r#"{"paths":["/t","/id"],"kind":"MultiHash","version":2}"#, "{}", &items);
    let three = || ["i1", "i2", "i3"].map(str::to_owned).into_iter();
    let both =
        wants(vec![in_texts("t", ["t0", "t1"].map(str::to_owned).into_iter()), in_texts("id", three())]);
    assert_eq!((named(&levels, &both), run(&levels, &both, 1).0.len()), (6, 3));
}

// P-62
#[test]
fn keys_and_ids_are_named_one_by_one_up_to_a_limit() {
    let world = hundred();
    let keys = |count: usize| in_texts("pk", (0..count).map(|n| format!("p{n}")));
    let of = |keys_count: usize, ids: usize| {
        wants(vec![keys(keys_count), in_texts("id", (0..ids).map(|n| format!("i{n}")))])
    };
    let most = of(100, limits::PLAN_POINTS / 100);
    assert_eq!((named(&world, &most), run(&world, &most, 9).0.len()), (limits::PLAN_POINTS, 100));
    let over = of(100, limits::PLAN_POINTS / 100 + 1);
    assert_eq!(run(&world, &over, 9).0.len(), 100);
    if let Access::Items(ranges) | Access::Index { ranges, .. } = choose(&world, &over, None).access {
        assert!(ranges.len() <= limits::PLAN_RANGES, "{}", ranges.len());
    }
}

#[test]
fn the_smaller_of_two_indexes_is_taken() {
    let world = hundred();
    let tests = |first: i64, second: i64| {
        vec![
            Conjunct {
                path: vec![Step::Member("deep".into()), Step::Member("x".into())],
                test: Test::Equal(Value::integer(first)),
            },
            Conjunct { path: member("n"), test: Test::Equal(Value::integer(second)) },
        ]
    };
    assert_eq!(choose(&world, &wants(tests(3, 13)), None).index_path().as_deref(), Some("/n/?"));
    assert_eq!(choose(&world, &wants(tests(99, 13)), None).index_path().as_deref(), Some("/deep/x/?"));
}

#[test]
fn an_index_that_is_excluded_or_being_built_is_not_used() {
    let mut world = hundred();
    let wanted = wants(vec![Conjunct { path: member("n"), test: Test::Equal(Value::integer(7)) }]);
    let body =
        r#"{"id":"c","indexingPolicy":{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/s/?"}]}}"#;
    let replace = Command::ReplaceContainer {
        container: ContainerPath::new("d", "c"),
        body: body.into(),
        if_match: None,
    };
    world.ask(&replace).unwrap();
    assert_eq!(used(&world, &wanted), (100, 100));
    world.purge(100);
    assert_eq!(used(&world, &wanted), (1, 1));
    let excluded = wants(vec![Conjunct { path: member("s"), test: Test::Equal(Value::text("text 1")) }]);
    assert_eq!(used(&world, &excluded), (100, 100));
}

#[test]
fn order_comes_from_an_index_that_a_test_bounds() {
    let items: Vec<String> =
        (0..500).map(|n| format!(r#"{{"id":"i{n}","pk":"p{}","n":{}}}"#, n % 5, (n * 7) % 500)).collect();
    let world = world("{}", &items);
    for is_descending in [false, true] {
        let mut wanted = wants(vec![Conjunct {
            path: member("n"),
            test: Test::Range { low: Some((Value::integer(10), true)), high: None },
        }]);
        wanted.order = vec![SortPath { path: member("n"), is_descending }];
        let plan = choose(&world, &wanted, None);
        assert!(plan.is_ordered);
        assert_eq!(plan.direction == Direction::Descending, is_descending);
        for page in [usize::MAX, 7] {
            let (found, _) = run(&world, &wanted, page);
            let values: Vec<i64> = found
                .iter()
                .map(|one| {
                    json::walk::number(json::walk::member(&one.body, "n").unwrap()).unwrap().as_i64().unwrap()
                })
                .collect();
            let mut expected: Vec<i64> = (10..500).collect();
            if is_descending {
                expected.reverse();
            }
            assert_eq!(values, expected);
        }
    }
}

#[test]
fn long_texts_come_in_their_whole_order_though_the_index_cuts_them() {
    let long = "x".repeat(limits::INDEX_TEXT_BYTES);
    let items: Vec<String> = (0..40)
        .map(|n| format!(r#"{{"id":"i{n}","pk":"p{}","s":"{long}{:03}"}}"#, n % 3, (n * 17) % 40))
        .collect();
    let world = world("{}", &items);
    for is_descending in [false, true] {
        let mut wanted = wants(vec![Conjunct { path: member("s"), test: Test::StartsWith("x".into()) }]);
        wanted.order = vec![SortPath { path: member("s"), is_descending }];
        for page in [usize::MAX, 6] {
            let (found, _) = run(&world, &wanted, page);
            let mut values: Vec<String> = found
                .iter()
                .map(|one| {
                    json::walk::string(json::walk::member(&one.body, "s").unwrap()).unwrap().into_owned()
                })
                .collect();
            assert_eq!(values.len(), 40);
            if is_descending {
                values.reverse();
            }
            assert!(values.is_sorted());
        }
    }
}

#[test]
fn time_stamps_are_found_in_the_order_of_changes() {
    let world = hundred();
    let first = 1_700_000_001;
    let range = |low: i64, high: i64| Test::Range {
        low: Some((Value::integer(low), true)),
        high: Some((Value::integer(high), true)),
    };
    for is_descending in [false, true] {
        let mut wanted = wants(vec![Conjunct { path: member("_ts"), test: range(first + 10, first + 19) }]);
        wanted.order = vec![SortPath { path: member("_ts"), is_descending }];
        let container = world.account.definitions.containers.values().next().unwrap();
        let access = Access::Changes { from: Some(first + 10), to: Some(first + 19) };
        let direction = if is_descending { Direction::Descending } else { Direction::Ascending };
        let plan = Plan { access, scope: Scope::all(), is_ordered: true, direction, is_by_making: false };
        let mut expected: Vec<String> = (10..20).map(|n| format!("i{n}")).collect();
        if is_descending {
            expected.reverse();
        }
        // From the beginning, and from each position on.
        let mut source = PlanSource::open(container, &world.store, world.now, plan.clone(), None).unwrap();
        let mut all = Vec::new();
        while let Some(candidate) = source.next().unwrap() {
            all.push(candidate);
        }
        assert_eq!(ids(&all), expected);
        assert_eq!(source.steps, 10);
        for (at, candidate) in all.iter().enumerate() {
            let mut source =
                PlanSource::open(container, &world.store, world.now, plan.clone(), Some(&candidate.position))
                    .unwrap();
            assert_eq!(source.next().unwrap().as_ref(), Some(&all[at]));
        }
    }
}

/// A store that counts what is read of it.
#[derive(Default)]
struct Counting {
    store: Memory,
    looked_up: Cell<u64>,
    passed: Cell<u64>,
}

impl View for Counting {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Unreadable> {
        self.looked_up.set(self.looked_up.get() + 1);
        self.store.get(key)
    }

    fn scan<'a>(&'a self, from: &[u8], to: &[u8], direction: Direction) -> Entries<'a> {
        let entries = self.store.scan(from, to, direction);
        Box::new(entries.inspect(|_| self.passed.set(self.passed.get() + 1)))
    }
}

/// Rows of a query, and how many keys were looked up one by one, and passed in scans.
fn asked(world: &InMemory, text: &str) -> (usize, u64, u64) {
    let view = Counting { store: world.store.clone(), ..Counting::default() };
    let query = Query {
        of: QueryScope::Items { container: ContainerPath::new("d", "c") },
        scope: crate::Scope::All,
        text: text.to_owned(),
        parameters: Vec::new(),
        listing: Listing { max_items: Some(-1), ..Listing::default() },
        session: None,
    };
    let reply = world.account.read(&Command::Query(query), &view, world.now, &mut Budget::default()).unwrap();
    let Answer::Page(page) = reply.answer else { panic!("{:?}", reply.answer) };
    assert_eq!(page.continuation, None);
    (page.values.len(), view.looked_up.get(), view.passed.get())
}

#[test]
fn a_range_with_two_bounds_reads_what_lies_between_them_however_many_lie_beyond() {
    let of = |count: i64| {
        let items: Vec<String> = (0..count)
            .map(|n| format!(r#"{{"id":"i{n}","pk":"p{}","n":{n},"s":"t{n:05}","list":[1,9]}}"#, n % 5))
            .collect();
        world("{}", &items)
    };
    let (few, many) = (of(600), of(2_400));
    for (filter, rows) in [
        ("c.n >= 300 AND c.n < 315", 15),
        ("c.n < 315 AND 300 <= c.n", 15),
        ("c.n > 299 AND c.n >= 10 AND c.n < 315 AND c.n <= 315", 15),
        ("c.n >= 300 AND c.s != '' AND c.n <= 300", 1),
        ("c.s > 't00299' AND c.s < 't00315'", 15),
        ("c.n > 315 AND c.n < 300", 0),
        ("c.n > 'a' AND c.n < 300", 0),
    ] {
        let text = format!("SELECT VALUE c.id FROM c WHERE {filter}");
        let (found, looked_up, passed) = asked(&few, &text);
        assert_eq!(found, rows, "{filter}");
        assert_eq!(asked(&many, &text), (found, looked_up, passed), "{filter}: more items, no more reading");
        // Each row's index entry is passed to count it and to read it; other plans are counted up to their limit.
        assert!(looked_up <= rows as u64 + 4, "{filter}: {looked_up} keys looked up");
        assert!(passed <= 2 * rows as u64 + 4 * limits::PLAN_KEYS as u64, "{filter}: {passed} keys passed");
    }
    // Below an array the bounds may hold for different elements.
    let text = "SELECT VALUE c.id FROM c JOIN a IN c.list JOIN b IN c.list WHERE a > 8 AND b < 2 AND c.n < 3";
    assert_eq!(asked(&few, text).0, 3);
}

// P-62
#[test]
fn pairs_of_an_id_and_a_key_are_read_and_little_else() {
    let of = |count: usize| {
        let items: Vec<String> =
            (0..count).map(|n| format!(r#"{{"id":"i{n}","pk":"p{}","n":{n}}}"#, n % 5)).collect();
        world("{}", &items)
    };
    let (few, many) = (of(1_500), of(3_000));
    let pair = |n: usize, key: usize| format!("(c.id = 'i{n}' AND c.pk = 'p{key}')");
    let pairs: Vec<String> = (100..140).map(|n| pair(n, n % 5)).collect();
    for (filter, rows) in [
        (pairs.join(" OR "), 40),
        (format!("{} OR {}", pair(3, 3), pair(4, 3)), 1),
        (format!("{} OR (c.pk IN ('p1', 'p2') AND c.id = 'i7')", pair(3, 3)), 2),
        (format!("{} OR c.id = 'i4'", pair(3, 3)), 2),
        (format!("({} OR {}) AND c.n < 4", pair(3, 3), pair(4, 4)), 1),
        ("c.pk = 'p1' AND c.n = 1 OR c.pk = 'p1' AND c.n = 6 OR c.pk = 'p2' AND c.n = 7".to_owned(), 3),
    ] {
        let text = format!("SELECT VALUE c.id FROM c WHERE {filter}");
        let (found, looked_up, passed) = asked(&few, &text);
        assert_eq!(found, rows, "{filter}");
        assert_eq!(asked(&many, &text), (found, looked_up, passed), "{filter}: more items, no more reading");
        assert!(
            looked_up + passed <= 400 + 4 * limits::PLAN_KEYS as u64,
            "{filter}: {looked_up} and {passed}"
        );
    }
    assert_eq!(
        asked(&few, "SELECT VALUE c.id FROM c WHERE c.id = 'i3' OR c.n = 4").0,
        2,
        "no path decides both"
    );
}

#[test]
fn an_index_that_leads_to_most_items_is_left_for_the_scan() {
    let items: Vec<String> =
        (0..2_000).map(|n| format!(r#"{{"id":"i{n}","pk":"p{}","n":{n}}}"#, n % 50)).collect();
    let world = world("{}", &items);
    let (rows, looked_up, passed) = asked(&world, "SELECT VALUE COUNT(1) FROM c WHERE c.n >= 100");
    assert_eq!(rows, 1);
    assert!(looked_up < 10 && passed < 3_000, "{looked_up} keys looked up, {passed} passed");
    let (rows, looked_up, passed) = asked(&world, "SELECT VALUE COUNT(1) FROM c WHERE c.n >= 1700");
    assert_eq!(rows, 1);
    assert!((300..310).contains(&looked_up) && passed < 1_500, "{looked_up} keys looked up, {passed} passed");
    // In order an index is worth more: a page ends where it is full.
    let ordered = wants(vec![Conjunct {
        path: member("n"),
        test: Test::Range { low: Some((Value::integer(100), true)), high: None },
    }]);
    let ordered = Wants { order: vec![SortPath { path: member("n"), is_descending: false }], ..ordered };
    assert!(choose(&world, &ordered, None).is_ordered);
}

/// A value that items have and queries ask for.
fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-3..4_i64).prop_map(Value::integer),
        prop_oneof![Just(0.5), Just(-0.0), Just(1e300), Just(-2.5)].prop_map(Value::double),
        prop_oneof![Just(""), Just("a"), Just("ab"), Just("b\0c"), Just("é")].prop_map(Value::text),
        (250..262_usize, "[xy]{0,2}").prop_map(|(count, end)| Value::text("x".repeat(count) + &end)),
    ]
}

fn test() -> impl Strategy<Value = Test> {
    prop_oneof![
        value().prop_map(Test::Equal),
        proptest::collection::vec(value(), 1..4).prop_map(Test::In),
        (value(), any::<bool>())
            .prop_map(|(low, included)| Test::Range { low: Some((low, included)), high: None }),
        (value(), any::<bool>())
            .prop_map(|(high, included)| Test::Range { low: None, high: Some((high, included)) }),
        prop_oneof![Just(""), Just("a"), Just("x")].prop_map(|text| Test::StartsWith(text.to_owned())),
        (255..260_usize).prop_map(|count| Test::StartsWith("x".repeat(count))),
    ]
}

fn passes(value: &Value, test: &Test) -> bool {
    let same_type = |other: &Value| std::mem::discriminant(value) == std::mem::discriminant(other);
    match test {
        Test::Equal(wanted) => json::equal(value, wanted),
        Test::In(wanted) => wanted.iter().any(|wanted| json::equal(value, wanted)),
        Test::Range { low, high } => {
            let order = |bound: &Value| json::compare(value, bound);
            low.as_ref().is_none_or(|(bound, included)| {
                same_type(bound) && (order(bound).is_gt() || (*included && order(bound).is_eq()))
            }) && high.as_ref().is_none_or(|(bound, included)| {
                same_type(bound) && (order(bound).is_lt() || (*included && order(bound).is_eq()))
            })
        }
        Test::StartsWith(begin) => value.as_str().is_some_and(|text| text.starts_with(begin)),
        Test::IsDefined | Test::ArrayContains(_) => true,
    }
}

/// A text of an item: these members, apart in one of a few ways, before or behind the ones that every item has.
fn text_of(members: &[(usize, usize)], gap: &str, is_id_last: bool) -> String {
    const NAMES: [&str; 5] = ["a", "ab", "b", "\\u0061b", "c"];
    const VALUES: [&str; 9] =
        ["1", "12", "1.5", "\"1\"", "\"\"", "null", "[1,12]", "{\"a\":1,\"b\":[{}]}", "\"1\\\"\""];
    let own =
        members.iter().map(|(name, value)| format!("\"{}\"{gap}:{gap}{}", NAMES[*name], VALUES[*value]));
    let own: Vec<String> = own.collect();
    let fixed = ["\"id\":\"1\"".to_owned(), "\"pk\":\"p\"".to_owned()];
    let all = if is_id_last { [&own[..], &fixed].concat() } else { [&fixed, &own[..]].concat() };
    format!("{{{gap}{}{gap}}}", all.join(&format!("{gap},{gap}")))
}

fn index_keys(world: &InMemory) -> Vec<Bytes> {
    let container = world.account.definitions.containers.values().next().unwrap();
    let from = keys::section(container.number, Section::Index);
    let to = order::end_of_prefix(&from);
    world.store.scan(&from, &to, Direction::Ascending).map(|entry| entry.unwrap().0).collect()
}

proptest! {
    #[test]
    fn an_item_that_was_replaced_has_the_entries_of_its_newest_text_and_no_others(
        texts in proptest::collection::vec(
            (proptest::collection::vec((0..5_usize, 0..9_usize), 0..6), 0..2_usize, any::<bool>()),
            2..5,
        ),
    ) {
        let text = |(members, gap, is_id_last): &(Vec<(usize, usize)>, usize, bool)| {
            text_of(members, ["", " "][*gap], *is_id_last)
        };
        let texts: Vec<String> = texts.iter().map(text).collect();
        let everything = r#"{"includedPaths":[{"path":"/*"}]}"#;
        for policy in [everything, r#"{"includedPaths":[{"path":"/a/?"},{"path":"/ab/*"}],"excludedPaths":[{"path":"/*"}]}"#] {
            let replaced = world(policy, &texts);
            let fresh = world(policy, &texts[texts.len() - 1..]);
            prop_assert_eq!(index_keys(&replaced), index_keys(&fresh), "{:?}", texts);
        }
    }
}

proptest! {
    #[test]
    fn a_plan_gives_every_item_that_passes_once(
        values in proptest::collection::vec(value(), 1..30),
        test in test(),
        page in 1..8_usize,
        is_descending in any::<bool>(),
        wants_order in any::<bool>(),
    ) {
        let items: Vec<String> = values.iter().enumerate().map(|(n, value)| {
            format!(r#"{{"id":"i{n}","pk":"p{}","v":{}}}"#, n % 3, String::from_utf8(value.to_text()).unwrap())
        }).collect();
        let world = world("{}", &items);
        let mut wanted = wants(vec![Conjunct { path: member("v"), test: test.clone() }]);
        if wants_order {
            wanted.order = vec![SortPath { path: member("v"), is_descending }];
        }
        let (found, _) = run(&world, &wanted, page);
        let of = |candidate: &Candidate| json::parse(json::walk::member(&candidate.body, "v").unwrap()).unwrap();
        let passed: Vec<&Candidate> = found.iter().filter(|candidate| passes(&of(candidate), &test)).collect();
        let mut names = ids(&found);
        names.sort();
        names.dedup();
        prop_assert_eq!(names.len(), found.len(), "each once");
        prop_assert_eq!(passed.len(), values.iter().filter(|value| passes(value, &test)).count());
        if choose(&world, &wanted, None).is_ordered {
            let ordered = found.windows(2).all(|pair| {
                let order = json::compare(&of(&pair[0]), &of(&pair[1]));
                if is_descending { order.is_ge() } else { order.is_le() }
            });
            prop_assert!(ordered);
        }
    }
}

#[test]
fn a_scope_of_one_partition_narrows_every_plan() {
    let world = hundred();
    let container = world.account.definitions.containers.values().next().unwrap();
    let scope = Scope::of(&container.settings, &crate::Scope::Key(PartitionKey::of_string("p1"))).unwrap();
    for (test, expected) in [
        (Test::Equal(Value::integer(6)), 1),
        (Test::Equal(Value::integer(7)), 0),
        (Test::Range { low: Some((Value::integer(0), true)), high: None }, 20),
    ] {
        let wanted = wants(vec![Conjunct { path: member("n"), test }]);
        let plan = plan::choose(container, &world.store, &wanted, scope.clone(), None).unwrap();
        let mut source = PlanSource::open(container, &world.store, world.now, plan, None).unwrap();
        let mut count = 0;
        while source.next().unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, expected);
        assert!(source.steps <= 20);
    }
}
