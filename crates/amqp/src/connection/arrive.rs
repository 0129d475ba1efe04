//! Deliveries coming in, frame by frame. The door assembles them; here they are counted, so that no delivery grows past
//! its link's maximum, no connection past its budget, and no link has two of them unfinished.

use super::receive::{Handled, unattached};
use super::{Connection, Event, LinkKey, SessionKey};
use crate::condition::{INVALID_FIELD, MESSAGE_SIZE_EXCEEDED, NOT_ALLOWED, RESOURCE_LIMIT_EXCEEDED};
use crate::limits;
use crate::link::{Arriving, Link};
use crate::performative::{Error, Role, Transfer};
use crate::state::State;

/// What becomes of one frame of a delivery.
enum Fate {
    Given,
    /// The sender gave the delivery up, or it grew too large: what was given before is void.
    Aborted,
    /// Part of a delivery that is void already.
    Dropped,
    /// The last frame of a delivery that grew too large. Reported only now, because Go hears no disposition before it
    /// has written its last frame.
    TooLarge(Option<State>),
    /// A limit was broken that costs the link.
    Forbidden(&'static str, &'static str),
}

impl Connection {
    pub(super) fn on_transfer<'a>(
        &mut self,
        session: SessionKey,
        transfer: Transfer<'a>,
        payload: &'a [u8],
    ) -> Handled<'a> {
        let Some(owner) = self.sessions.get_mut(session.0) else { return Ok(None) };
        if owner.count_incoming() {
            let flow = owner.flow();
            self.out.frame(owner.channel, |out| flow.encode(out));
        }
        let key = owner.link_at(transfer.handle).ok_or_else(|| unattached(transfer.handle))?;
        let Some(link) = self.links.get_mut(key.0).filter(|link| !link.is_detaching()) else {
            // Nobody hears of it, but for the transaction that it was to be part of.
            return Ok(transfer.state.map(|state| Event::Unheard { link: key, state }));
        };
        if link.role != Role::Receiver {
            return Err(Error::new(NOT_ALLOWED, "a transfer on a link that the client receives on"));
        }
        let first = link.arriving.is_none();
        // AMQP 1.0 part 2, 2.8.7
        if let Some(tag) = transfer.delivery_tag.filter(|tag| tag.len() > limits::TAG_BYTES) {
            let text = format!("a delivery tag of {} bytes exceeds {}", tag.len(), limits::TAG_BYTES);
            return Err(Error::new(INVALID_FIELD, text));
        }
        let delivery = match link.arriving.take() {
            None => begin_delivery(link, &transfer)?,
            Some(delivery) => continue_delivery(delivery, &transfer)?,
        };
        let (delivery_id, format, settled) = (delivery.delivery_id, delivery.format, delivery.settled);
        let budget =
            if self.has_claim { limits::UNFINISHED_BYTES } else { limits::UNFINISHED_BYTES_BEFORE_CLAIM };
        let bytes = payload.len() as u64;
        let fate = advance(link, delivery, &transfer, first, bytes, &mut self.arriving_bytes, budget);
        let aborted = match fate {
            Fate::Given => false,
            Fate::Aborted => true,
            Fate::Dropped => return Ok(None),
            Fate::TooLarge(state) => {
                return Ok(Some(Event::TooLarge { link: key, delivery_id, settled, state }));
            }
            Fate::Forbidden(condition, text) => return Ok(Some(self.force_detach(key, condition, text))),
        };
        Ok(Some(Event::Transfer {
            link: key,
            delivery_id,
            tag: transfer.delivery_tag.unwrap_or_default(),
            format,
            settled,
            state: transfer.state,
            payload: if aborted { &[] } else { payload },
            first,
            more: transfer.more && !aborted,
            aborted,
        }))
    }

    /// Detaches a link that broke a limit; the client's detach is still to come.
    fn force_detach<'a>(&mut self, link: LinkKey, condition: &'static str, text: &str) -> Event<'a> {
        let error = Error::new(condition, text);
        self.detach(link, Some(&error));
        Event::Detach { link, closed: true, error: Some(error) }
    }

    /// The door has passed on the first `bytes` of the delivery that is arriving on a link: it holds them no longer.
    pub fn passed_on(&mut self, link: LinkKey, bytes: u64) {
        let arriving = self.links.get_mut(link.0).and_then(|link| link.arriving.as_mut());
        if let Some(delivery) = arriving {
            self.arriving_bytes -= delivery.counted_bytes();
            delivery.passed_on = bytes;
            self.arriving_bytes += delivery.counted_bytes();
        }
    }

    /// Gives back the budget of a delivery that will not end.
    pub(super) fn forget_arriving(&mut self, delivery: Option<Arriving>) {
        self.arriving_bytes -= delivery.map_or(0, |delivery| delivery.counted_bytes());
    }
}

/// Adds a frame to its delivery, decides its fate, and keeps the delivery if more is to come.
fn advance(
    link: &mut Link,
    mut delivery: Arriving,
    transfer: &Transfer<'_>,
    is_first: bool,
    payload_bytes: u64,
    arriving_bytes: &mut u64,
    budget: u64,
) -> Fate {
    *arriving_bytes -= delivery.counted_bytes();
    delivery.bytes += payload_bytes;
    if transfer.aborted {
        return Fate::Aborted;
    }
    if is_first && transfer.more {
        delivery.state.clone_from(&transfer.state);
    }
    let is_too_large = delivery.bytes > link.max_message_bytes;
    if delivery.bytes > link.max_message_bytes.saturating_add(limits::DISCARDED_BYTES) {
        return Fate::Forbidden(MESSAGE_SIZE_EXCEEDED, "the message does not end");
    }
    if !transfer.more {
        let state = if is_first { transfer.state.clone() } else { delivery.state };
        return if is_too_large { Fate::TooLarge(state) } else { Fate::Given };
    }
    let was_void = delivery.is_discarded || is_first;
    delivery.is_discarded = is_too_large;
    *arriving_bytes += delivery.counted_bytes();
    link.arriving = Some(delivery);
    match is_too_large {
        true if was_void => Fate::Dropped,
        true => Fate::Aborted,
        false if *arriving_bytes > budget => {
            Fate::Forbidden(RESOURCE_LIMIT_EXCEEDED, "too many bytes of unfinished messages")
        }
        false => Fate::Given,
    }
}

fn begin_delivery(link: &mut Link, transfer: &Transfer<'_>) -> Result<Arriving, Error> {
    link.count_delivery();
    let delivery_id = transfer
        .delivery_id
        .ok_or_else(|| Error::new(INVALID_FIELD, "the first transfer of a delivery has no delivery-id"))?;
    Ok(Arriving {
        delivery_id,
        format: transfer.message_format.unwrap_or(0),
        settled: transfer.settled.unwrap_or(false),
        state: None,
        bytes: 0,
        passed_on: 0,
        is_discarded: false,
    })
}

/// Later frames may leave the id out or repeat it; another id would be a second delivery before the first ended.
fn continue_delivery(mut delivery: Arriving, transfer: &Transfer<'_>) -> Result<Arriving, Error> {
    if transfer.delivery_id.is_some_and(|id| id != delivery.delivery_id) {
        let text = format!("delivery {} is not complete", delivery.delivery_id);
        return Err(Error::new(NOT_ALLOWED, text));
    }
    delivery.settled |= transfer.settled.unwrap_or(false);
    Ok(delivery)
}
