//! The SASL layer's frames (AMQP 1.0 part 5, 5.3.3). All official clients begin with it; what a mechanism means is
//! the door's business.

use crate::fields::{Fields, descriptor, write_composite, write_optional};
use crate::frame::{self, Kind};
use message::codec::{self, code, write_binary, write_string, write_symbol, write_ubyte};
use message::{Malformed, Reader, Value};

const MECHANISMS: u64 = 0x40;
const INIT: u64 = 0x41;
const CHALLENGE: u64 = 0x42;
const RESPONSE: u64 = 0x43;
const OUTCOME: u64 = 0x44;

const NAMES: [(&str, u64); 5] = [
    ("amqp:sasl-mechanisms:list", MECHANISMS),
    ("amqp:sasl-init:list", INIT),
    ("amqp:sasl-challenge:list", CHALLENGE),
    ("amqp:sasl-response:list", RESPONSE),
    ("amqp:sasl-outcome:list", OUTCOME),
];

/// How the exchange ended (5.3.3.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaslCode {
    Ok = 0,
    Auth = 1,
    System = 2,
    SystemPermanent = 3,
    SystemTemporary = 4,
}

/// One SASL frame's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sasl<'a> {
    Mechanisms(Vec<String>),
    Init { mechanism: &'a str, initial_response: Option<&'a [u8]>, hostname: Option<&'a str> },
    Challenge(&'a [u8]),
    Response(&'a [u8]),
    Outcome { code: SaslCode, additional_data: Option<&'a [u8]> },
}

impl<'a> Sasl<'a> {
    pub fn decode(body: &'a [u8], nodes: &mut u32) -> Result<Sasl<'a>, Malformed> {
        let mut reader = Reader::new(body);
        let kind = descriptor(&mut reader, &NAMES)?;
        let mut fields = Fields::open(&mut reader, nodes)?;
        let sasl = match kind {
            MECHANISMS => Sasl::Mechanisms(mechanisms(fields.value()?)?),
            INIT => Sasl::Init {
                mechanism: fields.required(Reader::symbol)?,
                initial_response: fields.next(Reader::binary)?,
                hostname: fields.next(Reader::string)?,
            },
            CHALLENGE => Sasl::Challenge(fields.required(Reader::binary)?),
            RESPONSE => Sasl::Response(fields.required(Reader::binary)?),
            OUTCOME => Sasl::Outcome {
                code: sasl_code(fields.required(Reader::ubyte)?)?,
                additional_data: fields.next(Reader::binary)?,
            },
            _ => return Err(Malformed::BadDescriptor),
        };
        fields.finish()?;
        reader.finish()?;
        Ok(sasl)
    }

    /// Writes a whole frame.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = frame::begin(out, Kind::Sasl, 0);
        match self {
            Sasl::Mechanisms(names) => {
                write_composite(out, MECHANISMS, 1, |out| write_mechanisms(out, names));
            }
            Sasl::Init { mechanism, initial_response, hostname } => write_composite(out, INIT, 3, |out| {
                write_symbol(out, mechanism);
                write_optional(out, *initial_response, write_binary);
                write_optional(out, *hostname, write_string);
            }),
            Sasl::Challenge(data) => write_composite(out, CHALLENGE, 1, |out| write_binary(out, data)),
            Sasl::Response(data) => write_composite(out, RESPONSE, 1, |out| write_binary(out, data)),
            Sasl::Outcome { code, additional_data } => write_composite(out, OUTCOME, 2, |out| {
                write_ubyte(out, *code as u8);
                write_optional(out, *additional_data, write_binary);
            }),
        }
        frame::end(out, start);
    }
}

/// A field of multiple symbols may be an array or, when there is one, the symbol alone (part 1, 1.4).
fn mechanisms(value: Value) -> Result<Vec<String>, Malformed> {
    let symbol = |value| match value {
        Value::Symbol(name) => Ok(name),
        _ => Err(Malformed::MissingField),
    };
    match value {
        Value::Array(array) => array.elements.into_iter().map(symbol).collect(),
        single => Ok(vec![symbol(single)?]),
    }
}

fn write_mechanisms(out: &mut Vec<u8>, names: &[String]) {
    let open = codec::begin_array(out, code::SYMBOL_32);
    for name in names {
        out.extend_from_slice(&(name.len() as u32).to_be_bytes());
        out.extend_from_slice(name.as_bytes());
    }
    codec::end_compound(out, open, names.len() as u32);
}

fn sasl_code(code: u8) -> Result<SaslCode, Malformed> {
    Ok(match code {
        0 => SaslCode::Ok,
        1 => SaslCode::Auth,
        2 => SaslCode::System,
        3 => SaslCode::SystemPermanent,
        4 => SaslCode::SystemTemporary,
        found => return Err(Malformed::Unexpected { expected: "a SASL code of 0 to 4", found }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sasl_frame_is_read_back() {
        let all = [
            Sasl::Mechanisms(vec!["MSSBCBS".into(), "ANONYMOUS".into()]),
            Sasl::Init { mechanism: "PLAIN", initial_response: Some(b"\0u\0p"), hostname: Some("h") },
            Sasl::Init { mechanism: "MSSBCBS", initial_response: None, hostname: None },
            Sasl::Challenge(b"c"),
            Sasl::Response(b""),
            Sasl::Outcome { code: SaslCode::Auth, additional_data: None },
        ];
        for sasl in all {
            let mut out = Vec::new();
            sasl.write(&mut out);
            let frame = frame::split(&mut &out[..], 512).unwrap().unwrap();
            assert_eq!((frame.kind, frame.channel), (Kind::Sasl, 0));
            assert_eq!(Sasl::decode(frame.body, &mut 99), Ok(sasl));
        }
    }

    #[test]
    fn a_single_mechanism_may_stand_without_an_array() {
        let mut body = Vec::new();
        write_composite(&mut body, MECHANISMS, 1, |out| write_symbol(out, "PLAIN"));
        assert_eq!(Sasl::decode(&body, &mut 99), Ok(Sasl::Mechanisms(vec!["PLAIN".into()])));
    }
}
