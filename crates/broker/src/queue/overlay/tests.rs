//! Changed properties that are too large for memory, verb by verb. That replay and snapshots give the same state is looked at
//! at the end of each test.

use super::*;
use crate::command::ReceiveMode::{PeekLock, ReceiveAndDelete};
use crate::command::{Intake, Outcome};
use crate::effect::{Answer, Delivery, Effect, Notice};
use crate::ids::{BodyId, LinkId, LockToken};
use crate::limits::{EXTRA_COST, PROPERTIES_BYTES};
use crate::queue::index::Reason;
use crate::settings::QueueSettings;
use crate::snapshot::stored_bodies;
use crate::testing::{World, message};
use crate::time::Span;
use crate::topic::fan_out::tests::counts;
use crate::topic::routes::tests::{sql, world_of};
use crate::topic::rule::{Filter, Rule};
use crate::topic::subject::tests::encoded;
use crate::{Decided, Need, Needs, What};
use message::Value;
use message::overlay::Change;

const DEAD: &str = "q/$DeadLetterQueue";

/// Changes that set a property to so many bytes.
fn setting(name: &str, bytes: usize) -> Overlay {
    let mut overlay = Overlay::default();
    overlay.set(name, &Value::Binary(vec![7; bytes])).unwrap();
    overlay
}

fn large(name: &str) -> Overlay {
    setting(name, SMALL_OVERLAY_BYTES)
}

fn boxed(overlay: Overlay) -> Option<Box<Overlay>> {
    Some(Box::new(overlay))
}

/// A queue with messages, all of them locked.
fn locked(count: u32, settings: QueueSettings) -> (World, LinkId) {
    let mut world = World::new();
    world.create("q", settings);
    world.send_committed("q", count);
    let link = world.receiver("q", PeekLock, count);
    (world, link)
}

fn settle(world: &mut World, link: LinkId, sequence: u64, outcome: Outcome) -> Vec<Effect> {
    let token = world.token(sequence);
    world.settle(link, 0, token, outcome)
}

/// The one message of a path, received.
fn received(world: &mut World, path: &str) -> Delivery {
    world.commit();
    let received = world.receive(path, PeekLock, 9);
    assert_eq!(received.len(), 1, "{received:?}");
    received[0].clone()
}

fn stored(world: &World, sequence: u64) -> Option<StoredOverlay> {
    world.queue("q").extras.get(&Sequence(sequence))?.stored_overlay
}

/// The bodies that a snapshot would name.
fn alive(world: &World) -> Vec<u64> {
    let mut bodies: Vec<_> =
        stored_bodies(&world.broker.snapshot(world.now)).iter().map(|body| body.0).collect();
    bodies.sort_unstable();
    bodies
}

#[test]
fn what_is_small_is_held_and_what_is_one_byte_larger_is_stored() {
    // P7
    let (mut world, link) = locked(2, QueueSettings::default());
    let around = setting("p", 200).encoded_bytes() - 200;
    // A binary of 256 bytes or more has three bytes more in front.
    let most = SMALL_OVERLAY_BYTES - around - 3;
    assert_eq!(setting("p", most).encoded_bytes(), SMALL_OVERLAY_BYTES);
    for (sequence, bytes) in [(1, most), (2, most + 1)] {
        settle(&mut world, link, sequence, Outcome::Defer(boxed(setting("p", bytes))));
        assert_eq!(stored(&world, sequence).is_some(), bytes > most, "{bytes}");
        world.commit();
        let Ok(Answer::Messages(taken)) = world.receive_deferred("q", &[sequence], PeekLock) else {
            panic!()
        };
        assert_eq!(world.changes(&taken[0]), setting("p", bytes));
    }
}

#[test]
fn large_changes_of_every_verb_are_stored_and_shown_also_after_a_start() {
    // S-89, S-104, S-120
    let changes = || boxed(large("p"));
    for outcome in [Outcome::Abandon(changes()), Outcome::Defer(changes()), Outcome::DeadLetter(changes())] {
        let (mut world, link) = locked(1, QueueSettings::default());
        settle(&mut world, link, 1, outcome.clone());
        let body = stored(&world, 1).expect("it is stored").body;
        assert_eq!((body, alive(&world)), (BodyId(2), vec![1, 2]), "{outcome:?}");
        assert!(world.queue("q").extras.held_bytes() < EXTRA_COST + 100);
        world.detach(link);
        world.commit();
        world.restart();
        let delivery = match &outcome {
            Outcome::Defer(_) => match world.receive_deferred("q", &[1], PeekLock) {
                Ok(Answer::Messages(taken)) => taken[0].clone(),
                other => panic!("{other:?}"),
            },
            Outcome::DeadLetter(_) => received(&mut world, DEAD),
            _ => received(&mut world, "q"),
        };
        assert_eq!(world.changes(&delivery), large("p"));
        let path = if matches!(outcome, Outcome::DeadLetter(_)) { DEAD } else { "q" };
        let Ok(Answer::Messages(seen)) = world.browse(path, 0, 9) else { panic!() };
        assert_eq!(world.changes(&seen[0]), large("p"));
        world.settle_tokens(path, &[delivery.token], Outcome::Complete).unwrap();
        assert_eq!((alive(&world), world.queue("q").held_bytes()), (vec![], 0), "all of it is gone");
    }
}

#[test]
fn a_change_of_what_is_stored_needs_it_and_takes_its_place() {
    // S-18, S-89
    let (mut world, link) = locked(1, QueueSettings::default());
    settle(&mut world, link, 1, Outcome::Abandon(boxed(large("one"))));
    world.commit();
    let token = received(&mut world, "q").token;
    let link = world.receiver("q", PeekLock, 0);
    let abandon = Outcome::Abandon(boxed(setting("two", 5)));
    let length = stored(&world, 1).expect("it is stored").length;
    let (front, overlay) = (What::PropertiesBytes, What::Content(length));
    let needs = [(1, front), (2, overlay)].map(|(body, what)| Need { body: BodyId(body), what });
    let found = World::fronts(&[(BodyId(1), &[])]);
    assert_eq!(world.settle_raw(link, token, &abandon, &found), Decided::Needs(Needs(needs.into())));
    world.settle(link, 0, token, abandon);
    assert_eq!(alive(&world), [1, 3], "the first is dead");
    let mut both = large("one");
    both.merge(&setting("two", 5)).unwrap();
    let delivery = received(&mut world, "q");
    assert_eq!(world.changes(&delivery), both);
    // What is small again is held again.
    let mut less = Overlay::default();
    less.remove("one").unwrap();
    world.settle_tokens("q", &[delivery.token], Outcome::Abandon(boxed(less.clone()))).unwrap();
    less.merge(&setting("two", 5)).unwrap();
    assert_eq!((stored(&world, 1), alive(&world)), (None, vec![1]));
    let delivery = received(&mut world, "q");
    assert_eq!(world.changes(&delivery), less);
}

#[test]
fn a_change_that_takes_the_place_of_another_counts_once() {
    // S-18
    let (mut world, link) = locked(1, QueueSettings::default());
    let three = |bytes| {
        let mut changes = setting("a", 30_000);
        changes.merge(&setting("b", 10_000)).unwrap();
        changes.merge(&setting("c", bytes)).unwrap();
        changes
    };
    settle(&mut world, link, 1, Outcome::Abandon(boxed(three(20_000))));
    // All that there may be, and a byte more: the message itself has none.
    let most = 20_000 + PROPERTIES_BYTES - three(20_000).encoded_bytes();
    let too_large = Refusal::PropertiesTooLarge { size: PROPERTIES_BYTES + 1, limit: PROPERTIES_BYTES };
    for (change, answer) in [
        (three(20_000), Ok(Answer::Settled)),
        (three(most), Ok(Answer::Settled)),
        (setting("c", most + 1), Err(too_large)),
    ] {
        let delivery = received(&mut world, "q");
        let outcome = Outcome::Abandon(boxed(change));
        assert_eq!(world.settle_tokens("q", &[delivery.token], outcome), answer);
    }
}

#[test]
fn changes_of_old_data_are_held_whatever_their_size_until_they_change() {
    let (mut world, link) = locked(1, QueueSettings::default());
    let entity = world.broker.durable.find(crate::NamespaceId(0), "q").unwrap();
    world.detach(link);
    world.pass(Span::minutes(1));
    world.tick();
    world.commit();
    let overlay = boxed(setting("old", 20_000));
    let reason = Reason::Client;
    world.found(Record::DeadLettered { entity, sequence: Sequence(1), reason, is_failure: false, overlay });
    world.restart();
    assert!(world.queue("q").extras.held_bytes() > 20_000);
    let delivery = received(&mut world, DEAD);
    assert_eq!(world.changes(&delivery), setting("old", 20_000));
    world.settle_tokens(DEAD, &[delivery.token], Outcome::Abandon(boxed(setting("new", 5)))).unwrap();
    assert!(stored(&world, 1).is_some() && world.queue("q").extras.held_bytes() < EXTRA_COST + 100);
    let mut both = setting("old", 20_000);
    both.merge(&setting("new", 5)).unwrap();
    let delivery = received(&mut world, DEAD);
    assert_eq!(world.changes(&delivery), both);
}

#[test]
fn what_clients_have_stored_wins_over_the_words_of_the_broker() {
    // S-60, S-87
    let settings = QueueSettings { max_delivery_count: 1, ..QueueSettings::default() };
    let (mut world, link) = locked(2, settings);
    let mut own = large("p");
    own.set_dead_letter(Some("mine"), None).unwrap();
    settle(&mut world, link, 1, Outcome::Abandon(boxed(own.clone())));
    let delivery = received(&mut world, DEAD);
    let shown = world.changes(&delivery);
    let text = |name: &str| match shown.application(name) {
        Some(Change::Set(value)) => Value::decode(value).unwrap().as_str().map(str::to_owned),
        _ => None,
    };
    assert_eq!(text("DeadLetterReason").unwrap(), "mine");
    assert!(text("DeadLetterErrorDescription").unwrap().starts_with("Message could not be consumed"));
    assert_eq!(shown.application("p"), own.application("p"));
}

#[test]
fn changes_that_are_not_small_wait_for_room_and_small_ones_do_not() {
    // P6, S-19, S-235: they take of the disk what a message takes.
    let settings = QueueSettings { max_size_megabytes: 1, ..QueueSettings::default() };
    let (mut world, link) = locked(3, settings);
    let before = world.queue("q").held_bytes();
    settle(&mut world, link, 1, Outcome::DeadLetter(boxed(large("p"))));
    assert_eq!(world.queue("q").held_bytes(), before + large("p").encoded_bytes() as u64);
    world.broker.set_short(true);
    let refused = settle(&mut world, link, 2, Outcome::DeadLetter(boxed(large("p"))));
    assert!(
        matches!(refused[..], [Effect::Notice(Notice::NotSettled { refusal: Refusal::NoSpace, .. })]),
        "{refused:?}"
    );
    world.broker.set_short(false);
    let filler = world.sender("q");
    world.send(filler, 0, &[message(1_048_575 - world.queue("q").held_bytes() as u32)]);
    world.send(filler, 1, &[message(1_048_576)]);
    settle(&mut world, link, 2, Outcome::DeadLetter(boxed(large("p"))));
    assert_eq!(world.queue("q").counts.dead_letter, 2, "a full queue refuses sends alone");
    let refused = settle(&mut world, link, 3, Outcome::DeadLetter(boxed(large("p"))));
    let is_full = |refusal: &Refusal| matches!(refusal, Refusal::QueueFull { limit: 2_097_152, .. });
    assert!(
        matches!(&refused[..], [Effect::Notice(Notice::NotSettled { refusal, .. })] if is_full(refusal)),
        "{refused:?}"
    );
    settle(&mut world, link, 3, Outcome::DeadLetter(boxed(setting("p", 900))));
    assert_eq!(world.queue("q").counts.dead_letter, 3);
}

#[test]
fn a_request_changes_no_more_than_an_append_holds_also_of_what_is_stored() {
    // S-18
    let count = crate::limits::REQUEST_CHANGE_BYTES / 60_000 + 1;
    let (mut world, link) = locked(count as u32, QueueSettings::default());
    let mut most = setting("one", 30_000);
    most.merge(&setting("two", 30_000)).unwrap();
    for sequence in 1..=count as u64 {
        settle(&mut world, link, sequence, Outcome::Abandon(boxed(most.clone())));
    }
    world.commit();
    let tokens: Vec<LockToken> =
        world.receive("q", PeekLock, count as u32).iter().map(|each| each.token).collect();
    let small = || Outcome::Abandon(boxed(setting("three", 5)));
    let refused = world.settle_tokens("q", &tokens, small());
    assert!(matches!(refused, Err(Refusal::PropertiesTooLarge { .. })), "{refused:?}");
    assert_eq!(world.settle_tokens("q", &tokens[1..], small()), Ok(Answer::Settled));
}

#[test]
fn twenty_thousand_dead_letters_with_four_kilobytes_of_words_take_no_more_memory_than_with_none() {
    // P7
    let held = |words: Option<&Overlay>| {
        let mut world = World::unchecked(crate::Tier::Unlimited);
        world.create("q", QueueSettings::default());
        for _ in 0..20 {
            world.send_committed("q", 1_000);
            let link = world.receiver("q", PeekLock, 0);
            world.credit(link, 1_000, false);
            for token in world.take_tokens() {
                let outcome = Outcome::DeadLetter(words.cloned().map(Box::new));
                let settled = world.settle(link, 0, token, outcome);
                assert!(matches!(settled[..], [Effect::Settled { .. }]), "{settled:?}");
            }
            world.detach(link);
            world.commit();
            world.take_effects();
            world.bodies.clear();
        }
        assert_eq!(world.queue("q").counts.dead_letter, 20_000);
        world.broker.counted_state()
    };
    let mut words = Overlay::default();
    words.set_dead_letter(Some("failed"), Some(&"why ".repeat(1_000))).unwrap();
    let (none, some) = (held(None), held(Some(&words)));
    assert!(some <= none + 20_000 * EXTRA_COST, "{none}, then {some}");
}

#[test]
fn a_message_that_is_removed_before_it_leaves_is_looked_at_with_its_changes() {
    // S-121
    let (mut world, link) = locked(1, QueueSettings::default());
    settle(&mut world, link, 1, Outcome::Defer(boxed(large("p"))));
    world.commit();
    let queue = world.queue("q");
    let slot = *queue.index.get(Sequence(1)).unwrap();
    assert_eq!(queue.bodies(Sequence(1), &slot).collect::<Vec<_>>(), [BodyId(1), BodyId(2)]);
    world.unreadable.insert(Sequence(1));
    assert_eq!(world.receive_deferred("q", &[1], ReceiveAndDelete), Err(Refusal::Unreadable));
    world.unreadable.clear();
    let Ok(Answer::Messages(taken)) = world.receive_deferred("q", &[1], ReceiveAndDelete) else { panic!() };
    assert_eq!(world.changes(&taken[0]), large("p"));
    assert_eq!(alive(&world), []);
}

#[test]
fn changes_that_are_moved_are_found_under_their_copy() {
    let (mut world, link) = locked(1, QueueSettings::default());
    settle(&mut world, link, 1, Outcome::DeadLetter(boxed(large("p"))));
    world.relocate(&[(BodyId(2), Intake { offset: 0, length: large("p").encoded_bytes() as u32 })]);
    assert_eq!(world.broker.durable().stored_as(BodyId(2)), BodyId(3));
    assert_eq!(alive(&world), [1, 3]);
    world.restart();
    let delivery = received(&mut world, DEAD);
    assert_eq!(delivery.stored_overlay().unwrap().body, BodyId(2), "it is known as ever");
}

/// `q` forwards its dead letters to `target`, and has one with large changes.
fn dead_letter_to(mut world: World, target: &str) -> World {
    let settings = QueueSettings { forward_dead_letters_to: Some(target.into()), ..QueueSettings::default() };
    world.create("q", settings);
    let link = world.sender("q");
    let bytes = encoded(&[], &[("color", "red".into()), ("n", Value::Int(7))]);
    world.send_bytes(link, &[&bytes], message(0));
    world.commit();
    let token = world.receive("q", PeekLock, 1)[0].token;
    world.settle_tokens("q", &[token], Outcome::DeadLetter(boxed(large("p")))).unwrap();
    world.commit();
    world.tick();
    world.commit();
    world
}

#[test]
fn a_dead_letter_takes_what_is_stored_along_to_a_queue() {
    // S-112
    let mut world = World::new();
    world.create("to", QueueSettings::default());
    let mut world = dead_letter_to(world, "to");
    let delivery = received(&mut world, "to");
    let shown = world.changes(&delivery);
    assert_eq!(shown.application("p"), large("p").application("p"));
    assert!(shown.system(message::SystemProperty::DeadLetterSource).is_some());
    assert_eq!(alive(&world), [1, 3], "what it had before is dead");
    assert_eq!(world.queue("q").held_bytes(), 0);
}

#[test]
fn copies_share_what_is_stored_and_rules_see_it() {
    // S-112, S-180, S-182
    let rule = |name: &str, filter: Filter, action: Option<&str>| Rule {
        name: name.into(),
        filter,
        action: action
            .map(|text| crate::topic::rule::Sql { expression: text.into(), parameters: Vec::new() }),
    };
    let sees = sql("EXISTS(p) AND color = 'red'");
    let world = world_of(vec![
        ("all", vec![]),
        ("sees", vec![rule("r", sees, None)]),
        ("acts", vec![rule("r", Filter::True, Some("SET color = 'blue'"))]),
        ("fails", vec![rule("r", sql("n / (n - n) > 0"), None)]),
    ]);
    let mut world = dead_letter_to(world, "t");
    for name in ["all", "sees", "acts"] {
        assert_eq!(counts(&mut world, name), (1, 0), "{name}");
        let delivery = received(&mut world, &format!("t/Subscriptions/{name}"));
        let shown = world.changes(&delivery);
        assert_eq!(shown.application("p"), large("p").application("p"), "{name}");
        assert_eq!(shown.application("color").is_some(), name == "acts", "{name}");
    }
    assert_eq!(counts(&mut world, "fails"), (0, 1));
    let delivery = received(&mut world, "t/Subscriptions/fails/$DeadLetterQueue");
    let shown = world.changes(&delivery);
    assert!(shown.application("DeadLetterReason").is_some() && shown.application("p").is_some());
    // The message; what two share; what the action, and what the failure have made of it.
    assert_eq!(alive(&world).len(), 4);
}
