//! What a request says: a map whose keys are text. Numbers are taken in whatever width a client writes them, and arrays
//! may come as lists.

use super::super::condition::Origin;
use super::status;
use crate::auth::Denied;
use amqp::Error;
use broker::limits::REQUEST_MESSAGES;
use broker::{LockToken, Number, Refusal};
use message::Value;
use message::facts::FactsError;

/// Why a request is refused before the broker sees it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// No such operation.
    Unknown(Box<str>),
    Denied(Denied),
    /// An argument is missing or of the wrong type.
    Argument(&'static str),
    /// An argument is outside of its range.
    Range(&'static str),
    Message(FactsError),
    Refused(Refusal),
}

impl Failure {
    pub(super) fn status(&self) -> i32 {
        match self {
            Failure::Unknown(_) => status::NOT_IMPLEMENTED,
            Failure::Denied(_) => status::UNAUTHORIZED,
            Failure::Argument(_) | Failure::Range(_) | Failure::Message(_) => status::BAD_REQUEST,
            Failure::Refused(refusal) => status::of_refusal(refusal),
        }
    }

    pub(super) fn error(&self, origin: &Origin, path: &str) -> Error {
        match self {
            Failure::Unknown(operation) => origin.not_implemented(&format!("'{operation}'"), path),
            Failure::Denied(denied) => origin.denied(*denied, path),
            Failure::Argument(name) => {
                let text = format!("The argument '{name}' is missing or of the wrong type.");
                origin.error("com.microsoft:argument-error", &text, path)
            }
            Failure::Range(name) => {
                let text = format!("The argument '{name}' is out of range.");
                origin.error("com.microsoft:argument-out-of-range", &text, path)
            }
            Failure::Message(error) => origin.bad_message(error, path),
            Failure::Refused(refusal) => origin.refusal(refusal, path),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Arguments<'a>(pub(super) &'a Value);

impl<'a> Arguments<'a> {
    pub(super) fn get(self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(self, name: &str) -> Option<&'a str> {
        self.get(name).and_then(Value::as_str)
    }

    pub(super) fn integer(self, name: &'static str) -> Result<i64, Failure> {
        self.get(name).and_then(Value::as_integer).ok_or(Failure::Argument(name))
    }

    /// A count of messages: at least one, and no more than the wire type holds.
    pub(super) fn count(self, name: &'static str) -> Result<u32, Failure> {
        let count = u32::try_from(self.integer(name)?).map_err(|_| Failure::Range(name))?;
        if count == 0 { Err(Failure::Range(name)) } else { Ok(count) }
    }

    /// The elements of an array or a list, not empty and not more than one request may name.
    pub(super) fn elements(self, name: &'static str) -> Result<&'a [Value], Failure> {
        let elements = match self.get(name) {
            Some(Value::Array(array)) => &array.elements[..],
            Some(Value::List(list)) => &list[..],
            _ => return Err(Failure::Argument(name)),
        };
        match elements.len() {
            0 => Err(Failure::Argument(name)),
            count if count > REQUEST_MESSAGES => Err(Failure::Range(name)),
            _ => Ok(elements),
        }
    }

    pub(super) fn numbers(self, name: &'static str) -> Result<Box<[Number]>, Failure> {
        let number = |value: &Value| {
            value.as_integer().map(|number| Number(number as u64)).ok_or(Failure::Argument(name))
        };
        self.elements(name)?.iter().map(number).collect()
    }

    pub(super) fn tokens(self, name: &'static str) -> Result<Box<[LockToken]>, Failure> {
        let token = |value: &Value| match value {
            Value::Uuid(uuid) => Ok(token_of_uuid(uuid)),
            _ => Err(Failure::Argument(name)),
        };
        self.elements(name)?.iter().map(token).collect()
    }
}

/// A token as requests and replies write it: the same GUID as the delivery tag, in the byte order of the AMQP type
///
pub(crate) fn uuid_of_token(token: LockToken) -> [u8; 16] {
    reordered(token.0.to_be_bytes())
}

pub(crate) fn token_of_uuid(uuid: &[u8; 16]) -> LockToken {
    LockToken(u128::from_be_bytes(reordered(*uuid)))
}

/// Turns the first three fields of a GUID around; doing it twice changes nothing.
fn reordered(mut guid: [u8; 16]) -> [u8; 16] {
    guid[..4].reverse();
    guid[4..6].reverse();
    guid[6..8].reverse();
    guid
}

#[cfg(test)]
mod tests {
    use super::*;
    use message::value::Array;

    #[test]
    fn a_token_is_the_same_guid_in_a_tag_and_in_a_request() {
        //
        let tag = 0x3322_1100_5544_7766_8899_aabb_ccdd_eeff_u128;
        let uuid = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_be_bytes();
        assert_eq!(uuid_of_token(LockToken(tag)), uuid);
        assert_eq!(token_of_uuid(&uuid), LockToken(tag));
    }

    #[test]
    fn numbers_are_taken_in_any_width_from_an_array_or_a_list() {
        let longs = Value::Array(Array::of(&Value::Long(0), vec![Value::Long(7), Value::Long(9)]));
        let list = Value::List(vec![Value::Int(7), Value::Ulong(9)]);
        for numbers in [longs, list] {
            let body = Value::Map(vec![("sequence-numbers".into(), numbers)]);
            let numbers = Arguments(&body).numbers("sequence-numbers");
            assert_eq!(numbers.as_deref(), Ok(&[Number(7), Number(9)][..]));
        }
    }

    #[test]
    fn a_request_names_at_least_one_and_at_most_as_many_as_the_limit() {
        let arguments =
            |count: usize| Value::Map(vec![("n".into(), Value::List(vec![Value::Long(1); count]))]);
        assert_eq!(Arguments(&arguments(0)).numbers("n"), Err(Failure::Argument("n")));
        assert!(Arguments(&arguments(REQUEST_MESSAGES)).numbers("n").is_ok());
        assert_eq!(Arguments(&arguments(REQUEST_MESSAGES + 1)).numbers("n"), Err(Failure::Range("n")));
        let zero = Value::Map(vec![("n".into(), Value::Int(0))]);
        assert_eq!(Arguments(&zero).count("n"), Err(Failure::Range("n")));
        assert_eq!(Arguments(&Value::Null).count("n"), Err(Failure::Argument("n")));
    }
}
