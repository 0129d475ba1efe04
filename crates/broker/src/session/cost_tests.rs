//! What a command costs at an entity with sessions does not depend on how many of them there are, nor on how many messages:
//! counted in what it touches, with a thousand sessions and with a million, and with a thousand messages in one session and
//! with a million.

use crate::command::{Command, Outcome};
use crate::ids::Number;
use crate::settings::QueueSettings;
use crate::testing::{World, message};
use crate::time::Span;
use crate::touched::take_touched;
use crate::{Answer, Incoming, LocalTime, SessionIds, Tier};
use std::sync::Arc;

/// `count` messages, each in a session of its own or all in one.
fn filled(count: u32, is_one: bool) -> World {
    let mut world = World::unchecked(Tier::Unlimited);
    let lock_duration = Span::minutes(5);
    world.create("q", QueueSettings { lock_duration, requires_session: true, ..QueueSettings::default() });
    let link = world.sender("q");
    let one: Arc<str> = "s0".into();
    for part in 0..count.div_ceil(4_000) {
        let here = (count - part * 4_000).min(4_000) as usize;
        let name =
            |at: usize| if is_one { one.clone() } else { format!("s{}", part as usize * 4_000 + at).into() };
        let sessions = SessionIds::new(here, (0..here).map(|at| (at, name(at))));
        let command =
            Command::Send { link, delivery: 0, is_settled: true, messages: 0..here as u32, sessions };
        world.command(command, &vec![message(1); here]);
        world.commit();
        while world.is_due() {
            world.tick();
        }
        world.take_effects();
    }
    world
}

/// What each command touches.
fn costs(count: u32, is_one: bool) -> Vec<(&'static str, usize)> {
    let mut world = filled(count, is_one);
    let (sender, link, waiting, named) = (world.sender("q"), world.link(), world.link(), world.link());
    let mut costs = Vec::new();
    let mut cost = |world: &mut World, what: &'static str, act: &mut dyn FnMut(&mut World)| {
        take_touched();
        act(world);
        costs.push((what, take_touched()));
    };
    cost(&mut world, "send", &mut |world| drop(world.send_in(sender, 0, &[message(1)], &["s0"])));
    cost(&mut world, "commit", &mut |world| drop(world.commit()));
    cost(&mut world, "accept the next", &mut |world| assert_eq!(world.accept(link, "q", None).len(), 1));
    cost(&mut world, "receive", &mut |world| drop(world.credit(link, 2, false)));
    let tokens = world.take_tokens();
    assert_eq!(tokens.len(), 2);
    cost(&mut world, "complete", &mut |world| drop(world.settle(link, 0, tokens[0], Outcome::Complete)));
    cost(&mut world, "abandon", &mut |world| drop(world.settle(link, 0, tokens[1], Outcome::Abandon(None))));
    cost(&mut world, "commit the return", &mut |world| drop(world.commit()));
    let path = || Box::<str>::from("q");
    let session = || Box::<str>::from("s0");
    cost(&mut world, "receive again", &mut |world| drop(world.credit(link, 1, false)));
    let token = world.take_tokens()[0];
    cost(&mut world, "defer", &mut |world| drop(world.settle(link, 0, token, Outcome::Defer(None))));
    world.commit();
    cost(&mut world, "renew", &mut |world| {
        let renew = |request, namespace| Command::RenewSession {
            request,
            namespace,
            path: path(),
            session: session(),
        };
        world.ask_held(renew).unwrap();
    });
    cost(&mut world, "set a state", &mut |world| {
        let state = Some(message(9).body);
        let set = |request, namespace| Command::SetSessionState {
            request,
            namespace,
            path: path(),
            session: session(),
            state,
        };
        world.ask_held(set).unwrap();
    });
    cost(&mut world, "get a state", &mut |world| {
        let get = |request, namespace| Command::GetSessionState {
            request,
            namespace,
            path: path(),
            session: session(),
        };
        world.ask_held(get).unwrap();
    });
    cost(&mut world, "browse a session", &mut |world| {
        let (from, most, session) = (Number(0), 10, Some(session()));
        let browse =
            |request, namespace| Command::Browse { request, namespace, path: path(), from, most, session };
        assert!(matches!(world.ask_held(browse), Ok(Answer::Messages(_))));
    });
    cost(&mut world, "leave", &mut |world| world.detach(link));
    cost(&mut world, "accept by name", &mut |world| {
        assert_eq!(world.accept(named, "q", Some("s0")).len(), 1)
    });
    if is_one {
        cost(&mut world, "wait for the next", &mut |world| assert_eq!(world.accept(waiting, "q", None), []));
    } else {
        cost(&mut world, "accept another", &mut |world| {
            assert_eq!(world.accept(waiting, "q", None).len(), 1)
        });
    }
    let mortal = Incoming { time_to_live: Span(1), ..message(1) };
    world.send_in(sender, 0, &[mortal], &["short"]);
    world.commit();
    world.pass(Span(1));
    cost(&mut world, "expire one", &mut |world| drop(world.tick()));
    cost(&mut world, "list a page", &mut |world| {
        let (since, skip, top): (Option<LocalTime>, usize, usize) = (None, count as usize / 2, 100);
        let list =
            |request, namespace| Command::ListSessions { request, namespace, path: path(), since, skip, top };
        world.ask_held(list).unwrap();
    });
    costs
}

#[test]
fn a_command_costs_the_same_with_a_thousand_sessions_and_with_a_million() {
    for is_one in [false, true] {
        let (small, large) = (costs(1_000, is_one), costs(1_000_000, is_one));
        for ((what, small), (_, large)) in small.into_iter().zip(large) {
            // A page is found by passing over buckets whole and walking through one, of 256.
            let more = if what == "list a page" { 1_000_000 / 256 * 2 } else { 1_024 };
            assert!(large <= 2 * small + more, "{what}: {small} with a thousand, {large} with a million");
            let most = if what == "expire one" || what == "list a page" { 10_000 } else { 100 };
            assert!(large <= most, "{what}: {large}");
        }
    }
}
