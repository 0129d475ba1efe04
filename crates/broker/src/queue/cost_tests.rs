//! What a command costs does not depend on how much is in the queue: counted in slots, chunks, timers and locks that it
//! touches, with a thousand messages and with a million.

use crate::command::ReceiveMode::PeekLock;
use crate::command::{Command, Outcome, ReceiveMode};
use crate::ids::{LockToken, NamespaceId, Number, RequestId, TransactionId};
use crate::limits::{DISPATCH_SLICE, TIMER_SLICE};
use crate::manage::Task;
use crate::settings::QueueSettings;
use crate::testing::{World, message};
use crate::time::{LocalTime, Span};
use crate::touched::take_touched;
use crate::{Answer, Incoming, SessionIds, Tier};

const DEAD: &str = "q/$DeadLetterQueue";

/// Fills a queue with messages of all kinds, about `count` of each: active ones that live long, deferred, scheduled and
/// dead ones, and locks.
fn filled(count: u32) -> World {
    let mut world = World::unchecked(Tier::Unlimited);
    let lock_duration = Span::minutes(5);
    let dead_letter_on_expiration = true;
    world.create("q", QueueSettings { lock_duration, dead_letter_on_expiration, ..QueueSettings::default() });
    let link = world.sender("q");
    let scheduled = Incoming { scheduled: world.local().after(Span::minutes(9_999)), ..message(1) };
    let mortal = Incoming { time_to_live: Span::minutes(9_999), ..message(1) };
    let fill = |world: &mut World, each: Incoming| {
        for part in 0..count.div_ceil(4_000) {
            let messages = vec![each; (count - part * 4_000).min(4_000) as usize];
            world.send(link, 0, &messages);
            world.commit();
            world.take_effects();
        }
    };
    let take = |world: &mut World, outcome: Option<Outcome>| {
        let receiver = world.link();
        world.attach_receiver(receiver, "q", PeekLock);
        for part in 0..count.div_ceil(4_000) {
            world.credit(receiver, (count - part * 4_000).min(4_000), false);
            let tokens: Vec<LockToken> = world.take_tokens();
            if let Some(outcome) = &outcome {
                world.settle_tokens("q", &tokens, outcome.clone()).unwrap();
            }
            world.commit();
        }
        world.detach(receiver);
    };
    fill(&mut world, message(1));
    take(&mut world, Some(Outcome::Defer(None)));
    fill(&mut world, scheduled);
    fill(&mut world, message(1));
    take(&mut world, Some(Outcome::DeadLetter(None)));
    fill(&mut world, mortal);
    take(&mut world, None);
    fill(&mut world, mortal);
    world
}

/// What each command touches in a queue of that size.
fn costs(count: u32) -> Vec<(&'static str, usize)> {
    let mut world = filled(count);
    let n = u64::from(count);
    let (sender, receiver) = (world.sender("q"), world.receiver("q", PeekLock, 0));
    let mut costs = Vec::new();
    take_touched();
    let mut cost = |world: &mut World, what: &'static str, act: &mut dyn FnMut(&mut World)| {
        take_touched();
        act(world);
        costs.push((what, take_touched()));
    };
    // The first receive passes over what comes before the first free message; that is once, and not for each.
    world.credit(receiver, 1, false);
    let mut token = world.take_tokens()[0];
    cost(&mut world, "send", &mut |world| drop(world.send(sender, 0, &[message(1)])));
    cost(&mut world, "commit", &mut |world| drop(world.commit()));
    cost(&mut world, "complete", &mut |world| drop(world.settle(receiver, 0, token, Outcome::Complete)));
    cost(&mut world, "receive", &mut |world| drop(world.credit(receiver, 1, false)));
    token = world.take_tokens()[0];
    cost(&mut world, "renew", &mut |world| drop(world.renew("q", &[token]).unwrap()));
    cost(&mut world, "abandon", &mut |world| drop(world.settle(receiver, 0, token, Outcome::Abandon(None))));
    world.commit();
    cost(&mut world, "receive again", &mut |world| drop(world.credit(receiver, 1, false)));
    token = world.take_tokens()[0];
    cost(&mut world, "defer", &mut |world| drop(world.settle(receiver, 0, token, Outcome::Defer(None))));
    cost(&mut world, "receive deferred", &mut |world| {
        world.receive_deferred("q", &[n / 2], PeekLock).unwrap();
    });
    world.credit(receiver, 1, false);
    token = world.take_tokens()[0];
    cost(&mut world, "dead-letter", &mut |world| {
        drop(world.settle(receiver, 0, token, Outcome::DeadLetter(None)));
    });
    world.commit();
    cost(&mut world, "receive dead letter", &mut |world| {
        assert_eq!(world.receive(DEAD, PeekLock, 1).len(), 1);
    });
    world.take_tokens();
    for (what, path, from) in [
        ("browse the middle", "q", 3 * n / 2),
        ("browse behind dead letters", "q", 2 * n + 1),
        ("browse dead letters", DEAD, 0),
    ] {
        cost(&mut world, what, &mut |world| {
            let Ok(Answer::Messages(seen)) = world.browse(path, from, 10) else { panic!() };
            assert_eq!(seen.len(), 10);
        });
    }
    let scheduled = Incoming { scheduled: world.local().after(Span::minutes(5_000)), ..message(1) };
    cost(&mut world, "schedule", &mut |world| drop(world.schedule("q", &[scheduled]).unwrap()));
    cost(&mut world, "cancel", &mut |world| drop(world.cancel("q", &[3 * n / 2]).unwrap()));
    cost(&mut world, "delete ten", &mut |world| {
        assert_eq!(world.delete_messages("q", 10, LocalTime::NEVER), Ok(Answer::MessagesDeleted(10)));
    });
    let mortal = Incoming { time_to_live: Span(1), ..message(1) };
    world.send(sender, 0, &[mortal]);
    world.commit();
    world.pass(Span(1));
    cost(&mut world, "expire one", &mut |world| {
        assert!(world.is_due());
        world.tick();
        assert!(!world.is_due());
    });
    cost(&mut world, "describe", &mut |world| drop(world.describe("q").unwrap()));
    cost(&mut world, "update", &mut |world| {
        drop(
            world.update("q", QueueSettings { lock_duration: Span::minutes(5), ..QueueSettings::default() }),
        );
    });
    costs
}

#[test]
fn a_command_costs_the_same_with_a_thousand_messages_and_with_a_million() {
    let (small, large) = (costs(1_000), costs(1_000_000));
    for ((what, small), (_, large)) in small.into_iter().zip(large) {
        // Twice the logarithm, and a chunk that is fuller in one than in the other.
        assert!(large <= 2 * small + 1_024, "{what}: {small} with a thousand, {large} with a million");
        assert!(large <= 3_000, "{what}: {large}");
    }
}

/// The kind of a command. No catch-all: a new one must be measured.
fn kind(command: &Command) -> &'static str {
    match command {
        Command::AttachSender { .. } => "AttachSender",
        Command::AttachVia { .. } => "AttachVia",
        Command::AttachReceiver { .. } => "AttachReceiver",
        Command::AcceptSession { .. } => "AcceptSession",
        Command::RenewSession { .. } => "RenewSession",
        Command::GetSessionState { .. } => "GetSessionState",
        Command::SetSessionState { .. } => "SetSessionState",
        Command::ListSessions { .. } => "ListSessions",
        Command::AttachCoordinator { .. } => "AttachCoordinator",
        Command::Declare { .. } => "Declare",
        Command::Discharge { .. } => "Discharge",
        Command::Spoil { .. } => "Spoil",
        Command::Within { .. } => "Within",
        Command::Detach { .. } => "Detach",
        Command::Send { .. } => "Send",
        Command::Part { .. } => "Part",
        Command::DropParts { .. } => "DropParts",
        Command::Credit { .. } => "Credit",
        Command::Settle { .. } => "Settle",
        Command::SettleTokens { .. } => "SettleTokens",
        Command::RenewLocks { .. } => "RenewLocks",
        Command::Schedule { .. } => "Schedule",
        Command::CancelScheduled { .. } => "CancelScheduled",
        Command::ReceiveDeferred { .. } => "ReceiveDeferred",
        Command::Browse { .. } => "Browse",
        Command::DeleteMessages { .. } => "DeleteMessages",
        Command::CreateQueue { .. } => "CreateQueue",
        Command::DeleteEntity { .. } => "DeleteEntity",
        Command::DescribeEntity { .. } => "DescribeEntity",
        Command::Manage { .. } => "Manage",
        Command::ListQueues { .. } => "ListQueues",
        Command::Advance { .. } => "Advance",
    }
}

/// Kinds of commands.
const KINDS: usize = 32;

/// One command of each kind, in a queue with `n` messages of each sort; the last one ends the queue.
fn one_of_each(world: &mut World, n: u64) -> Vec<Command> {
    let (sender, receiver) = (world.sender("q"), world.receiver("q", PeekLock, 0));
    world.credit(receiver, 2, false);
    let tokens = world.take_tokens();
    let (request, namespace, path) = (RequestId::default(), NamespaceId(0), Box::<str>::from("q"));
    let (link, other, third, fourth) = (world.link(), world.link(), world.link(), world.link());
    let fifth = world.link();
    let (namespace_of, q) = (|| namespace, || path.clone());
    vec![
        Command::AttachSender { link, namespace: namespace_of(), path: q() },
        Command::AttachVia { link: fourth, namespace, path: q(), destination: q() },
        Command::AttachReceiver { link: other, namespace, path: q(), mode: ReceiveMode::ReceiveAndDelete },
        Command::Send {
            link: sender,
            delivery: 0,
            is_settled: false,
            messages: 0..1,
            sessions: SessionIds::default(),
        },
        Command::Part { link: sender, body: message(9).body },
        Command::DropParts { link: sender },
        Command::Credit { link: receiver, limit: 3, drain: false },
        Command::Settle {
            link: receiver,
            delivery: 0,
            token: tokens[0],
            outcome: Outcome::Complete,
            wants_answer: true,
        },
        Command::RenewLocks { request, namespace, path: q(), tokens: tokens[1..].into() },
        Command::SettleTokens {
            request,
            namespace,
            path: q(),
            tokens: tokens[1..].into(),
            outcome: Outcome::Abandon(None),
        },
        Command::Schedule { request, namespace, path: q(), messages: 1..2, sessions: SessionIds::default() },
        Command::CancelScheduled { request, namespace, path: q(), numbers: [Number(3 * n / 2)].into() },
        Command::ReceiveDeferred {
            request,
            namespace,
            path: q(),
            numbers: [Number(n / 2)].into(),
            mode: PeekLock,
            session: None,
        },
        Command::Browse { request, namespace, path: q(), from: Number(n), most: 1, session: None },
        Command::DeleteMessages {
            request,
            namespace,
            path: q(),
            most: 1,
            before: LocalTime::NEVER,
            session: None,
        },
        // Refused here; what they cost with sessions is measured beside those.
        Command::AcceptSession { link: third, namespace, path: q(), mode: PeekLock, session: None },
        Command::RenewSession { request, namespace, path: q(), session: "s".into() },
        Command::GetSessionState { request, namespace, path: q(), session: "s".into() },
        Command::SetSessionState { request, namespace, path: q(), session: "s".into(), state: None },
        Command::ListSessions { request, namespace, path: q(), since: None, skip: 0, top: 9 },
        Command::DescribeEntity { request, namespace, path: q() },
        Command::ListQueues { request, namespace, skip: 0, top: 9 },
        Command::Manage { request, namespace, task: Box::new(Task::Describe { path: q() }) },
        Command::CreateQueue { request, namespace, path: "new".into(), settings: Box::default() },
        Command::AttachCoordinator { link: fifth, namespace },
        Command::Declare { link: fifth, delivery: 0 },
        Command::Within {
            transaction: TransactionId(1),
            command: Box::new(Command::Send {
                link: sender,
                delivery: 0,
                is_settled: false,
                messages: 0..1,
                sessions: SessionIds::default(),
            }),
        },
        Command::Discharge { link: fifth, delivery: 1, transaction: TransactionId(1), is_failed: false },
        Command::Spoil { link: fifth, transaction: TransactionId(2) },
        Command::Detach { link: receiver },
        Command::DeleteEntity { request, namespace, path: q() },
        // Only begins: what it passes is done in ticks, with nothing else in between.
        Command::Advance { request, namespace, by: Span(1) },
    ]
}

#[test]
fn every_kind_of_command_costs_the_same_with_a_thousand_messages_and_with_a_million() {
    let costs = |count: u32| -> Vec<(&'static str, usize)> {
        let mut world = filled(count);
        let later = Incoming { scheduled: world.local().after(Span::minutes(5_000)), ..message(1) };
        let commands = one_of_each(&mut world, count.into());
        let mut cost = |command: Command| {
            take_touched();
            world.command(command.clone(), &[message(1), later]);
            (kind(&command), take_touched())
        };
        commands.into_iter().map(&mut cost).collect()
    };
    let (small, large) = (costs(1_000), costs(1_000_000));
    let kinds: std::collections::BTreeSet<_> = small.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds.len(), KINDS, "each kind is measured: {kinds:?}");
    for ((what, small), (_, large)) in small.into_iter().zip(large) {
        assert!(large <= 2 * small + 1_024, "{what}: {small} with a thousand, {large} with a million");
    }
}

/// A million messages to which something happens at the same instant.
fn million(each: Incoming, is_locked: bool) -> World {
    const COUNT: u32 = 1_000_000;
    let mut world = World::unchecked(Tier::Unlimited);
    world.create("q", QueueSettings::default());
    let link = world.sender("q");
    for _ in 0..COUNT / 4_000 {
        world.send(link, 0, &vec![each; 4_000]);
        world.commit();
    }
    if is_locked {
        let receiver = world.link();
        world.attach_receiver(receiver, "q", PeekLock);
        for _ in 0..COUNT / 4_000 {
            world.credit(receiver, 4_000, false);
            world.take_effects();
        }
        world.detach(receiver);
    }
    world.take_effects();
    world
}

#[test]
fn a_million_messages_that_are_due_at_once_are_worked_off_in_slices_and_others_come_in_between() {
    let start = World::new().local();
    let mortal = Incoming { time_to_live: Span::seconds(60), ..message(1) };
    let scheduled = Incoming { scheduled: start.after(Span::seconds(60)), ..message(1) };
    for (each, is_locked) in [(mortal, false), (scheduled, false), (message(1), true)] {
        let mut world = million(each, is_locked);
        let link = world.sender("q");
        world.pass(Span::seconds(60));
        let (mut slices, mut sent) = (0, 0);
        while world.is_due() {
            take_touched();
            world.tick();
            let touched = take_touched();
            assert!(touched <= 20 * TIMER_SLICE.max(DISPATCH_SLICE), "{touched} in one slice");
            slices += 1;
            if slices % 100 == 1 {
                // A command between two slices does not pay for what is still due.
                world.send(link, 0, &[message(1)]);
                assert!(take_touched() < 100);
                sent += 1;
            }
            world.commit();
            world.take_effects();
        }
        assert!(slices >= 1_000_000 / TIMER_SLICE, "{slices} slices");
        assert!(sent > 5);
    }
}
