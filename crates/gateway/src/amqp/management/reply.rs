//! How a reply is written: the request's id in its own type, a status that is an `int`, a condition that is a `symbol`,
//! and always a map as the body.

use super::status;
use amqp::Error;
use message::Value;
use message::codec::{
    begin_list, begin_map, end_compound, write_descriptor, write_int, write_null, write_string, write_symbol,
};
use message::sections::section;

/// Whom a reply answers.
#[derive(Debug)]
pub(super) struct Reply {
    /// The request's message id.
    pub(super) correlation: Value,
    /// How the client calls this request in its log.
    pub(super) tracking: Option<Box<str>>,
}

/// What clients look for where nothing was found; JavaScript wants exactly this.
const MESSAGE_NOT_FOUND: &str = "com.microsoft:message-not-found";

impl Reply {
    /// Writes a reply whose body has `entries` entries, which `body` writes.
    pub(super) fn encode(
        &self,
        out: &mut Vec<u8>,
        (status, text): (i32, &str),
        condition: Option<&str>,
        entries: u32,
        body: impl FnOnce(&mut Vec<u8>),
    ) {
        write_descriptor(out, section::PROPERTIES.into());
        let open = begin_list(out);
        // message-id, user-id, to, subject, reply-to come before correlation-id.
        (0..5).for_each(|_| write_null(out));
        self.correlation.encode(out);
        end_compound(out, open, 6);
        write_descriptor(out, section::APPLICATION_PROPERTIES.into());
        let open = begin_map(out);
        write_string(out, "statusCode");
        write_int(out, status);
        write_string(out, "statusDescription");
        write_string(out, text);
        let mut count = 2;
        if let Some(condition) = condition {
            write_string(out, "errorCondition");
            write_symbol(out, condition);
            count += 1;
        }
        if let Some(tracking) = &self.tracking {
            write_string(out, "com.microsoft:tracking-id");
            write_string(out, tracking);
            count += 1;
        }
        end_compound(out, open, 2 * count);
        write_descriptor(out, section::VALUE.into());
        let open = begin_map(out);
        body(out);
        end_compound(out, open, 2 * entries);
    }

    /// One entry: a key and what `value` writes.
    pub(super) fn with(&self, key: &str, value: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out, (status::OK, "OK"), None, 1, |out| {
            write_string(out, key);
            value(out);
        });
        out
    }

    pub(super) fn done(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out, (status::OK, "OK"), None, 0, |_| {});
        out
    }

    /// There is nothing of the kind that was asked for.
    pub(super) fn empty(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let text = "There is no such message.";
        self.encode(&mut out, (status::NOTHING, text), Some(MESSAGE_NOT_FOUND), 0, |_| {});
        out
    }

    pub(super) fn failed(&self, status: i32, error: &Error) -> Vec<u8> {
        let mut out = Vec::new();
        let text = error.description.as_deref().unwrap_or("");
        self.encode(&mut out, (status, text), Some(&error.condition), 0, |_| {});
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use message::sections::Sections;

    #[test]
    fn a_failure_has_an_int_a_symbol_and_an_empty_map() {
        //
        let reply = Reply { correlation: Value::Ulong(7), tracking: Some("mine".into()) };
        let bytes = reply.failed(410, &Error::new("com.microsoft:message-lock-lost", "gone"));
        let sections = Sections::scan(&bytes).unwrap();
        let Value::List(fields) = Value::decode(sections.properties.value(&bytes).unwrap()).unwrap() else {
            panic!("properties are a list");
        };
        assert_eq!(fields[5], Value::Ulong(7));
        let told = Value::decode(sections.application_properties.value(&bytes).unwrap()).unwrap();
        assert_eq!(told.get("statusCode"), Some(&Value::Int(410)));
        assert_eq!(told.get("statusDescription"), Some(&"gone".into()));
        let condition = Value::Symbol("com.microsoft:message-lock-lost".into());
        assert_eq!(told.get("errorCondition"), Some(&condition));
        assert_eq!(told.get("com.microsoft:tracking-id"), Some(&"mine".into()));
        let body = Value::decode(sections.body.value(&bytes).unwrap());
        assert_eq!(body, Ok(Value::Map(vec![])));
    }
}
