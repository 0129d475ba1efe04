//! What a receiver sees of a message besides what its sender wrote: the simulator writes each delivery as a door does, and
//! reads it as a client does.

use super::Oracle;
use broker::Delivery;
use message::{Sections, Stamp, Value};

/// The annotation that tells the state of a message, and the state of what was scheduled (S-8).
const STATE: &str = "x-opt-message-state";
const SCHEDULED: i32 = 2;

impl Oracle {
    /// A message that was delivered shows whether it was scheduled (K-8). `stored` is all of it, `overlay` what is stored of its
    /// changes.
    pub fn shown(&mut self, delivery: &Delivery, stored: &[u8], overlay: &[u8]) {
        let front = delivery.extra.as_ref().and_then(|extra| extra.parts.first());
        let Some(number) = self.ledger.numbers.get(front.unwrap_or(&delivery.body)).copied() else { return };
        let was_scheduled = self.messages[self.messages[number].root].has_waited;
        match state_of(delivery, stored, overlay) {
            None => self.fail(format!("message {number} cannot be written for its receiver")),
            Some(state) if state != was_scheduled.then_some(SCHEDULED) => {
                self.fail(format!("K-8: message {number} is delivered with the state {state:?}"));
            }
            Some(_) if was_scheduled => self.coverage.variant("scheduled message delivered"),
            Some(_) => {}
        }
    }
}

/// The state that a delivery shows, if any; nothing if it cannot be written or read.
fn state_of(delivery: &Delivery, stored: &[u8], overlay: &[u8]) -> Option<Option<i32>> {
    let stamp = Stamp {
        delivery_count: delivery.count,
        sequence: delivery.number.0 as i64,
        enqueued: delivery.enqueued.0,
        locked_until: delivery.locked_until.map(|until| until.0),
        enqueued_sequence: delivery.first.map(|number| number.0 as i64),
        is_delivered: true,
        was_scheduled: delivery.was_scheduled,
        ..Stamp::default()
    };
    let changes = delivery.changes(overlay).ok()?;
    let mut out = Vec::new();
    let sections = Sections::scan(stored).ok()?;
    message::delivery::encode(&mut out, stored, &sections, &stamp, changes.as_deref()).ok()?;
    let sections = Sections::scan(&out).ok()?;
    let Value::Map(annotations) = Value::decode(sections.message_annotations.value(&out)?).ok()? else {
        return None;
    };
    Some(annotations.into_iter().find_map(|(name, state)| match (name, state) {
        (Value::Symbol(name), Value::Int(state)) if name == STATE => Some(state),
        _ => None,
    }))
}
