//! The system properties that travel in a message: their names, where each is, and of which type it is.
//!
//! What the broker alone knows (sequence number, enqueued time, delivery count, lock) is not in a stored message
//! and so not here; it is stamped on at delivery.

use crate::facts::annotation;
use crate::fields::property;
use crate::value::Value;

/// A system property of S-2 and S-3 that is part of a message. The numbers are stored in overlays: never reuse one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SystemProperty {
    MessageId = 1,
    To = 2,
    Label = 3,
    ReplyTo = 4,
    CorrelationId = 5,
    ContentType = 6,
    SessionId = 7,
    ReplyToSessionId = 8,
    PartitionKey = 9,
    ViaPartitionKey = 10,
    ScheduledEnqueueTimeUtc = 11,
    DeadLetterSource = 12,
}

/// Where a system property is written in an encoded message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    /// A field of the properties section.
    Field(usize),
    Annotation(&'static str),
}

impl SystemProperty {
    pub const ALL: [SystemProperty; 12] = [
        SystemProperty::MessageId,
        SystemProperty::To,
        SystemProperty::Label,
        SystemProperty::ReplyTo,
        SystemProperty::CorrelationId,
        SystemProperty::ContentType,
        SystemProperty::SessionId,
        SystemProperty::ReplyToSessionId,
        SystemProperty::PartitionKey,
        SystemProperty::ViaPartitionKey,
        SystemProperty::ScheduledEnqueueTimeUtc,
        SystemProperty::DeadLetterSource,
    ];

    /// The name that filters and the HTTP door use.
    pub fn name(self) -> &'static str {
        match self {
            SystemProperty::MessageId => "MessageId",
            SystemProperty::To => "To",
            SystemProperty::Label => "Label",
            SystemProperty::ReplyTo => "ReplyTo",
            SystemProperty::CorrelationId => "CorrelationId",
            SystemProperty::ContentType => "ContentType",
            SystemProperty::SessionId => "SessionId",
            SystemProperty::ReplyToSessionId => "ReplyToSessionId",
            SystemProperty::PartitionKey => "PartitionKey",
            SystemProperty::ViaPartitionKey => "ViaPartitionKey",
            SystemProperty::ScheduledEnqueueTimeUtc => "ScheduledEnqueueTimeUtc",
            SystemProperty::DeadLetterSource => "DeadLetterSource",
        }
    }

    /// Names of system properties have no case (S-203).
    pub fn from_name(name: &str) -> Option<SystemProperty> {
        SystemProperty::ALL.into_iter().find(|property| property.name().eq_ignore_ascii_case(name))
    }

    pub(crate) fn from_number(number: u8) -> Option<SystemProperty> {
        SystemProperty::ALL.into_iter().find(|property| *property as u8 == number)
    }

    pub(crate) fn home(self) -> Home {
        match self {
            SystemProperty::MessageId => Home::Field(property::MESSAGE_ID),
            SystemProperty::To => Home::Field(property::TO),
            SystemProperty::Label => Home::Field(property::SUBJECT),
            SystemProperty::ReplyTo => Home::Field(property::REPLY_TO),
            SystemProperty::CorrelationId => Home::Field(property::CORRELATION_ID),
            SystemProperty::ContentType => Home::Field(property::CONTENT_TYPE),
            SystemProperty::SessionId => Home::Field(property::GROUP_ID),
            SystemProperty::ReplyToSessionId => Home::Field(property::REPLY_TO_GROUP_ID),
            SystemProperty::PartitionKey => Home::Annotation(annotation::PARTITION_KEY),
            SystemProperty::ViaPartitionKey => Home::Annotation(annotation::VIA_PARTITION_KEY),
            SystemProperty::ScheduledEnqueueTimeUtc => Home::Annotation(annotation::SCHEDULED_ENQUEUE_TIME),
            SystemProperty::DeadLetterSource => Home::Annotation("x-opt-deadletter-source"),
        }
    }

    /// The value in the one AMQP type that receivers expect in this place; `None` if it is of another kind.
    pub(crate) fn typed(self, value: &Value) -> Option<Value> {
        match (self, value) {
            (SystemProperty::MessageId | SystemProperty::CorrelationId, value) => match value {
                Value::String(_) | Value::Uuid(_) | Value::Ulong(_) | Value::Binary(_) => Some(value.clone()),
                _ => None,
            },
            (SystemProperty::ScheduledEnqueueTimeUtc, Value::Timestamp(_)) => Some(value.clone()),
            (SystemProperty::ScheduledEnqueueTimeUtc, _) => None,
            (SystemProperty::ContentType, Value::String(text) | Value::Symbol(text)) if text.is_ascii() => {
                Some(Value::Symbol(text.clone()))
            }
            (SystemProperty::ContentType, _) => None,
            (_, Value::String(_)) => Some(value.clone()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // ids are of any id type, times are timestamps, what a client reads as a symbol is one; the rest is text.
    #[test]
    fn a_value_is_taken_only_in_the_type_that_receivers_expect_in_its_place() {
        let symbol = |text: &str| Value::Symbol(text.into());
        let ids = [Value::from("t"), Value::Uuid([1; 16]), Value::Ulong(7), Value::Binary(vec![1])];
        let others = [symbol("t"), Value::Timestamp(9), Value::Int(7), Value::Null, symbol("é"), "é".into()];
        for property in SystemProperty::ALL {
            for value in ids.iter().chain(&others) {
                let kept = match property {
                    SystemProperty::MessageId | SystemProperty::CorrelationId => {
                        ids.contains(value) || matches!(value, Value::String(_))
                    }
                    SystemProperty::ScheduledEnqueueTimeUtc => matches!(value, Value::Timestamp(_)),
                    SystemProperty::ContentType => *value == symbol("t"),
                    _ => matches!(value, Value::String(_)),
                };
                let expected = match (property, value) {
                    (SystemProperty::ContentType, Value::String(text)) if text == "t" => Some(symbol("t")),
                    _ => kept.then(|| value.clone()),
                };
                assert_eq!(property.typed(value), expected, "{property:?} {value:?}");
            }
        }
    }

    // S-203
    #[test]
    fn names_are_found_whatever_their_case() {
        assert_eq!(SystemProperty::from_name("label"), Some(SystemProperty::Label));
        assert_eq!(SystemProperty::from_name("MESSAGEID"), Some(SystemProperty::MessageId));
        assert_eq!(SystemProperty::from_name("Subject"), None);
        for property in SystemProperty::ALL {
            assert_eq!(SystemProperty::from_name(property.name()), Some(property));
            assert_eq!(SystemProperty::from_number(property as u8), Some(property));
        }
    }
}
