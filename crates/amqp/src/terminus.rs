//! Sources, targets and the transaction coordinator (AMQP 1.0 part 3, 3.5, and part 4, 4.5.1).
//!
//! What a client wrote is kept as it came, because an attach reply repeats it: Python compares the echoed address with
//! its own, and Go and .NET each need the session filter in the shape that they sent.

use crate::fields::{Fields, descriptor, write_composite, write_optional};
use message::codec::{write_boolean, write_string, write_symbol, write_uint};
use message::{Malformed, Reader, Value};

pub(crate) const SOURCE: u64 = 0x28;
pub(crate) const TARGET: u64 = 0x29;
pub(crate) const COORDINATOR: u64 = 0x30;

const NAMES: [(&str, u64); 3] =
    [("amqp:source:list", SOURCE), ("amqp:target:list", TARGET), ("amqp:coordinator:list", COORDINATOR)];

/// Where messages come from. Fields that we neither use nor judge are kept as values and given back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Source {
    pub address: Option<String>,
    pub durable: Option<u32>,
    pub expiry_policy: Option<String>,
    pub timeout: Option<u32>,
    pub dynamic: Option<bool>,
    pub dynamic_node_properties: Value,
    pub distribution_mode: Option<String>,
    pub filter: Value,
    pub default_outcome: Value,
    pub outcomes: Value,
    pub capabilities: Value,
}

/// Where messages go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    pub address: Option<String>,
    pub durable: Option<u32>,
    pub expiry_policy: Option<String>,
    pub timeout: Option<u32>,
    pub dynamic: Option<bool>,
    pub dynamic_node_properties: Value,
    pub capabilities: Value,
}

/// Where transactions are declared and discharged. It has no address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Coordinator {
    pub capabilities: Value,
}

/// What may stand in the target field of an attach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnyTarget {
    Target(Target),
    Coordinator(Coordinator),
}

impl AnyTarget {
    pub fn address(&self) -> Option<&str> {
        match self {
            AnyTarget::Target(target) => target.address.as_deref(),
            AnyTarget::Coordinator(_) => None,
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>, nodes: &mut u32) -> Result<AnyTarget, Malformed> {
        let kind = descriptor(reader, &NAMES)?;
        let mut fields = Fields::open(reader, nodes)?;
        let target = match kind {
            TARGET => AnyTarget::Target(Target {
                address: fields.text()?,
                durable: fields.next(Reader::uint)?,
                expiry_policy: fields.next(symbol)?,
                timeout: fields.next(Reader::uint)?,
                dynamic: fields.next(Reader::boolean)?,
                dynamic_node_properties: fields.value()?,
                capabilities: fields.value()?,
            }),
            COORDINATOR => AnyTarget::Coordinator(Coordinator { capabilities: fields.value()? }),
            _ => return Err(Malformed::BadDescriptor),
        };
        fields.finish()?;
        Ok(target)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            AnyTarget::Target(target) => write_composite(out, TARGET, 7, |out| {
                write_optional(out, target.address.as_deref(), write_string);
                write_optional(out, target.durable, write_uint);
                write_optional(out, target.expiry_policy.as_deref(), write_symbol);
                write_optional(out, target.timeout, write_uint);
                write_optional(out, target.dynamic, write_boolean);
                target.dynamic_node_properties.encode(out);
                target.capabilities.encode(out);
            }),
            AnyTarget::Coordinator(coordinator) => {
                write_composite(out, COORDINATOR, 1, |out| coordinator.capabilities.encode(out));
            }
        }
    }
}

impl Source {
    pub(crate) fn read(reader: &mut Reader<'_>, nodes: &mut u32) -> Result<Source, Malformed> {
        if descriptor(reader, &NAMES)? != SOURCE {
            return Err(Malformed::BadDescriptor);
        }
        let mut fields = Fields::open(reader, nodes)?;
        let source = Source {
            address: fields.text()?,
            durable: fields.next(Reader::uint)?,
            expiry_policy: fields.next(symbol)?,
            timeout: fields.next(Reader::uint)?,
            dynamic: fields.next(Reader::boolean)?,
            dynamic_node_properties: fields.value()?,
            distribution_mode: fields.next(symbol)?,
            filter: fields.value()?,
            default_outcome: fields.value()?,
            outcomes: fields.value()?,
            capabilities: fields.value()?,
        };
        fields.finish()?;
        Ok(source)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        write_composite(out, SOURCE, 11, |out| {
            write_optional(out, self.address.as_deref(), write_string);
            write_optional(out, self.durable, write_uint);
            write_optional(out, self.expiry_policy.as_deref(), write_symbol);
            write_optional(out, self.timeout, write_uint);
            write_optional(out, self.dynamic, write_boolean);
            self.dynamic_node_properties.encode(out);
            write_optional(out, self.distribution_mode.as_deref(), write_symbol);
            self.filter.encode(out);
            self.default_outcome.encode(out);
            self.outcomes.encode(out);
            self.capabilities.encode(out);
        });
    }
}

/// A symbol, strictly: it is written back as one, so it must be ASCII.
fn symbol(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    reader.symbol().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_the_address_that_was_asked_for_and_a_coordinator_has_none() {
        let target = |address: Option<&str>| {
            AnyTarget::Target(Target { address: address.map(Into::into), ..Target::default() })
        };
        assert_eq!(target(Some("q1")).address(), Some("q1"));
        assert_eq!(target(Some("")).address(), Some(""));
        assert_eq!(target(None).address(), None);
        assert_eq!(AnyTarget::Coordinator(Coordinator::default()).address(), None);
    }

    #[test]
    fn a_described_filter_comes_back_in_its_shape() {
        // Go sends and needs a described value, .NET a plain one, next-session a null.
        let key = || Value::Symbol("com.microsoft:session-filter".into());
        let described = Value::Described(Box::new((Value::Ulong(0x13_7000_000c), "s1".into())));
        for value in [described, "s1".into(), Value::Null] {
            let source = Source { filter: Value::Map(vec![(key(), value)]), ..Source::default() };
            let mut bytes = Vec::new();
            source.encode(&mut bytes);
            assert_eq!(Source::read(&mut Reader::new(&bytes), &mut 99), Ok(source));
        }
    }

    #[test]
    fn every_field_is_written() {
        // the byte behind the list's size is its count.
        let mut bytes = Vec::new();
        Source::default().encode(&mut bytes);
        assert_eq!(bytes[..6], [0x00, 0x53, 0x28, 0xc0, 12, 11]);
        bytes.clear();
        AnyTarget::Target(Target::default()).encode(&mut bytes);
        assert_eq!(bytes[..6], [0x00, 0x53, 0x29, 0xc0, 8, 7]);
    }
}
