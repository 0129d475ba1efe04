//! Another implementation reads what we write, writes what it read, and we read the same: so both directions agree
//! with an independent reading of the specification.

use crate::arbitrary::performative;
use fe2o3_amqp_types::performatives::Performative as Theirs;
use fe2o3_amqp_types::sasl::{SaslInit, SaslMechanisms, SaslOutcome};
use fe2o3_amqp_types::transaction::{Declare, Discharge};
use message::Value;
use otobus_amqp::limits::FRAME_NODES;
use otobus_amqp::performative::{Attach, Performative};
use otobus_amqp::sasl::Sasl;
use otobus_amqp::{AnyTarget, ReceiverSettleMode, SaslCode, SenderSettleMode, frame, transaction::Request};
use proptest::prelude::*;

/// The other implementation does not tell a default that was written from one that was left out, and chooses
/// its own width for a map that we keep as it was encoded.
fn normal(mut performative: Performative<'static>) -> Performative<'static> {
    match &mut performative {
        Performative::Attach(attach) => leave_defaults_out(attach),
        Performative::Flow(flow) => {
            flow.properties = flow.properties.map(|encoded| {
                let mut again = Vec::new();
                Value::decode(encoded).expect("a map").encode(&mut again);
                &*Vec::leak(again)
            });
        }
        _ => {}
    }
    performative
}

fn leave_defaults_out(attach: &mut Attach) {
    attach.snd_settle_mode = attach.snd_settle_mode.filter(|mode| *mode != SenderSettleMode::Mixed);
    attach.rcv_settle_mode = attach.rcv_settle_mode.filter(|mode| *mode != ReceiverSettleMode::First);
    let terminus = |durable: &mut Option<u32>,
                    policy: &mut Option<String>,
                    timeout: &mut Option<u32>,
                    dynamic: &mut Option<bool>| {
        *durable = durable.filter(|durable| *durable != 0);
        *policy = policy.take().filter(|policy| policy != "session-end");
        *timeout = timeout.filter(|timeout| *timeout != 0);
        *dynamic = dynamic.filter(|dynamic| *dynamic);
    };
    if let Some(source) = &mut attach.source {
        terminus(&mut source.durable, &mut source.expiry_policy, &mut source.timeout, &mut source.dynamic);
    }
    if let Some(AnyTarget::Target(target)) = &mut attach.target {
        terminus(&mut target.durable, &mut target.expiry_policy, &mut target.timeout, &mut target.dynamic);
    }
}

/// Through the other implementation and back.
fn through_theirs(ours: &Performative<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    ours.encode(&mut bytes);
    let theirs: Theirs = serde_amqp::from_slice(&bytes).expect("they read what we write");
    serde_amqp::to_vec(&theirs).expect("they write what they read")
}

proptest! {
    #[test]
    fn another_implementation_reads_and_writes_the_same(ours in performative()) {
        let bytes = Vec::leak(through_theirs(&ours));
        let mut nodes = FRAME_NODES;
        let (again, rest) = Performative::decode(bytes, &mut nodes).expect("we read what they write");
        prop_assert!(rest.is_empty());
        prop_assert_eq!(normal(again), normal(ours));
    }
}

fn body(sasl: &Sasl<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    sasl.write(&mut out);
    out[frame::HEADER_BYTES..].to_vec()
}

#[test]
fn sasl_frames_mean_the_same_to_another_implementation() {
    let ours = Sasl::Mechanisms(vec!["MSSBCBS".into(), "ANONYMOUS".into()]);
    let theirs: SaslMechanisms = serde_amqp::from_slice(&body(&ours)).unwrap();
    assert_eq!(theirs.sasl_server_mechanisms.0.len(), 2);
    assert_eq!(Sasl::decode(&serde_amqp::to_vec(&theirs).unwrap(), &mut 99), Ok(ours));

    let ours = Sasl::Init { mechanism: "PLAIN", initial_response: Some(b"\0u\0p"), hostname: Some("h") };
    let theirs: SaslInit = serde_amqp::from_slice(&body(&ours)).unwrap();
    assert_eq!((theirs.mechanism.as_str(), theirs.hostname.as_deref()), ("PLAIN", Some("h")));
    assert_eq!(Sasl::decode(&serde_amqp::to_vec(&theirs).unwrap(), &mut 99), Ok(ours));

    let ours = Sasl::Outcome { code: SaslCode::Auth, additional_data: None };
    let theirs: SaslOutcome = serde_amqp::from_slice(&body(&ours)).unwrap();
    assert_eq!(Sasl::decode(&serde_amqp::to_vec(&theirs).unwrap(), &mut 99), Ok(ours));
}

#[test]
fn transaction_requests_of_another_implementation_are_understood() {
    let in_a_value = |body: Vec<u8>| [&[0x00, 0x53, 0x77][..], &body].concat();
    let declare = in_a_value(serde_amqp::to_vec(&Declare { global_id: None }).unwrap());
    assert_eq!(Request::decode(&declare), Ok(Request::Declare));
    let discharge = Discharge { txn_id: vec![1, 2].into(), fail: Some(true) };
    let discharge = in_a_value(serde_amqp::to_vec(&discharge).unwrap());
    assert_eq!(Request::decode(&discharge), Ok(Request::Discharge { txn_id: &[1, 2], fail: true }));
}
