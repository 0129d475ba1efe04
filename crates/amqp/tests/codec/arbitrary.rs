//! Performatives of every shape, for properties over all of them. Strategies are boxed, because unoptimised ones of this
//! size do not fit the stack of a test thread.

use message::Value;
use message::value::Array;
use otobus_amqp::performative::{
    Attach, Begin, Close, Detach, Disposition, End, Flow, Open, Performative, Transfer,
};
use otobus_amqp::{
    AnyTarget, Coordinator, Error, ReceiverSettleMode, Role, SenderSettleMode, Source, State, Target,
};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

/// A value of a frame's cold parts. No floats and decimals: the message room proves those.
fn value() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Boolean),
        any::<u32>().prop_map(Value::Uint),
        any::<u64>().prop_map(Value::Ulong),
        any::<i32>().prop_map(Value::Int),
        any::<i64>().prop_map(Value::Long),
        any::<i64>().prop_map(Value::Timestamp),
        any::<[u8; 16]>().prop_map(Value::Uuid),
        vec(any::<u8>(), 0..300).prop_map(Value::Binary),
        "\\PC{0,20}".prop_map(Value::String),
        symbol().prop_map(Value::Symbol),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::List),
            (0x1_0000_0000_u64.., inner)
                .prop_map(|(code, value)| { Value::Described(Box::new((Value::Ulong(code), value))) }),
        ]
    })
    .boxed()
}

fn symbol() -> BoxedStrategy<String> {
    "[a-z:.-]{1,30}".boxed()
}

/// Null, or a map with symbols as keys.
fn fields() -> BoxedStrategy<Value> {
    let entries = proptest::collection::btree_map(symbol(), value(), 0..4);
    of(entries)
        .prop_map(|entries| match entries {
            None => Value::Null,
            Some(map) => {
                Value::Map(map.into_iter().map(|(key, value)| (Value::Symbol(key), value)).collect())
            }
        })
        .boxed()
}

/// Null, or several symbols.
fn symbols() -> BoxedStrategy<Value> {
    let array = |names: Vec<String>| {
        let elements = names.into_iter().map(Value::Symbol).collect();
        Value::Array(Array::of(&Value::Symbol(String::new()), elements))
    };
    prop_oneof![Just(Value::Null), vec(symbol(), 1..4).prop_map(array)].boxed()
}

fn error() -> BoxedStrategy<Error> {
    (symbol(), of("\\PC{0,20}"), fields())
        .prop_map(|(condition, description, info)| Error {
            condition: format!("x-{condition}").into(),
            description,
            info,
        })
        .boxed()
}

fn outcome() -> BoxedStrategy<State> {
    prop_oneof![
        Just(State::Accepted),
        Just(State::Released),
        of(error()).prop_map(|error| State::Rejected(error.map(Box::new))),
        (any::<bool>(), any::<bool>(), fields()).prop_map(
            |(delivery_failed, undeliverable_here, message_annotations)| State::Modified {
                delivery_failed,
                undeliverable_here,
                message_annotations,
            }
        ),
    ]
    .boxed()
}

fn state() -> BoxedStrategy<State> {
    let txn_id = || vec(any::<u8>(), 0..33);
    prop_oneof![
        outcome(),
        (any::<u32>(), any::<u64>())
            .prop_map(|(section_number, section_offset)| State::Received { section_number, section_offset }),
        txn_id().prop_map(|txn_id| State::Declared { txn_id }),
        (txn_id(), of(outcome()))
            .prop_map(|(txn_id, outcome)| State::Transactional { txn_id, outcome: outcome.map(Box::new) }),
    ]
    .boxed()
}

fn role() -> BoxedStrategy<Role> {
    prop_oneof![Just(Role::Sender), Just(Role::Receiver)].boxed()
}

fn snd_settle_mode() -> BoxedStrategy<Option<SenderSettleMode>> {
    of(prop_oneof![
        Just(SenderSettleMode::Unsettled),
        Just(SenderSettleMode::Settled),
        Just(SenderSettleMode::Mixed)
    ])
    .boxed()
}

fn rcv_settle_mode() -> BoxedStrategy<Option<ReceiverSettleMode>> {
    of(prop_oneof![Just(ReceiverSettleMode::First), Just(ReceiverSettleMode::Second)]).boxed()
}

fn expiry_policy() -> BoxedStrategy<Option<String>> {
    of(prop_oneof![Just("link-detach"), Just("session-end"), Just("never")].prop_map(String::from)).boxed()
}

fn source() -> BoxedStrategy<Source> {
    let node = (of("\\PC{0,40}"), of(0..3_u32), expiry_policy(), of(any::<u32>()), of(any::<bool>()));
    let mode = of(prop_oneof![Just("move"), Just("copy")].prop_map(String::from));
    (node, fields(), mode, fields(), symbols(), symbols())
        .prop_map(|(node, dynamic_node_properties, distribution_mode, filter, outcomes, capabilities)| {
            let (address, durable, expiry_policy, timeout, dynamic) = node;
            Source {
                address,
                durable,
                expiry_policy,
                timeout,
                dynamic,
                dynamic_node_properties,
                distribution_mode,
                filter,
                default_outcome: Value::Null,
                outcomes,
                capabilities,
            }
        })
        .boxed()
}

fn target() -> BoxedStrategy<AnyTarget> {
    let node = (of("\\PC{0,40}"), of(0..3_u32), expiry_policy(), of(any::<u32>()), of(any::<bool>()));
    let target = (node, fields(), symbols()).prop_map(|(node, dynamic_node_properties, capabilities)| {
        let (address, durable, expiry_policy, timeout, dynamic) = node;
        AnyTarget::Target(Target {
            address,
            durable,
            expiry_policy,
            timeout,
            dynamic,
            dynamic_node_properties,
            capabilities,
        })
    });
    prop_oneof![4 => target, 1 => Just(AnyTarget::Coordinator(Coordinator::default()))].boxed()
}

fn open() -> BoxedStrategy<Open> {
    (
        ("\\PC{0,40}", of("\\PC{0,40}"), any::<u32>(), any::<u16>(), of(any::<u32>())),
        (symbols(), symbols(), symbols(), symbols(), fields()),
    )
        .prop_map(|((container_id, hostname, max_frame_size, channel_max, idle_time_out), rest)| {
            let (outgoing_locales, incoming_locales, offered_capabilities, desired_capabilities, properties) =
                rest;
            Open {
                container_id,
                hostname,
                max_frame_size,
                channel_max,
                idle_time_out,
                outgoing_locales,
                incoming_locales,
                offered_capabilities,
                desired_capabilities,
                properties,
            }
        })
        .boxed()
}

fn begin() -> BoxedStrategy<Begin> {
    ((of(any::<u16>()), any::<[u32; 4]>()), (symbols(), symbols(), fields()))
        .prop_map(|((remote_channel, numbers), (offered_capabilities, desired_capabilities, properties))| {
            let [next_outgoing_id, incoming_window, outgoing_window, handle_max] = numbers;
            Begin {
                remote_channel,
                next_outgoing_id,
                incoming_window,
                outgoing_window,
                handle_max,
                offered_capabilities,
                desired_capabilities,
                properties,
            }
        })
        .boxed()
}

fn attach() -> BoxedStrategy<Attach> {
    (
        ("\\PC{0,40}", any::<u32>(), role(), snd_settle_mode(), rcv_settle_mode()),
        (of(source()), of(target()), any::<bool>(), of(any::<u32>()), of(any::<u64>())),
        (symbols(), symbols(), fields()),
    )
        .prop_map(|((name, handle, role, snd_settle_mode, rcv_settle_mode), ends, rest)| {
            let (source, target, incomplete_unsettled, initial_delivery_count, max_message_size) = ends;
            let (offered_capabilities, desired_capabilities, properties) = rest;
            Attach {
                snd_settle_mode,
                rcv_settle_mode,
                source,
                target,
                incomplete_unsettled,
                initial_delivery_count,
                max_message_size,
                offered_capabilities,
                desired_capabilities,
                properties,
                ..Attach::new(&name, handle, role)
            }
        })
        .boxed()
}

fn flow() -> BoxedStrategy<Flow<'static>> {
    (any::<[u32; 3]>(), proptest::array::uniform5(of(any::<u32>())), any::<[bool; 2]>(), fields())
        .prop_map(
            |([incoming_window, next_outgoing_id, outgoing_window], optional, [drain, echo], properties)| {
                let [next_incoming_id, handle, delivery_count, link_credit, available] = optional;
                let mut encoded = Vec::new();
                properties.encode(&mut encoded);
                Flow {
                    next_incoming_id,
                    incoming_window,
                    next_outgoing_id,
                    outgoing_window,
                    handle,
                    delivery_count,
                    link_credit,
                    available,
                    drain,
                    echo,
                    properties: (!properties.is_null()).then(|| &*Vec::leak(encoded)),
                }
            },
        )
        .boxed()
}

fn transfer() -> BoxedStrategy<Transfer<'static>> {
    (
        (any::<u32>(), of(any::<u32>()), of(vec(any::<u8>(), 0..33)), of(any::<u32>())),
        (of(any::<bool>()), rcv_settle_mode(), of(state()), any::<[bool; 4]>()),
    )
        .prop_map(|((handle, delivery_id, tag, message_format), rest)| {
            let (settled, rcv_settle_mode, state, [more, resume, aborted, batchable]) = rest;
            Transfer {
                handle,
                delivery_id,
                delivery_tag: tag.map(|tag| &*Vec::leak(tag)),
                message_format,
                settled,
                more,
                rcv_settle_mode,
                state,
                resume,
                aborted,
                batchable,
            }
        })
        .boxed()
}

fn disposition() -> BoxedStrategy<Disposition> {
    (role(), any::<u32>(), of(any::<u32>()), any::<[bool; 2]>(), of(state()))
        .prop_map(|(role, first, last, [settled, batchable], state)| Disposition {
            role,
            first,
            last,
            settled,
            state,
            batchable,
        })
        .boxed()
}

pub fn performative() -> BoxedStrategy<Performative<'static>> {
    prop_oneof![
        open().prop_map(|open| Performative::Open(Box::new(open))),
        begin().prop_map(|begin| Performative::Begin(Box::new(begin))),
        attach().prop_map(|attach| Performative::Attach(Box::new(attach))),
        flow().prop_map(Performative::Flow),
        transfer().prop_map(Performative::Transfer),
        disposition().prop_map(Performative::Disposition),
        (any::<u32>(), any::<bool>(), of(error()))
            .prop_map(|(handle, closed, error)| Performative::Detach(Detach { handle, closed, error })),
        of(error()).prop_map(|error| Performative::End(End { error })),
        of(error()).prop_map(|error| Performative::Close(Close { error })),
    ]
    .boxed()
}

/// A performative with small numbers, so that sessions and links of a sequence meet each other.
pub fn plausible() -> BoxedStrategy<(u16, Performative<'static>)> {
    (0..3_u16, performative(), 0..3_u32, 0..4_u32)
        .prop_map(|(channel, mut performative, handle, small)| {
            match &mut performative {
                Performative::Attach(attach) => attach.handle = handle,
                Performative::Detach(detach) => detach.handle = handle,
                Performative::Transfer(transfer) => {
                    transfer.handle = handle;
                    transfer.delivery_id = transfer.delivery_id.map(|_| small);
                }
                Performative::Flow(flow) => {
                    flow.handle = flow.handle.map(|_| handle);
                    flow.delivery_count = flow.delivery_count.map(|_| small);
                    flow.next_incoming_id = flow.next_incoming_id.map(|_| small);
                }
                Performative::Disposition(disposition) => disposition.first = small,
                _ => {}
            }
            (channel, performative)
        })
        .boxed()
}
