//! What a command costs does not depend on how much lies in the queue: counted in slots, chunks, timers and locks that it
//! touches, with a thousand messages and with a million.

use crate::Tier;
use crate::command::Outcome;
use crate::command::ReceiveMode::PeekLock;
use crate::ids::LockToken;
use crate::settings::QueueSettings;
use crate::testing::{World, message};
use crate::time::{Span, Time};
use crate::work::take_touched;
use crate::{Answer, Incoming};

const DEAD: &str = "q/$DeadLetterQueue";

/// Fills a queue with messages of all kinds, about `count` of each: active ones that live long, deferred, scheduled and
/// dead ones, and locks.
fn filled(count: u32) -> World {
    let mut world = World::unchecked(Tier::Unlimited);
    let lock_duration = Span::minutes(5);
    let dead_letter_on_expiration = true;
    world.create("q", QueueSettings { lock_duration, dead_letter_on_expiration, ..QueueSettings::default() });
    let link = world.sender("q");
    let scheduled = Incoming { scheduled: world.now.after(Span::minutes(9_999)), ..message(1) };
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
    // The first receive passes over what lies before the first free message; that is once, and not for each.
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
    let scheduled = Incoming { scheduled: world.now.after(Span::minutes(5_000)), ..message(1) };
    cost(&mut world, "schedule", &mut |world| drop(world.schedule("q", &[scheduled]).unwrap()));
    cost(&mut world, "cancel", &mut |world| drop(world.cancel("q", &[3 * n / 2]).unwrap()));
    cost(&mut world, "delete ten", &mut |world| {
        assert_eq!(world.purge("q", 10, Time::NEVER), Ok(Answer::MessagesDeleted(10)));
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
