//! Offers: replacing what is provisioned (P-77).

use super::Scene;
use crate::account::Decided;
use crate::definition::{Definitions, Offer, offer, show};
use crate::record::Event;
use crate::{Answer, Refusal};

impl Scene<'_> {
    pub fn replace_offer(&self, segment: &str, body: &[u8]) -> Result<Decided, Refusal> {
        let before = self.definitions.offer(segment)?;
        let throughput = offer::read(body)?;
        let after = Offer {
            throughput,
            most: before.most.max(offer::units(throughput)),
            stamp: self.definitions.next_stamp(self.now),
            ..before
        };
        let event = Event::OfferReplaced { offer: before.number, throughput };
        Ok(self.decided(vec![event], Answer::Found(show::offer(self.definitions, &after))))
    }
}

impl Definitions {
    pub fn offer(&self, segment: &str) -> Result<Offer, Refusal> {
        let is_it = |offer: &Offer| show::offer_rid(offer) == segment;
        self.offers_told().into_iter().find(is_it).ok_or(Refusal::NotFound)
    }
}
