//! Where the bodies of messages are stored.

use crate::ids::ForJournal;
use crate::mailbox::Outgoing;
use broker::{Answer, BodyId, Delivery, Durable};
use journal::{Journal, Place};

/// Says of answers that are about to leave where those of their messages are stored that were not written before. A journal that
/// cannot say yet is asked again when it knows what became of the append.
pub(super) fn place_answers(journal: &dyn Journal, durable: &Durable, outgoing: &mut [Outgoing]) {
    for each in outgoing {
        if let Outgoing::Answered { answer, places, .. } = each {
            let messages = bodies_of(answer);
            for (message, found) in messages.iter().zip(places).filter(|(_, found)| found.is_empty()) {
                // What was changed of a message may be new, and its body old enough to have been moved, or to be on the move.
                let place = |body: BodyId| {
                    let relocated = journal.place(durable.stored_as(body).for_journal());
                    relocated.or_else(|| journal.place(body.for_journal()))
                };
                *found = all_places(message, place).unwrap_or_default();
            }
        }
    }
}

/// What an answer has bodies of.
pub(super) fn bodies_of(answer: &Result<Answer, broker::Refusal>) -> &[Delivery] {
    match answer {
        Ok(Answer::Messages(messages)) => messages,
        Ok(Answer::SessionState(Some(state))) => std::slice::from_ref(state),
        _ => &[],
    }
}

/// Where a body is stored; none, if it is not written yet. One that was written and is in no file any more has a place too, which
/// cannot be read: the damage is told to the command that needs that body, and nobody else suffers.
pub(super) fn place_in(journal: &dyn Journal, stored: journal::BodyId) -> Option<Place> {
    let missing = || (stored < journal.next_body()).then(|| Place::nowhere(stored));
    journal.place(stored).or_else(missing)
}

/// Where a message is stored: the parts before its body, its body, and what was changed of its properties, if that is stored. None,
/// if it is not written yet.
pub(super) fn all_places(message: &Delivery, place: impl Fn(BodyId) -> Option<Place>) -> Option<Vec<Place>> {
    let parts = message.extra.as_ref().map_or(&[][..], |extra| &extra.parts);
    let overlay = message.stored_overlay().map(|stored| stored.body);
    parts.iter().copied().chain([message.body]).chain(overlay).map(place).collect()
}
