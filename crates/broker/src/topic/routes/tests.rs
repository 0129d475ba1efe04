//! Rules as those see them who send and receive: what is selected, what it becomes, what fails, and what it costs.

use super::super::fan_out::tests::{counts, numbers, subscribe, topic};
use super::super::filter::{Key, ReadyFilter};
use super::super::rule::{Correlation, Filter, Kind, Rule, Sql, Typed};
use super::super::settings::{SubscriptionSettings, TopicSettings};
use super::super::subject::tests::encoded;
use super::super::subject::{About, Front};
use super::{Place, Route, Routes, Selected, Selection};
use crate::command::ReceiveMode::PeekLock;
use crate::effect::{Answer, Delivery, Effect};
use crate::ids::{EntityId, MessageKey, NamespaceId};
use crate::limits::{MESSAGE_STEPS, RULE_STEPS};
use crate::manage::Task;
use crate::refusal::Refusal;
use crate::settings::QueueSettings;
use crate::testing::{World, message};
use crate::time::Span;
use crate::touched::take_touched;
use crate::{Incoming, Intake};
use message::Value;
use message::overlay::Change;
use std::collections::BTreeMap;

pub(crate) fn sql(expression: &str) -> Filter {
    Filter::Sql(Sql { expression: expression.into(), parameters: Vec::new() })
}

fn color(color: &str) -> Filter {
    let value = Typed { kind: Kind::String, text: color.into() };
    let properties = vec![("color".into(), value)];
    Filter::Correlation(Correlation { properties, ..Correlation::default() })
}

pub(super) fn rule(name: &str, filter: Filter, action: Option<&str>) -> Rule {
    let action = action.map(|text| Sql { expression: text.into(), parameters: Vec::new() });
    Rule { name: name.into(), filter, action }
}

/// A topic `t` with subscriptions, each with the rules that are named.
pub(crate) fn world_of(subscriptions: Vec<(&str, Vec<Rule>)>) -> World {
    let mut world = World::new();
    topic(&mut world, TopicSettings::default());
    for (name, rules) in subscriptions {
        add(&mut world, name, SubscriptionSettings::default(), rules);
    }
    world
}

pub(super) fn add(world: &mut World, name: &str, settings: SubscriptionSettings, rules: Vec<Rule>) {
    let mut rules = rules.into_iter();
    let first = rules.next();
    let (topic, name) = (Box::<str>::from("t"), Box::<str>::from(name));
    let create = Task::CreateSubscription { topic: topic.clone(), name: name.clone(), settings, rule: first };
    world.manage(create).unwrap();
    for rule in rules {
        let (topic, subscription) = (topic.clone(), name.clone());
        world.manage(Task::CreateRule { topic, subscription, rule }).unwrap();
    }
}

fn red_and_blue() -> [Vec<u8>; 2] {
    ["red", "blue"]
        .map(|color| encoded(&[("Label", color)], &[("color", color.into()), ("n", Value::Int(7))]))
}

pub(in super::super) fn publish(world: &mut World, bodies: &[&[u8]]) {
    let link = world.sender("t");
    let effects = world.send_bytes(link, bodies, Incoming::new(Intake::default()));
    assert!(matches!(effects[..], [Effect::Accepted { .. }]), "{effects:?}");
    world.commit();
}

fn received(world: &mut World, name: &str) -> Vec<Delivery> {
    world.receive(&format!("t/Subscriptions/{name}"), PeekLock, 99)
}

fn property(delivery: &Delivery, name: &str) -> Option<Value> {
    match delivery.extra.as_ref()?.overlay.as_ref()?.application(name)? {
        Change::Set(value) => Some(Value::decode(value).unwrap()),
        Change::Removed => Some(Value::Null),
    }
}

#[test]
fn a_subscription_gets_what_its_rules_select() {
    // S-180, S-185, S-187, S-197
    let mut world = world_of(vec![
        ("red", vec![rule("r", color("red"), None)]),
        ("blue", vec![rule("r", sql("sys.Label = 'blue' AND n > 5"), None)]),
        ("both", vec![rule("r", color("red"), None), rule("s", sql("color LIKE 'b%'"), None)]),
        ("all", vec![]),
        ("none", vec![rule("r", sql("color = 'green'"), None)]),
    ]);
    let [red, blue] = red_and_blue();
    publish(&mut world, &[&red, &blue]);
    let found = |world: &mut World, name: &str| {
        received(world, name).iter().map(|each| each.first.unwrap().0).collect::<Vec<_>>()
    };
    assert_eq!(found(&mut world, "red"), [1]);
    assert_eq!(found(&mut world, "blue"), [2]);
    assert_eq!(found(&mut world, "both"), [1, 2]);
    assert_eq!(found(&mut world, "all"), [1, 2]);
    assert_eq!(found(&mut world, "none"), [0; 0]);
}

#[test]
fn each_action_makes_a_copy_of_its_own_and_all_other_rules_one_together() {
    // S-182: five rules select, two of them have actions.
    let mut world = world_of(vec![(
        "a",
        vec![
            rule("1", Filter::True, None),
            rule("2", color("red"), Some("SET color = 'pink'")),
            rule("3", sql("n = 7"), None),
            rule("4", sql("1=1"), Some("REMOVE n; SET sys.Label = 'x'")),
            rule("5", color("red"), None),
            rule("6", color("blue"), Some("SET n = 1")),
        ],
    )]);
    publish(&mut world, &[&red_and_blue()[0]]);
    let copies = received(&mut world, "a");
    assert_eq!(numbers(&copies), [1, 2, 3]);
    let names: Vec<_> = copies.iter().map(|each| property(each, "RuleName")).collect();
    assert_eq!(names, [None, Some("2".into()), Some("4".into())]);
    assert_eq!(property(&copies[1], "color"), Some("pink".into()));
    assert_eq!(property(&copies[2], "n"), Some(Value::Null));
    assert!(copies.iter().all(|each| each.first.unwrap().0 == 1 && each.body == copies[0].body));
    world.restart();
    assert_eq!(received(&mut world, "a"), {
        let mut again = copies;
        for (at, each) in again.iter_mut().enumerate() {
            (each.token, each.locked_until) = world_lock(&world, at as u64 + 1);
        }
        again
    });
}

fn world_lock(world: &World, sequence: u64) -> (crate::LockToken, Option<crate::LocalTime>) {
    let source = crate::Source::main(crate::EntityId(1));
    let lock = world.broker.volatile.ready(source).locks[&crate::Sequence(sequence)];
    (lock.token, Some(lock.until))
}

#[test]
fn a_rule_that_changes_counts_from_the_next_message_on() {
    // S-183
    let mut world = world_of(vec![("a", vec![rule("r", color("red"), None)])]);
    let [red, blue] = red_and_blue();
    publish(&mut world, &[&red, &blue]);
    let (topic, subscription) = ("t".into(), "a".into());
    world.manage(Task::UpdateRule { topic, subscription, rule: rule("r", color("blue"), None) }).unwrap();
    publish(&mut world, &[&red, &blue]);
    let first: Vec<_> = received(&mut world, "a").iter().map(|each| each.first.unwrap().0).collect();
    assert_eq!(first, [1, 4]);
}

#[test]
fn a_filter_that_fails_dead_letters_its_copy_with_the_reason_or_drops_it() {
    // S-110, S-200
    let mut world = world_of(vec![("well", vec![]), ("bad", vec![rule("r", sql("n / 0 = 1"), None)])]);
    let quiet =
        SubscriptionSettings { dead_letter_on_filter_exceptions: false, ..SubscriptionSettings::default() };
    add(&mut world, "quiet", quiet, vec![rule("r", sql("n / 0 = 1"), None), rule("s", Filter::True, None)]);
    let action = rule("s", Filter::True, Some("SET sys.SequenceNumber = 1"));
    add(&mut world, "act", SubscriptionSettings::default(), vec![rule("r", Filter::True, None), action]);
    publish(&mut world, &[&red_and_blue()[0]]);
    assert_eq!(counts(&mut world, "well"), (1, 0));
    assert_eq!(counts(&mut world, "quiet"), (0, 0));
    for (name, reason, text) in [
        ("bad", "FilterException", "The filter of a rule failed: division by zero."),
        (
            "act",
            "RuleActionException",
            "The action of a rule failed: the system property 'SequenceNumber' cannot be set.",
        ),
    ] {
        assert_eq!(counts(&mut world, name), (0, 1), "{name}");
        let dead = world.receive(&format!("t/Subscriptions/{name}/$DeadLetterQueue"), PeekLock, 9);
        assert_eq!(property(&dead[0], "DeadLetterReason"), Some(reason.into()));
        assert_eq!(property(&dead[0], "DeadLetterErrorDescription"), Some(text.into()));
    }
}

#[test]
fn properties_that_an_action_makes_too_large_dead_letter_the_copy() {
    // S-107
    let grow = "SET a = 'xxxxxxxxxxxxxxxx' SET a=a+a+a+a+a+a+a+a SET a=a+a+a+a+a+a+a+a SET a=a+a+a+a+a+a+a+a \
                SET b=a+a+a SET c=a+a+a SET d=a+a+a";
    let mut world = world_of(vec![("a", vec![rule("r", Filter::True, Some(grow))])]);
    publish(&mut world, &[&red_and_blue()[0]]);
    let dead = world.receive("t/Subscriptions/a/$DeadLetterQueue", PeekLock, 9);
    assert_eq!(property(&dead[0], "DeadLetterReason"), Some("HeaderSizeExceeded".into()));
}

#[test]
fn what_has_no_session_is_dead_lettered_where_sessions_are_required() {
    // S-20, S-108
    let mut world = World::new();
    topic(&mut world, TopicSettings::default());
    let settings = SubscriptionSettings { requires_session: true, ..SubscriptionSettings::default() };
    subscribe(&mut world, "a", settings.clone(), None);
    subscribe(&mut world, "b", SubscriptionSettings::default(), None);
    add(&mut world, "set", settings, vec![rule("r", Filter::True, Some("SET sys.SessionId = 's'"))]);
    let without = encoded(&[], &[]);
    publish(&mut world, &[&without]);
    let link = world.sender("t");
    let with = encoded(&[("SessionId", "s")], &[]);
    world.send_bytes(link, &[&with], message(0));
    world.commit();
    assert_eq!((counts(&mut world, "a"), counts(&mut world, "b")), ((1, 1), (2, 0)));
    assert_eq!(counts(&mut world, "set"), (2, 0));
    let dead = world.receive("t/Subscriptions/a/$deadletterqueue", PeekLock, 9);
    assert_eq!((dead.len(), dead[0].first.unwrap().0), (1, 1));
    let overlay = dead[0].extra.as_ref().unwrap().overlay.as_ref().unwrap();
    let word = |name| match overlay.application(name) {
        Some(Change::Set(value)) => Value::decode(value).unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(word("DeadLetterReason"), "Session id is null.".into());
    assert_eq!(
        word("DeadLetterErrorDescription"),
        "Session enabled entity doesn't allow a message whose session identifier is null.".into()
    );
}

#[test]
fn an_action_may_shorten_a_life_and_schedules_nothing() {
    // S-49, S-58, S-186
    let parameters = vec![
        ("@ttl".into(), Typed { kind: Kind::Duration, text: "PT1M".into() }),
        ("@when".into(), Typed { kind: Kind::DateTime, text: "2100-01-01T00:00:00Z".into() }),
    ];
    let expression = "SET sys.TimeToLive = @ttl; SET sys.ScheduledEnqueueTimeUtc = @when".into();
    let action = Some(Sql { expression, parameters });
    let mut world = world_of(vec![("a", vec![Rule { name: "r".into(), filter: Filter::True, action }])]);
    publish(&mut world, &[&red_and_blue()[0]]);
    let copy = &received(&mut world, "a")[0];
    assert_eq!(copy.expires, copy.enqueued.after(Span::minutes(1)));
}

#[test]
fn what_stands_in_the_body_counts_for_no_rule() {
    // S-187
    let mut world = world_of(vec![
        ("red", vec![rule("r", color("red"), None)]),
        ("sql", vec![rule("r", sql("color = 'red' OR EXISTS(color)"), None)]),
    ]);
    let mut told_in_body = encoded(&[], &[]);
    message::codec::write_descriptor(&mut told_in_body, 0x77);
    Value::Map(vec![("color".into(), "red".into())]).encode(&mut told_in_body);
    publish(&mut world, &[&told_in_body]);
    assert_eq!((received(&mut world, "red").len(), received(&mut world, "sql").len()), (0, 0));
}

#[test]
fn an_id_that_an_action_sets_makes_no_duplicates() {
    // S-163: they are looked for where messages arrive, and a subscription gets copies.
    let mut world = World::new();
    let settings = TopicSettings { requires_duplicate_detection: true, ..TopicSettings::default() };
    world.manage(Task::CreateTopic { path: "t".into(), settings, access: Vec::new() }).unwrap();
    let same = rule("r", Filter::True, Some("SET sys.MessageId = 'same'"));
    add(&mut world, "a", SubscriptionSettings::default(), vec![same]);
    let link = world.sender("t");
    for id in [1, 2] {
        let named = Incoming { id: MessageKey([1, id]), ..Incoming::new(Intake::default()) };
        world.send_bytes(link, &[&encoded(&[], &[])], named);
    }
    world.commit();
    assert_eq!(received(&mut world, "a").len(), 2);
}

#[test]
fn a_large_message_is_held_against_the_rules_by_its_first_part() {
    // S-187
    let mut world = world_of(vec![
        ("red", vec![rule("r", color("red"), None)]),
        ("blue", vec![rule("r", color("blue"), None)]),
    ]);
    let link = world.sender("t");
    let front = &red_and_blue()[0];
    let body = Intake { offset: 0, length: front.len() as u32 };
    let arrivals = crate::Arrivals { messages: &[], bodies: front, prefix_bytes: 0 };
    world.command_with(crate::Command::Part { link, body }, arrivals);
    world.part(link, 500);
    world.send(link, 0, &[message(100)]);
    world.commit();
    let copies = received(&mut world, "red");
    assert_eq!((copies.len(), received(&mut world, "blue").len()), (1, 0));
    assert_eq!(copies[0].extra.as_ref().unwrap().parts.len(), 2);
    assert_eq!(copies[0].length as usize, front.len() + 600);
}

#[test]
fn a_thousand_subscriptions_cost_what_the_few_cost_that_are_selected() {
    // Rules that ask for a value are found by it, whichever kind they are of.
    let cost = |count: usize| {
        let mut world = World::unchecked(crate::Tier::Unlimited);
        topic(&mut world, TopicSettings::default());
        for nth in 0..count {
            let filter = match nth % 2 {
                0 => color(&format!("c{nth}")),
                _ => sql(&format!("Color = 'c{nth}' AND n = 7")),
            };
            let (name, settings) = (format!("s{nth}"), SubscriptionSettings::default());
            add(&mut world, &name, settings, vec![rule("r", filter, None)]);
        }
        let bytes = encoded(&[], &[("color", "c1".into()), ("n", Value::Int(7))]);
        publish(&mut world, &[&bytes]);
        take_touched();
        publish(&mut world, &[&bytes]);
        assert_eq!(counts(&mut world, "s1"), (2, 0));
        take_touched()
    };
    assert_eq!(cost(1_000), cost(10));
}

#[test]
fn what_is_due_together_and_becomes_much_is_published_in_slices_that_an_append_holds() {
    // S-49; what a decision may take is looked at with each.
    let actions = (0..20).map(|nth| rule(&format!("r{nth}"), Filter::True, Some("SET b = a + a + a")));
    let mut world = world_of(vec![("a", actions.collect())]);
    let bytes = encoded(&[], &[("a", "x".repeat(9_000).as_str().into())]);
    let due = world.local().after(Span(5));
    let facts = Incoming { scheduled: due, ..Incoming::new(Intake::default()) };
    let link = world.sender("t");
    world.send_bytes(link, &[&bytes[..]; 25], facts);
    world.commit();
    world.pass(Span(5));
    let mut slices = 0;
    while world.is_due() {
        world.tick();
        slices += 1;
    }
    assert!(slices > 5, "{slices} slices");
    assert_eq!(counts(&mut world, "a"), (500, 0));
}

#[test]
fn what_actions_make_of_copies_is_held_in_memory_while_it_is_small_and_stored_beyond() {
    // P7
    let held = |bytes: usize| {
        let mut world = world_of(vec![]);
        let name = |nth: usize| format!("s{nth}");
        for nth in 0..60 {
            let action = Some("SET b = a + a + a");
            let settings = SubscriptionSettings::default();
            add(&mut world, &name(nth), settings, vec![rule("r", Filter::True, action)]);
        }
        let bytes = encoded(&[], &[("a", "x".repeat(bytes).as_str().into())]);
        for _ in 0..60 {
            publish(&mut world, &[&bytes]);
        }
        assert!((0..60).all(|nth| counts(&mut world, &name(nth)) == (60, 0)), "none is lost");
        let queues = world.broker.durable().queues();
        let sum = queues.fold((0, 0), |(held, stored), (_, queue)| {
            (held + queue.extras.held_bytes(), stored + queue.extras.stored_bytes())
        });
        let copies = world.receive("t/Subscriptions/s7", crate::ReceiveMode::PeekLock, 1);
        assert!(world.changes(&copies[0]).application("b").is_some());
        sum
    };
    let (small, stored) = held(100);
    assert!(small > 3_600 * 300 && stored == 0, "{small} and {stored}");
    let (large, stored) = held(10_000);
    assert!(large < small && stored > 3_600 * 30_000, "{large} and {stored}");
}

#[test]
fn a_message_that_its_actions_make_into_more_than_an_append_holds_is_a_dead_letter() {
    // S-107, S-182
    let mut world = world_of(vec![]);
    let settings = SubscriptionSettings { requires_session: true, ..SubscriptionSettings::default() };
    add(&mut world, "a", settings, vec![rule("r", color("red"), Some("SET a = 1"))]);
    let subscription = world.broker.find_subscription(Default::default(), "t", "a").unwrap().0;
    for nth in 0..20_000 {
        let rule = Box::new(rule(&format!("r{nth}"), color("red"), Some("SET a = 1")));
        let change = super::super::change::Change::RulePut { subscription, rule };
        world.found(crate::Record::Managed(Box::new(change)));
    }
    world.restart();
    let session = "\u{10348}".repeat(128);
    publish(&mut world, &[&encoded(&[("SessionId", &session)], &[("color", "red".into())])]);
    assert_eq!(counts(&mut world, "a"), (0, 1));
}

#[test]
fn a_bad_rule_is_refused_and_leaves_the_old_one() {
    // S-201
    let mut world = world_of(vec![("a", vec![rule("r", color("red"), None)])]);
    let (topic, subscription) = (Box::from("t"), Box::from("a"));
    let refused = world.manage(Task::UpdateRule { topic, subscription, rule: rule("r", sql("a ="), None) });
    assert!(matches!(refused, Err(Refusal::InvalidSetting { .. })));
    publish(&mut world, &[&red_and_blue()[0]]);
    assert_eq!(counts(&mut world, "a"), (1, 0));
    assert!(matches!(world.describe("t"), Ok(Answer::Topic(_))));
}

/// One rule with this filter in each of so many subscriptions.
fn routes_of(count: usize, filter: &str) -> Routes {
    let mut routes = Routes::default();
    for nth in 0..count {
        let (subscription, filter) = (EntityId(nth as u32), ReadyFilter::of(&sql(filter)));
        let place = (format!("{nth:04}").into(), "r".into());
        let (moves, is_correlation) = (false, false);
        routes.add(Route {
            subscription,
            place,
            moves,
            name: "r".into(),
            is_correlation,
            filter,
            action: None,
        });
    }
    routes
}

/// The steps that a message takes, and how many rules failed.
fn steps(routes: &Routes, message: &[u8]) -> (usize, usize) {
    let mut found = Vec::new();
    let steps = routes.select(Front::of(message).as_ref(), None, About::default(), &mut found);
    let is_failed = |selected: &&Selected| matches!(selected.what, Selection::Failed { .. });
    (steps, found.iter().filter(is_failed).count())
}

#[test]
fn a_look_up_of_a_property_does_not_depend_on_how_many_there_are() {
    let message = |count: usize| {
        let names: Vec<String> = (0..count).map(|n| format!("ä{n}")).collect();
        let user: Vec<_> = names.iter().map(|name| (name.as_str(), Value::Null)).collect();
        encoded(&[], &user)
    };
    let (few, many) = (message(10), message(7_000));
    let filter = "ÄÖ = 'x' OR Äx = 1 OR [Ä7] = 2";
    let one = steps(&routes_of(1, filter), &few).0;
    for (count, bytes) in [(1, &few), (2_000, &few), (1, &many), (2_000, &many)] {
        let (taken, failed) = steps(&routes_of(count, filter), bytes);
        assert!(taken <= count * one + 4 * 7_000, "{taken} steps of {count} rules");
        assert_eq!(failed, 0);
    }
}

#[test]
fn long_texts_and_patterns_take_steps_as_they_are_long_and_no_more_than_a_message_may() {
    // S-194, S-200
    let message = |value: usize, pattern: &str| {
        let value = "a".repeat(value);
        encoded(&[], &[("p", value.as_str().into()), ("q", pattern.into())])
    };
    for piece in ["%aaaaaaaaaaaaaaab", "%aaaaaa_aaaaaaaab", "%a"] {
        let pattern = format!("{}b%", piece.repeat(1_000 / piece.len()));
        let one = routes_of(1, "p LIKE q");
        let (short, long) =
            (steps(&one, &message(10_000, &pattern)).0, steps(&one, &message(20_000, &pattern)).0);
        assert!(long <= 2 * short + 4_000 && long <= 64_000, "{short}, then {long} of {piece}");
    }
    let pattern = format!("%{}b%", "a".repeat(900));
    let (taken, failed) = steps(&routes_of(2_000, "p LIKE q"), &message(30_000, &pattern));
    assert!(taken <= MESSAGE_STEPS, "{taken}");
    assert!(failed > 1_000 && failed < 1_990, "{failed} came too late");
    let much = vec!["p LIKE q"; 90].join(" OR ");
    let (taken, failed) = steps(&routes_of(1, &much), &message(30_000, &pattern));
    assert!(taken <= RULE_STEPS + 8_192 && failed == 1, "{taken} of one rule");
}

/// What routes say, whatever way they came to be.
fn told(routes: &Routes) -> Vec<String> {
    let places = |list: &[u32]| -> Vec<_> { list.iter().map(|at| &routes.route(*at).place).collect() };
    let rule = |(place, at): (&Place, &u32)| {
        let Route { subscription, place: own, moves, name, .. } = routes.route(*at);
        format!("{place:?} is {own:?} of {subscription:?}, {moves}, {name}")
    };
    let mut told: Vec<String> = routes.by_place.iter().map(rule).collect();
    let keyed = |keys: &BTreeMap<Key, Vec<u32>>| -> Vec<_> {
        keys.iter().map(|(key, list)| format!("{key:?} {:?}", places(list))).collect()
    };
    told.push(format!("{:?} {:?}", places(&routes.always), places(&routes.others)));
    told.extend(routes.by_user.iter().map(|(name, keys)| format!("{name} {:?}", keyed(keys))));
    let mut by_system: Vec<_> =
        routes.by_system.iter().map(|(property, keys)| format!("{property:?} {:?}", keyed(keys))).collect();
    by_system.sort();
    told.extend(by_system);
    told.push(format!("{} {:?} {:?}", routes.actions, routes.filters(), routes.sessions));
    told
}

#[test]
fn one_rule_more_or_less_costs_as_much_as_one_rule() {
    // W-29
    let many = (0..500).map(|nth| rule(&format!("r{nth}"), color(&format!("c{nth}")), None)).collect();
    let mut world = world_of(vec![("a", many)]);
    let (topic, subscription) = (Box::from("t"), Box::from("a"));
    let [red, _] = red_and_blue();
    take_touched();
    let rule = rule("one-more", color("none"), None);
    world.manage(Task::CreateRule { topic, subscription, rule }).unwrap();
    publish(&mut world, &[&red]);
    let (topic, subscription, name) = ("t".into(), "a".into(), "r7".into());
    world.manage(Task::DeleteRule { topic, subscription, name }).unwrap();
    publish(&mut world, &[&red]);
    let looks = take_touched();
    assert!((1..20).contains(&looks), "{looks} looks at rules");
}

#[test]
fn routes_that_change_with_the_rules_are_as_routes_made_anew() {
    let mut world = world_of(Vec::new());
    world.create("other", QueueSettings::default());
    let topic = world.broker.durable.find(NamespaceId(0), "t").unwrap();
    let mut random = 7_u64;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let names = ["B", "a", "ab", "C", "aa"];
    let filters = [
        Filter::True,
        Filter::False,
        sql("color = 'red'"),
        sql("Color = 'blue' AND x > 1"),
        sql("x > 1"),
        sql("sys.Label = 'l'"),
        sql("sys.To = 'l'"),
        color("red"),
    ];
    let mut done = 0;
    for _ in 0..3_000 {
        let topic_path: Box<str> = "t".into();
        let subscription: Box<str> = names[draw(5) as usize].into();
        let name = names[draw(5) as usize];
        let action = (draw(4) == 0).then(|| Sql { expression: "SET y = 1".into(), parameters: Vec::new() });
        let rule = Rule { name: name.into(), filter: filters[draw(8) as usize].clone(), action };
        let settings = SubscriptionSettings { requires_session: draw(2) == 0, ..Default::default() };
        let task = match draw(12) {
            0 => {
                Task::CreateSubscription { topic: topic_path, name: subscription, settings, rule: Some(rule) }
            }
            1 => Task::DeleteSubscription { topic: topic_path, name: subscription },
            2 => {
                let forward_to = (draw(2) == 0).then(|| "other".into());
                let settings = SubscriptionSettings { forward_to, ..settings };
                Task::UpdateSubscription { topic: topic_path, name: subscription, settings }
            }
            3..=5 => Task::DeleteRule { topic: topic_path, subscription, name: name.into() },
            6 | 7 => Task::UpdateRule { topic: topic_path, subscription, rule },
            _ => Task::CreateRule { topic: topic_path, subscription, rule },
        };
        done += usize::from(world.manage(task).is_ok());
        let anew = Routes::of(world.broker.durable.topics(), topic);
        assert_eq!(told(&world.broker.routes(topic)), told(&anew));
    }
    assert!(done > 600, "{done} changes were made");
}
