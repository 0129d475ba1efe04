//! Requests and answers that travel: each may be late, lost or repeated, and the journal is the same for it. Only where the
//! harness can hold them up ([`Harness::wire`]).

use super::{Harness, must_verify, open, sample, write_up_to};
use crate::distant::{Arrival, RequestId, Wire};
use crate::journal::{Journal, Position, Resolution};
use crate::ticket::{Outcome, Ticket};

const AT: Position = Position(4);

/// A journal with some batches before [`AT`], and its wire, held.
fn far(harness: &dyn Harness) -> Option<(Box<dyn Journal>, Wire)> {
    let Some(wire) = harness.wire() else {
        println!("conformance: nothing travels here");
        return None;
    };
    let mut journal = open(harness);
    write_up_to(&mut *journal, Position(AT.0 - 1));
    wire.hold(true);
    Some((journal, wire))
}

fn send(journal: &mut dyn Journal, wire: &Wire) -> (Ticket, RequestId) {
    let ticket = journal.append(&sample(AT), AT).expect("an append is taken");
    (ticket, *wire.requests().last().expect("it is on its way"))
}

/// Everything that was written by anybody is there once, and nothing else.
fn must_go_on(harness: &dyn Harness, mut journal: Box<dyn Journal>, wire: &Wire) {
    wire.hold(false);
    write_up_to(&mut *journal, Position(AT.0 + 3));
    must_verify(&*journal, Position(1));
    drop(journal);
    let journal = open(harness);
    assert_eq!(journal.tail(), Position(AT.0 + 3));
    must_verify(&*journal, Position(1));
}

pub(super) fn late_answer(harness: &dyn Harness) {
    let Some((mut journal, wire)) = far(harness) else { return };
    let (ticket, id) = send(&mut *journal, &wire);
    assert!(ticket.arrives_by_itself());
    let ticket = ticket.try_wait().expect_err("it has not even arrived");
    assert_eq!(journal.tail(), AT, "the tail counts what is on its way");
    must_verify(&*journal, Position(1));
    assert_eq!(wire.arrive(id), Arrival::Committed);
    let ticket = ticket.try_wait().expect_err("the answer is on its way");
    wire.answer(id);
    assert!(matches!(ticket.try_wait(), Ok(Outcome::Committed)));
    assert_eq!(journal.tail(), AT);
    must_go_on(harness, journal, &wire);
}

pub(super) fn late_request(harness: &dyn Harness) {
    let Some((mut journal, wire)) = far(harness) else { return };
    let first_body = journal.next_body();
    // It arrives after the question, which has promised that it would not.
    let (ticket, late) = send(&mut *journal, &wire);
    wire.give_up(late);
    assert!(matches!(ticket.wait(), Outcome::Unknown));
    assert_eq!(
        (journal.tail().next(), journal.next_body()),
        (AT, first_body),
        "nobody knows that it is there"
    );
    assert_eq!(journal.resolve(AT).expect("the outcome can be asked for"), Resolution::Absent);
    assert_eq!(wire.arrive(late), Arrival::Barred);
    assert_eq!(journal.tail().next(), AT);
    must_verify(&*journal, Position(1));
    // It arrives before the question.
    let (ticket, late) = send(&mut *journal, &wire);
    wire.give_up(late);
    assert!(matches!(ticket.wait(), Outcome::Unknown));
    assert_eq!(wire.arrive(late), Arrival::Committed);
    assert_eq!(journal.tail().next(), AT, "the writer has not asked");
    assert_eq!(journal.resolve(AT).expect("the outcome can be asked for"), Resolution::Committed);
    assert_eq!(journal.tail(), AT);
    must_go_on(harness, journal, &wire);
}

pub(super) fn repeated_request(harness: &dyn Harness) {
    repeat(harness, true);
}

pub(super) fn overtaken_request(harness: &dyn Harness) {
    repeat(harness, false);
}

/// The writer gives up and sends the same again; then both arrive.
fn repeat(harness: &dyn Harness, is_in_order: bool) {
    let Some((mut journal, wire)) = far(harness) else { return };
    let (ticket, first) = send(&mut *journal, &wire);
    wire.give_up(first);
    assert!(matches!(ticket.wait(), Outcome::Unknown));
    let (ticket, second) = send(&mut *journal, &wire);
    let order = if is_in_order { [first, second] } else { [second, first] };
    for id in order {
        assert_eq!(wire.arrive(id), Arrival::Committed);
    }
    wire.answer(second);
    assert!(matches!(ticket.wait(), Outcome::Committed));
    assert_eq!(journal.tail(), AT);
    must_go_on(harness, journal, &wire);
}

pub(super) fn fenced_request(harness: &dyn Harness) {
    let Some((mut zombie, wire)) = far(harness) else { return };
    let (ticket, late) = send(&mut *zombie, &wire);
    let mut successor = open(harness);
    assert_eq!(successor.tail().next(), AT, "it has not arrived");
    assert_eq!(wire.arrive(late), Arrival::Fenced);
    wire.answer(late);
    assert!(matches!(ticket.wait(), Outcome::Fenced));
    assert_eq!(zombie.tail().next(), AT);
    // Nobody told this one that it is over: it asks, and learns that somebody else is there.
    let (ticket, lost) = send(&mut *zombie, &wire);
    wire.lose(lost);
    assert!(matches!(ticket.wait(), Outcome::Unknown));
    wire.hold(false);
    write_up_to(&mut *successor, AT);
    assert_eq!(zombie.resolve(AT).expect("the outcome can be asked for"), Resolution::Foreign);
    drop(zombie);
    must_go_on(harness, successor, &wire);
}
