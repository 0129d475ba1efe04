//! Every verb in a namespace whose time is an hour ahead of the owner's. Whatever is told, kept or due there is its own
//! time: an hour too little or too much shows in each of these.

use super::*;
use crate::command::ReceiveMode::{PeekLock, ReceiveAndDelete};
use crate::command::{Incoming, Outcome};
use crate::effect::{Delivery, Notice};
use crate::ids::MessageKey;
use crate::settings::{QueueSettings, Status};
use crate::testing::{World, message};
use crate::topic::fan_out::tests::{A, pair};
use crate::topic::settings::{SubscriptionSettings, TopicSettings};
use std::sync::Arc;

const HOUR: Span = Span::minutes(60);
const MINUTE: Span = Span::minutes(1);

/// The world an hour later, while for the owner only a moment has passed.
fn ahead(mut world: World) -> World {
    world.advance(0, HOUR, Span(1)).unwrap();
    world.take_effects();
    assert!(world.local().0 - world.now.0 > 3_500_000);
    world
}

fn with_queue(settings: QueueSettings) -> World {
    let mut world = World::new();
    world.create("q", settings);
    ahead(world)
}

fn with_messages(count: u32) -> World {
    let mut world = with_queue(QueueSettings::default());
    world.send_committed("q", count);
    world
}

fn delivered(effects: &[Effect]) -> Vec<&Delivery> {
    let delivery = |effect: &'_ Effect| matches!(effect, Effect::Deliver { .. });
    let all = effects.iter().filter(|effect| delivery(effect));
    all.filter_map(|effect| if let Effect::Deliver { delivery, .. } = effect { Some(delivery) } else { None })
        .collect()
}

/// Nothing is due up to the last millisecond of a span, and then something is. Works that off.
fn is_due_after(world: &mut World, span: Span) {
    world.pass(Span(span.0 - 1));
    assert!(!world.is_due(), "early");
    world.pass(Span(1));
    assert!(world.is_due(), "late");
    world.tick();
    world.commit();
}

fn accessed(world: &mut World, path: &str) -> Option<LocalTime> {
    match world.describe(path) {
        Ok(Answer::Queue(queue)) => queue.accessed,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_message_is_enqueued_and_expires_by_the_time_of_its_namespace() {
    // S-50, S-51, P5
    let mut world = with_queue(QueueSettings::default());
    let sent = world.local();
    let link = world.sender("q");
    world.send(link, 0, &[Incoming { time_to_live: Span::minutes(5), ..message(1) }]);
    world.commit();
    assert_eq!(accessed(&mut world, "q"), Some(sent));
    let slot = *world.queue("q").index.get(Sequence(1)).unwrap();
    assert_eq!((slot.enqueued, slot.expires), (sent, sent.after(Span::minutes(5))));
    is_due_after(&mut world, Span::minutes(5));
    assert_eq!(world.queue("q").counts.total(), 0);
}

#[test]
fn a_lock_lasts_for_its_duration() {
    // S-82, S-86
    let mut world = with_messages(1);
    let taken = world.receive("q", PeekLock, 1);
    assert_eq!(taken[0].locked_until, Some(world.local().after(MINUTE)));
    is_due_after(&mut world, MINUTE);
    assert_eq!(world.receive("q", PeekLock, 1)[0].count, 1);
}

#[test]
fn a_message_that_is_settled_on_its_link_and_goes_out_again_is_locked_for_exactly_its_duration() {
    // S-82, S-86: a receiver that hands it back unread makes it free within the settlement.
    let mut world = with_messages(1);
    let link = world.receiver("q", PeekLock, 2);
    let token = world.token(1);
    let effects = world.settle(link, 0, token, Outcome::Release);
    let until = delivered(&effects)[0].locked_until;
    assert_eq!(until, Some(world.local().after(MINUTE)));
    is_due_after(&mut world, MINUTE);
}

#[test]
fn a_message_goes_to_whoever_waits_when_another_is_settled_and_is_locked_for_exactly_its_duration() {
    // S-82, S-89
    for outcome in [Outcome::Complete, Outcome::Abandon(None), Outcome::DeadLetter(None)] {
        let mut world = with_messages(1);
        let link = world.receiver("q", PeekLock, 9);
        let sender = world.sender("q");
        world.send(sender, 0, &[message(1)]);
        let token = world.token(1);
        // The second is committed and handed out with what the settlement frees.
        let mut effects = world.settle(link, 0, token, outcome);
        effects.append(&mut world.commit());
        let until = world.local().after(MINUTE);
        assert!(delivered(&effects).iter().all(|each| each.locked_until == Some(until)));
        assert!(!delivered(&effects).is_empty());
    }
}

#[test]
fn a_lock_that_has_ended_settles_nothing_on_a_link_or_by_its_token() {
    // S-84, S-94
    for outcome in [
        Outcome::Complete,
        Outcome::Abandon(None),
        Outcome::Release,
        Outcome::Defer(None),
        Outcome::DeadLetter(None),
    ] {
        let mut world = with_messages(2);
        let link = world.receiver("q", PeekLock, 2);
        let (first, second) = (world.token(1), world.token(2));
        world.pass(Span(MINUTE.0 - 1));
        assert!(matches!(world.settle(link, 0, first, outcome.clone())[0], Effect::Settled { .. }));
        world.pass(Span(1));
        let refused = world.settle(link, 0, second, outcome.clone());
        assert!(matches!(refused[0], Effect::Notice(Notice::NotSettled { .. })), "{refused:?}");
        let by_token = world.settle_tokens("q", &[second], outcome);
        assert_eq!(by_token, Err(Refusal::LockLost(Sequence(2))));
    }
}

#[test]
fn a_renewed_lock_lasts_for_another_duration() {
    // S-83
    let mut world = with_messages(1);
    let token = world.receive("q", PeekLock, 1)[0].token;
    world.pass(Span::seconds(59));
    let until = world.local().after(MINUTE);
    assert_eq!(world.renew("q", &[token]), Ok(Answer::Renewed(vec![until])));
    world.pass(Span::seconds(1));
    world.tick();
    assert_eq!(world.receive("q", PeekLock, 1), [], "the first lock would have ended");
    is_due_after(&mut world, Span::seconds(59));
    assert!(world.renew("q", &[token]).is_err());
}

#[test]
fn a_message_that_cannot_be_read_is_withheld_for_the_time_of_a_lock() {
    let mut world = with_messages(2);
    world.unreadable.insert(Sequence(1));
    let link = world.receiver("q", ReceiveAndDelete, 9);
    assert_eq!(world.queue("q").counts.total(), 1, "the second is taken");
    world.detach(link);
    world.unreadable.clear();
    is_due_after(&mut world, MINUTE);
    assert_eq!(world.receive("q", PeekLock, 9).len(), 1);
}

#[test]
fn a_drain_that_had_to_read_first_hands_out_at_the_time_of_the_namespace() {
    // S-51, S-237
    let mut world = with_messages(1);
    world.pass(MINUTE);
    assert_eq!(world.receive("q", ReceiveAndDelete, 9).len(), 1);
    let now = world.local();
    assert_eq!(accessed(&mut world, "q"), Some(now));
}

#[test]
fn a_lock_that_a_drain_gives_after_reading_lasts_for_its_duration() {
    // S-82: a receiver that wants locks stands behind one that removes and drains.
    let mut world = with_queue(QueueSettings::default());
    let removing = world.receiver("q", ReceiveAndDelete, 1);
    let locking = world.receiver("q", PeekLock, 1);
    world.send_committed("q", 1);
    let sender = world.sender("q");
    world.send(sender, 0, &[message(1), message(1)]);
    world.commit();
    world.take_effects();
    world.credit(removing, 1, true);
    world.credit(locking, 1, false);
    let locks: Vec<_> = world.broker.volatile.locks().map(|(_, lock)| lock.until).collect();
    assert!(!locks.is_empty() && locks.iter().all(|until| *until == world.local().after(MINUTE)));
}

#[test]
fn a_scheduled_message_comes_when_its_namespace_says_so() {
    // S-40, S-44
    let mut world = with_queue(QueueSettings::default());
    let due = world.local().after(Span::minutes(10));
    let later = Incoming { scheduled: due, time_to_live: MINUTE, ..message(1) };
    world.schedule("q", &[later]).unwrap();
    let link = world.sender("q");
    world.send(link, 0, &[later]);
    // For the namespace this is over, for the owner it is to come.
    let past = Incoming { scheduled: LocalTime(world.now.0 + 1), ..message(1) };
    world.send(link, 1, &[past]);
    world.commit();
    assert_eq!(world.queue("q").counts.scheduled, 2);
    assert_eq!(world.receive("q", ReceiveAndDelete, 9).len(), 1);
    is_due_after(&mut world, Span::minutes(10));
    let taken = world.receive("q", PeekLock, 9);
    assert_eq!(taken.iter().map(|each| each.enqueued).collect::<Vec<_>>(), [due; 2]);
    assert!(taken.iter().all(|each| each.expires == due.after(MINUTE)));
}

#[test]
fn a_cancelled_message_never_comes_and_cancelling_uses_the_queue() {
    // S-42, S-71
    let settings = QueueSettings { auto_delete_on_idle: Span::minutes(5), ..QueueSettings::default() };
    let mut world = World::new();
    world.advance(0, HOUR, Span(1)).unwrap();
    world.create("q", settings);
    let scheduled = world.local().after(Span::minutes(4));
    world.schedule("q", &[Incoming { scheduled, ..message(1) }]).unwrap();
    world.pass(Span::minutes(3));
    assert_eq!(world.cancel("q", &[1]), Ok(Answer::Cancelled));
    let rest = Span::minutes(5);
    world.pass(Span(rest.0 - 1));
    world.tick();
    assert_eq!(world.queue("q").next.0, 2, "the queue is there and nothing came");
    world.pass(Span(1));
    world.tick();
    assert_eq!(world.broker.durable.find(NamespaceId(0), "q"), None);
}

#[test]
fn a_deferred_message_is_locked_and_expires_by_the_time_of_its_namespace() {
    // S-65, S-121
    let settings = QueueSettings { default_time_to_live: Span::minutes(5), ..QueueSettings::default() };
    let mut world = with_queue(settings);
    world.send_committed("q", 2);
    let tokens: Vec<_> = world.receive("q", PeekLock, 2).iter().map(|each| each.token).collect();
    world.settle_tokens("q", &tokens, Outcome::Defer(None)).unwrap();
    world.commit();
    let Ok(Answer::Messages(taken)) = world.receive_deferred("q", &[1], PeekLock) else { panic!("deferred") };
    assert_eq!(taken[0].locked_until, Some(world.local().after(MINUTE)));
    world.pass(Span::minutes(5));
    world.tick();
    assert!(world.receive_deferred("q", &[2], PeekLock).is_err(), "it has expired");
}

#[test]
fn a_message_is_dead_lettered_when_its_namespace_says_that_it_expired() {
    // S-60, S-64
    let settings = QueueSettings {
        default_time_to_live: Span::minutes(5),
        dead_letter_on_expiration: true,
        ..QueueSettings::default()
    };
    let mut world = with_queue(settings);
    world.send_committed("q", 1);
    is_due_after(&mut world, Span::minutes(5));
    let taken = world.receive("q/$DeadLetterQueue", PeekLock, 1);
    assert_eq!(taken[0].locked_until, Some(world.local().after(MINUTE)));
    is_due_after(&mut world, MINUTE);
}

#[test]
fn a_forwarded_message_lives_by_the_time_of_its_namespace() {
    // S-175, S-177
    let mut world = World::new();
    let settings = QueueSettings { default_time_to_live: Span::minutes(5), ..QueueSettings::default() };
    world.create("target", settings);
    let forward_to = Some("target".into());
    world.create("q", QueueSettings { forward_to, ..QueueSettings::default() });
    let mut world = ahead(world);
    let sent = world.local();
    world.send_committed("q", 1);
    let taken = world.receive("target", PeekLock, 1);
    assert_eq!((taken[0].enqueued, taken[0].expires), (sent, sent.after(Span::minutes(5))));
    assert_eq!(accessed(&mut world, "target"), Some(sent));
}

#[test]
fn dead_letters_that_wait_for_their_destination_are_tried_again_after_a_while() {
    // S-174
    let mut world = World::new();
    world.create("target", QueueSettings { status: Status::SendDisabled, ..QueueSettings::default() });
    let forward_dead_letters_to = Some("target".into());
    world.create("q", QueueSettings { forward_dead_letters_to, ..QueueSettings::default() });
    let mut world = ahead(world);
    world.send_committed("q", 1);
    let token = world.receive("q", PeekLock, 1)[0].token;
    world.settle_tokens("q", &[token], Outcome::DeadLetter(None)).unwrap();
    world.commit();
    is_due_after(&mut world, crate::limits::FORWARD_RETRY);
    assert_eq!(world.queue("q").counts.dead_letter, 1);
}

#[test]
fn an_idle_queue_goes_when_its_namespace_says_so() {
    // S-70
    let mut world = World::new();
    world.advance(0, HOUR, Span(1)).unwrap();
    let auto_delete_on_idle = Span::minutes(5);
    world.create("q", QueueSettings { auto_delete_on_idle, ..QueueSettings::default() });
    world.pass(Span::minutes(4));
    world.browse("q", 0, 1).unwrap();
    world.pass(Span::minutes(4));
    world.tick();
    assert!(world.broker.durable.find(NamespaceId(0), "q").is_some(), "it was looked at");
    world.pass(MINUTE);
    world.tick();
    assert_eq!(world.broker.durable.find(NamespaceId(0), "q"), None);
}

#[test]
fn a_duplicate_is_known_for_its_window() {
    // S-160, S-161
    let named = |id| Incoming { id: MessageKey([id, 7]), ..message(1) };
    let settings = QueueSettings {
        requires_duplicate_detection: true,
        duplicate_window: Span::minutes(5),
        ..QueueSettings::default()
    };
    let mut world = World::new();
    world.create("q", settings);
    let link = world.sender("q");
    world.send(link, 0, &[named(1)]);
    world.commit();
    // The hour that passes for the namespace is longer than the window.
    let mut world = ahead(world);
    world.send(link, 1, &[named(1)]);
    assert_eq!(world.queue("q").counts.total(), 2);
    world.pass(Span(Span::minutes(5).0 - 1));
    world.send(link, 2, &[named(1)]);
    assert_eq!(world.queue("q").counts.total(), 2);
    world.restart();
    let link = world.sender("q");
    world.send(link, 3, &[named(1)]);
    assert_eq!(world.queue("q").counts.total(), 2, "also after a start");
    world.pass(Span(1));
    world.send(link, 4, &[named(1)]);
    assert_eq!(world.queue("q").counts.total(), 3);
}

#[test]
fn whoever_looks_sees_the_time_of_the_namespace_and_locks_nothing() {
    // S-130, S-133
    let mut world = with_messages(1);
    let sent = world.local();
    world.pass(MINUTE);
    let Ok(Answer::Messages(seen)) = world.browse("q", 0, 9) else { panic!("seen") };
    assert_eq!((seen[0].enqueued, seen[0].locked_until), (sent, None));
    // Deleting by age compares with it (S-240).
    assert_eq!(world.delete_messages("q", 9, sent), Ok(Answer::MessagesDeleted(0)));
    assert_eq!(world.delete_messages("q", 9, sent.after(Span(1))), Ok(Answer::MessagesDeleted(1)));
}

fn held(world: &mut World, question: impl FnOnce(RequestId, NamespaceId) -> Command) -> Answer {
    world.ask_held(question).unwrap()
}

#[test]
fn a_session_is_held_and_renewed_by_the_time_of_its_namespace() {
    // S-142, S-146
    let mut world = with_queue(QueueSettings { requires_session: true, ..QueueSettings::default() });
    world.send_sessions("q", &["a"]);
    let link = world.link();
    let effects = world.accept(link, "q", Some("a"));
    let until = world.local().after(MINUTE);
    let [Effect::Notice(Notice::Attached { session: Some(session), .. })] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(session.until, until);
    let effects = world.credit(link, 1, false);
    assert_eq!(delivered(&effects)[0].locked_until, Some(until));
    world.pass(Span::seconds(30));
    let renew = |request, namespace| {
        let (path, session) = ("q".into(), "a".into());
        Command::RenewSession { request, namespace, path, session }
    };
    let until = world.local().after(MINUTE);
    assert_eq!(held(&mut world, renew), Answer::SessionRenewed(until));
    world.pass(Span(MINUTE.0 - 1));
    world.tick();
    assert!(world.ask_held(renew).is_ok());
    world.pass(MINUTE);
    world.tick();
    assert!(world.ask_held(renew).is_err());
    let again = world.link();
    assert!(matches!(
        world.accept(again, "q", Some("a"))[0],
        Effect::Notice(Notice::Attached { session: Some(_), .. })
    ));
}

#[test]
fn a_message_of_a_session_that_is_handed_back_is_locked_with_its_session() {
    // S-145, S-146: within the settlement it goes to the holder again.
    let mut world = with_queue(QueueSettings { requires_session: true, ..QueueSettings::default() });
    world.send_sessions("q", &["a"]);
    let link = world.holder("q", "a", 2);
    let token = world.token(1);
    let until = world.local().after(MINUTE);
    world.pass(Span::seconds(10));
    let effects = world.settle(link, 0, token, Outcome::Release);
    assert_eq!(delivered(&effects)[0].locked_until, Some(until));
}

#[test]
fn the_state_of_a_session_changes_at_the_time_of_its_namespace() {
    // S-149, S-150
    let mut world = with_queue(QueueSettings { requires_session: true, ..QueueSettings::default() });
    world.send_sessions("q", &["a"]);
    world.holder("q", "a", 0);
    let before = world.local();
    world.pass(Span(1));
    held(&mut world, |request, namespace| {
        let (path, session, state) = ("q".into(), "a".into(), Some(crate::Intake { offset: 0, length: 1 }));
        Command::SetSessionState { request, namespace, path, session, state }
    });
    let mut list = |since| {
        let listed = held(&mut world, |request, namespace| {
            let (path, since) = ("q".into(), Some(since));
            Command::ListSessions { request, namespace, path, since, skip: 0, top: 9 }
        });
        if let Answer::Sessions(sessions) = listed { sessions } else { panic!("{listed:?}") }
    };
    assert_eq!(list(before), [Arc::from("a")]);
    assert_eq!(list(before.after(Span(1))), Vec::<Arc<str>>::new());
}

#[test]
fn copies_of_a_published_message_live_by_the_time_of_their_namespace() {
    // S-180, S-187
    let mut world = ahead(pair());
    let sent = world.local();
    let link = world.sender("t");
    world.send(link, 0, &[Incoming { time_to_live: Span::minutes(5), ..message(10) }]);
    world.commit();
    let taken = world.receive(A, PeekLock, 1);
    assert_eq!((taken[0].enqueued, taken[0].expires), (sent, sent.after(Span::minutes(5))));
    assert_eq!(taken[0].locked_until, Some(sent.after(MINUTE)));
    // Scheduled at the topic, it is published when its namespace says so.
    let due = sent.after(Span::minutes(10));
    let later = Incoming { scheduled: due, ..message(10) };
    world.schedule("t", &[later]).unwrap();
    world.commit();
    world.pass(Span::minutes(5));
    world.tick();
    is_due_after(&mut world, Span::minutes(5));
    let taken = world.receive(A, PeekLock, 9);
    assert_eq!(taken.iter().map(|each| each.enqueued).collect::<Vec<_>>(), [due]);
}

#[test]
fn what_is_created_and_changed_is_dated_by_its_namespace() {
    let mut world = with_queue(QueueSettings::default());
    world.pass(MINUTE);
    let created = world.local();
    let (path, settings, access) = ("t".into(), TopicSettings::default(), Vec::new());
    world.manage(Task::CreateTopic { path, settings, access }).unwrap();
    let (topic, name, settings, rule) = ("t".into(), "s".into(), SubscriptionSettings::default(), None);
    let answer = world.manage(Task::CreateSubscription { topic, name, settings, rule });
    let Ok(Answer::Subscription(subscription)) = answer else { panic!("{answer:?}") };
    assert_eq!((subscription.created, subscription.updated), (created, created));
    world.pass(MINUTE);
    let now = world.local();
    let Ok(Answer::Queue(queue)) = world.update("q", QueueSettings::default()) else { panic!("updated") };
    assert_eq!(queue.updated, now);
    let settings = QueueSettings { lock_duration: Span::seconds(30), ..QueueSettings::default() };
    let Ok(Answer::Queue(queue)) = world.try_create("other", settings) else { panic!("created") };
    assert_eq!((queue.created, queue.updated), (now, now));
}

#[test]
fn a_namespace_is_named_at_the_time_of_the_first_whoever_asks() {
    // Replay dates it so.
    let mut world = ahead(World::new());
    world.manage(Task::NameNamespace { name: "one".into() }).unwrap();
    world.advance(1, Span::minutes(7), Span(1)).unwrap();
    let (request, namespace) = (RequestId::default(), NamespaceId(1));
    let task = Box::new(Task::NameNamespace { name: "two".into() });
    let effects = world.command(Command::Manage { request, namespace, task }, &[]);
    let [Effect::Answered { answer: Ok(Answer::Namespace { created, .. }), .. }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(*created, world.local());
    world.commit();
    world.restart();
}

#[test]
fn locks_that_a_planned_stop_keeps_end_by_the_time_of_their_namespace() {
    // S-93
    let mut world = with_messages(2);
    world.receiver("q", PeekLock, 1);
    world.pass(Span::seconds(30));
    world.keep_locks();
    world.restart();
    assert_eq!(world.receive("q", PeekLock, 9).len(), 1, "the other is locked");
    let mut world = with_messages(1);
    world.receiver("q", PeekLock, 1);
    world.pass(MINUTE);
    world.keep_locks();
    world.restart();
    assert_eq!(world.receive("q", PeekLock, 9).len(), 1, "it had ended");
}

#[test]
fn bodies_that_are_copied_forward_move_no_clock() {
    let mut world = with_messages(1);
    let local = world.local();
    world.relocate(&[(crate::BodyId(1), crate::Intake { offset: 0, length: 10 })]);
    assert_eq!(world.local(), local);
    world.restart();
    assert_eq!(world.local(), local);
}

#[test]
fn what_is_read_for_a_drain_while_another_namespace_is_moved_is_handed_out_at_the_end_and_moves_no_clock() {
    let mut world = with_messages(1);
    world.manage(Task::NameNamespace { name: "one".into() }).unwrap();
    world.is_reading_held = true;
    let link = world.link();
    world.attach_receiver(link, "q", ReceiveAndDelete);
    assert_eq!(world.credit(link, 9, true), [], "its message is being read");
    let (request, namespace) = (RequestId::default(), NamespaceId(1));
    world.command(Command::Advance { request, namespace, by: HOUR }, &[]);
    world.is_reading_held = false;
    let effects = world.tick_reads();
    assert_eq!(effects, [], "nothing leaves on the way");
    assert!(!matches!(world.records.last(), Some(Record::Removed { .. })));
    let effects = world.tick();
    assert!(matches!(effects[0], Effect::Answered { .. }), "{effects:?}");
    assert_eq!(delivered(&effects).len(), 1);
    assert_eq!(effects.last(), Some(&Effect::Notice(Notice::Drained { link })));
    let offset =
        |world: &World, of| world.broker.durable.clock_offsets().find(|(each, _)| *each == NamespaceId(of));
    assert_eq!(offset(&world, 1).map(|(_, offset)| offset.0), Some(HOUR.0 as i64));
    world.commit();
    world.restart();
}

#[test]
fn bodies_that_are_copied_forward_during_a_move_move_no_clock() {
    let mut world = with_messages(1);
    let (request, namespace) = (RequestId::default(), NamespaceId(0));
    let until = world.local().after(HOUR);
    world.command(Command::Advance { request, namespace, by: HOUR }, &[]);
    world.relocate(&[(crate::BodyId(1), crate::Intake { offset: 0, length: 10 })]);
    assert!(!matches!(world.records.last(), Some(Record::Managed(_))), "it is told at no time");
    while world.broker.is_advancing() {
        world.tick();
    }
    assert_eq!(world.local(), until);
    world.restart();
}

#[test]
fn the_time_of_a_namespace_does_not_stand_still_while_it_is_moved_by_little() {
    // More of the owner's time passes during the advance than it moves: the offset does not fall.
    let mut world = with_messages(3);
    let offset = world.local().0 - world.now.0;
    let before = world.local();
    let advanced = world.advance(0, Span(5), Span(1_000)).unwrap();
    assert_eq!(world.local().0 - world.now.0, offset);
    assert!(advanced.now >= before.after(Span(5)));
    world.restart();
    assert_eq!(world.local().0 - world.now.0, offset);
}
