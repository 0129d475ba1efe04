//! What is written is read back.

use crate::arbitrary::performative;
use otobus_amqp::frame;
use otobus_amqp::limits::FRAME_NODES;
use otobus_amqp::performative::Performative;
use proptest::prelude::*;

proptest! {
    #[test]
    fn every_performative_is_read_back(
        performative in performative(),
        channel: u16,
        payload in proptest::collection::vec(any::<u8>(), 0..50),
    ) {
        let mut out = Vec::new();
        let size = performative.write(&mut out, channel, &payload);
        prop_assert_eq!(size as usize, out.len());
        let mut input = &out[..];
        let frame = frame::split(&mut input, size).unwrap().unwrap();
        prop_assert_eq!((frame.channel, input.len()), (channel, 0));
        let mut nodes = FRAME_NODES;
        let (read, rest) = Performative::decode(frame.body, &mut nodes).unwrap();
        prop_assert_eq!((read, rest), (performative, &payload[..]));
    }

    #[test]
    fn a_performative_cut_short_is_refused(performative in performative(), cut: prop::sample::Index) {
        let mut out = Vec::new();
        performative.encode(&mut out);
        out.truncate(cut.index(out.len()));
        let mut nodes = FRAME_NODES;
        prop_assert!(Performative::decode(&out, &mut nodes).is_err());
    }
}
