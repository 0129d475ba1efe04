//! Open, begin, attach, detach, end, close and the error: frames that come a few times in a connection's life.
//! Owned; parts that we neither use nor judge are kept as values.

use super::{ATTACH, BEGIN, CLOSE, DETACH, END, ERROR, OPEN, ReceiverSettleMode, Role, SenderSettleMode};
use crate::fields::{Fields, descriptor, write_composite, write_optional};
use crate::terminus::{AnyTarget, Source};
use message::codec::{
    write_boolean, write_string, write_symbol, write_ubyte, write_uint, write_ulong, write_ushort,
};
use message::{Malformed, Reader, Value};
use std::borrow::Cow;

/// 2.8.14. Always written with its three fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub condition: Cow<'static, str>,
    pub description: Option<String>,
    pub info: Value,
}

impl Error {
    pub fn new(condition: &'static str, description: impl Into<String>) -> Error {
        Error { condition: condition.into(), description: Some(description.into()), info: Value::Null }
    }

    pub(crate) fn read(reader: &mut Reader<'_>, nodes: &mut u32) -> Result<Error, Malformed> {
        if descriptor(reader, &[("amqp:error:list", ERROR)])? != ERROR {
            return Err(Malformed::BadDescriptor);
        }
        let mut fields = Fields::open(reader, nodes)?;
        let error = Error {
            condition: fields.required(|reader| reader.symbol().map(str::to_owned))?.into(),
            description: fields.text()?,
            info: fields.value()?,
        };
        fields.finish()?;
        Ok(error)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        write_composite(out, ERROR, 3, |out| {
            write_symbol(out, &self.condition);
            write_optional(out, self.description.as_deref(), write_string);
            self.info.encode(out);
        });
    }
}

/// 2.7.1. The defaults are those of a field left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    pub container_id: String,
    pub hostname: Option<String>,
    pub max_frame_size: u32,
    pub channel_max: u16,
    /// Milliseconds.
    pub idle_time_out: Option<u32>,
    pub outgoing_locales: Value,
    pub incoming_locales: Value,
    pub offered_capabilities: Value,
    pub desired_capabilities: Value,
    pub properties: Value,
}

impl Default for Open {
    fn default() -> Open {
        Open {
            container_id: String::new(),
            hostname: None,
            max_frame_size: u32::MAX,
            channel_max: u16::MAX,
            idle_time_out: None,
            outgoing_locales: Value::Null,
            incoming_locales: Value::Null,
            offered_capabilities: Value::Null,
            desired_capabilities: Value::Null,
            properties: Value::Null,
        }
    }
}

impl Open {
    pub(super) fn read(reader: &mut Reader<'_>, nodes: &mut u32) -> Result<Open, Malformed> {
        let mut fields = Fields::open(reader, nodes)?;
        let open = Open {
            container_id: fields.required(Reader::string)?.into(),
            hostname: fields.text()?,
            max_frame_size: fields.next(Reader::uint)?.unwrap_or(u32::MAX),
            channel_max: fields.next(Reader::ushort)?.unwrap_or(u16::MAX),
            idle_time_out: fields.next(Reader::uint)?,
            outgoing_locales: fields.value()?,
            incoming_locales: fields.value()?,
            offered_capabilities: fields.value()?,
            desired_capabilities: fields.value()?,
            properties: fields.value()?,
        };
        fields.finish()?;
        Ok(open)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        write_composite(out, OPEN, 10, |out| {
            write_string(out, &self.container_id);
            write_optional(out, self.hostname.as_deref(), write_string);
            write_uint(out, self.max_frame_size);
            write_ushort(out, self.channel_max);
            write_optional(out, self.idle_time_out, write_uint);
            self.outgoing_locales.encode(out);
            self.incoming_locales.encode(out);
            self.offered_capabilities.encode(out);
            self.desired_capabilities.encode(out);
            self.properties.encode(out);
        });
    }
}

/// 2.7.2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begin {
    pub remote_channel: Option<u16>,
    pub next_outgoing_id: u32,
    pub incoming_window: u32,
    pub outgoing_window: u32,
    pub handle_max: u32,
    pub offered_capabilities: Value,
    pub desired_capabilities: Value,
    pub properties: Value,
}

impl Default for Begin {
    fn default() -> Begin {
        Begin {
            remote_channel: None,
            next_outgoing_id: 0,
            incoming_window: 0,
            outgoing_window: 0,
            handle_max: u32::MAX,
            offered_capabilities: Value::Null,
            desired_capabilities: Value::Null,
            properties: Value::Null,
        }
    }
}

impl Begin {
    pub(super) fn read(reader: &mut Reader<'_>, nodes: &mut u32) -> Result<Begin, Malformed> {
        let mut fields = Fields::open(reader, nodes)?;
        let begin = Begin {
            remote_channel: fields.next(Reader::ushort)?,
            next_outgoing_id: fields.required(Reader::uint)?,
            incoming_window: fields.required(Reader::uint)?,
            outgoing_window: fields.required(Reader::uint)?,
            handle_max: fields.next(Reader::uint)?.unwrap_or(u32::MAX),
            offered_capabilities: fields.value()?,
            desired_capabilities: fields.value()?,
            properties: fields.value()?,
        };
        fields.finish()?;
        Ok(begin)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        write_composite(out, BEGIN, 8, |out| {
            write_optional(out, self.remote_channel, write_ushort);
            write_uint(out, self.next_outgoing_id);
            write_uint(out, self.incoming_window);
            write_uint(out, self.outgoing_window);
            write_uint(out, self.handle_max);
            self.offered_capabilities.encode(out);
            self.desired_capabilities.encode(out);
            self.properties.encode(out);
        });
    }
}

/// 2.7.3. Settle modes stay as they came, absent ones absent: clients compare the reply with what they asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attach {
    pub name: String,
    pub handle: u32,
    pub role: Role,
    pub snd_settle_mode: Option<SenderSettleMode>,
    pub rcv_settle_mode: Option<ReceiverSettleMode>,
    pub source: Option<Source>,
    pub target: Option<AnyTarget>,
    pub unsettled: Value,
    pub incomplete_unsettled: bool,
    pub initial_delivery_count: Option<u32>,
    pub max_message_size: Option<u64>,
    pub offered_capabilities: Value,
    pub desired_capabilities: Value,
    pub properties: Value,
}

impl Attach {
    pub fn new(name: &str, handle: u32, role: Role) -> Attach {
        Attach {
            name: name.into(),
            handle,
            role,
            snd_settle_mode: None,
            rcv_settle_mode: None,
            source: None,
            target: None,
            unsettled: Value::Null,
            incomplete_unsettled: false,
            initial_delivery_count: None,
            max_message_size: None,
            offered_capabilities: Value::Null,
            desired_capabilities: Value::Null,
            properties: Value::Null,
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>, nodes: &mut u32) -> Result<Attach, Malformed> {
        let mut fields = Fields::open(reader, nodes)?;
        let attach = Attach {
            name: fields.required(Reader::string)?.into(),
            handle: fields.required(Reader::uint)?,
            role: fields.required(Role::read)?,
            snd_settle_mode: fields.next(SenderSettleMode::read)?,
            rcv_settle_mode: fields.next(ReceiverSettleMode::read)?,
            source: fields.composite(Source::read)?,
            target: fields.composite(AnyTarget::read)?,
            unsettled: fields.value()?,
            incomplete_unsettled: fields.flag()?,
            initial_delivery_count: fields.next(Reader::uint)?,
            max_message_size: fields.next(Reader::ulong)?,
            offered_capabilities: fields.value()?,
            desired_capabilities: fields.value()?,
            properties: fields.value()?,
        };
        fields.finish()?;
        Ok(attach)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        write_composite(out, ATTACH, 14, |out| {
            write_string(out, &self.name);
            write_uint(out, self.handle);
            write_boolean(out, self.role.is_receiver());
            write_optional(out, self.snd_settle_mode, |out, mode| write_ubyte(out, mode as u8));
            write_optional(out, self.rcv_settle_mode, |out, mode| write_ubyte(out, mode as u8));
            write_optional(out, self.source.as_ref(), |out, source| source.encode(out));
            write_optional(out, self.target.as_ref(), |out, target| target.encode(out));
            self.unsettled.encode(out);
            write_boolean(out, self.incomplete_unsettled);
            write_optional(out, self.initial_delivery_count, write_uint);
            write_optional(out, self.max_message_size, write_ulong);
            self.offered_capabilities.encode(out);
            self.desired_capabilities.encode(out);
            self.properties.encode(out);
        });
    }
}

/// 2.7.7.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detach {
    pub handle: u32,
    pub closed: bool,
    pub error: Option<Error>,
}

impl Detach {
    pub(super) fn read(reader: &mut Reader<'_>, nodes: &mut u32) -> Result<Detach, Malformed> {
        let mut fields = Fields::open(reader, nodes)?;
        let detach = Detach {
            handle: fields.required(Reader::uint)?,
            closed: fields.flag()?,
            error: fields.composite(Error::read)?,
        };
        fields.finish()?;
        Ok(detach)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        write_composite(out, DETACH, 3, |out| {
            write_uint(out, self.handle);
            write_boolean(out, self.closed);
            write_optional(out, self.error.as_ref(), |out, error| error.encode(out));
        });
    }
}

/// 2.7.8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    pub error: Option<Error>,
}

impl End {
    pub(super) fn read(reader: &mut Reader<'_>, nodes: &mut u32) -> Result<End, Malformed> {
        Ok(End { error: read_only_error(reader, nodes)? })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        write_only_error(out, END, self.error.as_ref());
    }
}

/// 2.7.9.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Close {
    pub error: Option<Error>,
}

impl Close {
    pub(super) fn read(reader: &mut Reader<'_>, nodes: &mut u32) -> Result<Close, Malformed> {
        Ok(Close { error: read_only_error(reader, nodes)? })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        write_only_error(out, CLOSE, self.error.as_ref());
    }
}

fn read_only_error(reader: &mut Reader<'_>, nodes: &mut u32) -> Result<Option<Error>, Malformed> {
    let mut fields = Fields::open(reader, nodes)?;
    let error = fields.composite(Error::read)?;
    fields.finish()?;
    Ok(error)
}

fn write_only_error(out: &mut Vec<u8>, kind: u64, error: Option<&Error>) {
    write_composite(out, kind, 1, |out| write_optional(out, error, |out, error| error.encode(out)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_of_one_field_has_the_defaults_of_the_specification() {
        let body = [0xc0, 4, 1, 0xa1, 1, b'c'];
        let open = Open::read(&mut Reader::new(&body), &mut 9).unwrap();
        assert_eq!(open, Open { container_id: "c".into(), ..Open::default() });
        assert_eq!((open.max_frame_size, open.channel_max), (u32::MAX, u16::MAX));
    }

    #[test]
    fn settle_modes_beyond_the_known_are_refused() {
        let mut bytes = Vec::new();
        let attach =
            Attach { snd_settle_mode: Some(SenderSettleMode::Mixed), ..Attach::new("n", 1, Role::Sender) };
        attach.encode(&mut bytes);
        assert_eq!(Attach::read(&mut Reader::new(&bytes[3..]), &mut 9), Ok(attach));
        let mode = bytes.windows(2).position(|pair| pair == [0x50, 2]).unwrap();
        bytes[mode + 1] = 3;
        let refused = Attach::read(&mut Reader::new(&bytes[3..]), &mut 9).unwrap_err();
        assert!(matches!(refused, Malformed::Unexpected { found: 3, .. }));
    }
}
