//! Actions: what a rule does to the copy that it makes (S-182, S-186, S-205). The stored message stays as it is; what
//! changes is an overlay of the copy.

use super::eval::value;
use super::expression::{Property, Statement, System};
use super::scalar::{Scalar, Wrong};
use super::steps::Steps;
use super::subject::{About, Front, Subject};
use crate::limits::PROPERTIES_BYTES;
use crate::time::Span;
use message::Value;
use message::limits::ID_CHARACTERS;
use message::overlay::Overlay;
use message::system::SystemProperty;
use message::ticks::TICKS_PER_MS;
use std::rc::Rc;

/// A copy after the action.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Acted {
    /// All changes, those from before included.
    pub(super) overlay: Overlay,
    pub(super) time_to_live: Option<Span>,
}

/// What one statement changes.
enum Change {
    Nothing,
    User(Box<str>, Value),
    System(SystemProperty, Value),
    TimeToLive(Span),
}

/// Does what the statements say, one after the other, each seeing what those before have done.
pub(super) fn act(
    statements: &[Statement],
    rule: &str,
    front: &Front<'_>,
    before: Option<&Overlay>,
    about: About,
    steps: &Rc<Steps>,
) -> Result<Acted, Wrong> {
    let mut acted = Acted { overlay: before.cloned().unwrap_or_default(), time_to_live: None };
    for (nth, statement) in statements.iter().enumerate() {
        let seed = [about.seed[0], about.seed[1] ^ (nth as u64) << 32];
        // What is changed is written anew with each statement.
        steps.spend_text(acted.overlay.encoded_bytes())?;
        let subject = Subject::new(front, Some(&acted.overlay), About { seed, ..about }, steps)?;
        let changed = match change(statement, &subject)? {
            Change::Nothing => Ok(()),
            Change::User(name, value) => acted.overlay.set(&name, &value),
            Change::System(property, value) => acted.overlay.set_system(property, &value),
            Change::TimeToLive(span) => {
                acted.time_to_live = Some(span);
                Ok(())
            }
        };
        changed.map_err(|_| Wrong::TooLarge)?;
    }
    acted.overlay.set_rule_name(rule).map_err(|_| Wrong::TooLarge)?;
    if front.property_bytes() + acted.overlay.encoded_bytes() > PROPERTIES_BYTES {
        return Err(Wrong::TooLarge);
    }
    Ok(acted)
}

fn change(statement: &Statement, subject: &Subject<'_>) -> Result<Change, Wrong> {
    match statement {
        Statement::Set(property, expression) => {
            let scalar = value(expression, subject)?;
            // What is unknown changes nothing.
            if scalar.is_unknown() {
                return Ok(Change::Nothing);
            }
            match property {
                Property::User(name) => Ok(match subject.entry(name)? {
                    Some((name, now)) => {
                        let now = now.value().map_err(|_| Wrong::Unreadable)?;
                        Change::User(name.into(), converted(&scalar, &now))
                    }
                    None => Change::User(name.clone(), scalar.to_value()),
                }),
                Property::System(system) => set_system(system, &scalar),
            }
        }
        Statement::Remove(Property::User(name)) => Ok(match subject.entry(name)? {
            Some((name, _)) => Change::User(name.into(), Value::Null),
            None => Change::Nothing,
        }),
        Statement::Remove(Property::System(system)) => match writable(system)? {
            Some(property) => Ok(Change::System(property, Value::Null)),
            None => Ok(Change::TimeToLive(Span::MAX)),
        },
    }
}

/// The property that may be set (S-206); `None` is the time to live, which is not part of the message.
fn writable(system: &System) -> Result<Option<SystemProperty>, Wrong> {
    match system {
        System::Carried(SystemProperty::DeadLetterSource) => {
            Err(Wrong::NotWritable("DeadLetterSource".into()))
        }
        System::Carried(property) => Ok(Some(*property)),
        System::TimeToLive => Ok(None),
        System::Unknown(name) => Err(Wrong::NoSystemProperty(name.clone())),
        System::Absent(name) => Err(Wrong::NotWritable(name.clone())),
        System::EnqueuedTime => Err(Wrong::NotWritable("EnqueuedTimeUtc".into())),
        System::ExpiresAt => Err(Wrong::NotWritable("ExpiresAtUtc".into())),
        System::SequenceNumber => Err(Wrong::NotWritable("SequenceNumber".into())),
        System::Size => Err(Wrong::NotWritable("Size".into())),
        System::DeliveryCount => Err(Wrong::NotWritable("DeliveryCount".into())),
    }
}

fn set_system(system: &System, scalar: &Scalar<'_>) -> Result<Change, Wrong> {
    let Some(property) = writable(system)? else {
        return match scalar {
            Scalar::Ticks(ticks) if *ticks > 0 => {
                Ok(Change::TimeToLive(Span(*ticks as u64 / TICKS_PER_MS as u64)))
            }
            _ => Err(Wrong::NotOfType("TimeToLive".into())),
        };
    };
    let not_of_type = || Wrong::NotOfType(property.name().into());
    let value = match (property, scalar) {
        (SystemProperty::ScheduledEnqueueTimeUtc, Scalar::Instant(ms)) => Value::Timestamp(*ms),
        (SystemProperty::ScheduledEnqueueTimeUtc, _) => return Err(not_of_type()),
        (_, scalar) => Value::String(scalar.to_text().ok_or_else(not_of_type)?),
    };
    let is_id = matches!(
        property,
        SystemProperty::MessageId
            | SystemProperty::SessionId
            | SystemProperty::ReplyToSessionId
            | SystemProperty::PartitionKey
    );
    match &value {
        // S-6
        Value::String(text) if is_id && text.chars().count() > ID_CHARACTERS => Err(not_of_type()),
        Value::String(text) if property == SystemProperty::ContentType && !text.is_ascii() => {
            Err(not_of_type())
        }
        _ => Ok(Change::System(property, value)),
    }
}

/// A value in the type that the property has, if it can be that (S-205).
fn converted(scalar: &Scalar<'_>, now: &Value) -> Value {
    let as_it_is = || scalar.to_value();
    match (now, scalar) {
        (Value::String(_), scalar) => scalar.to_text().map_or_else(as_it_is, Value::String),
        (Value::Int(_), Scalar::Integer(number)) => {
            i32::try_from(*number).map_or_else(|_| as_it_is(), Value::Int)
        }
        (Value::Uint(_), Scalar::Integer(number)) => {
            u32::try_from(*number).map_or_else(|_| as_it_is(), Value::Uint)
        }
        (Value::Ulong(_), Scalar::Integer(number)) => {
            u64::try_from(*number).map_or_else(|_| as_it_is(), Value::Ulong)
        }
        (Value::Short(_), Scalar::Integer(number)) => {
            i16::try_from(*number).map_or_else(|_| as_it_is(), Value::Short)
        }
        (Value::Byte(_), Scalar::Integer(number)) => {
            i8::try_from(*number).map_or_else(|_| as_it_is(), Value::Byte)
        }
        (Value::Double(_), Scalar::Integer(number)) => Value::Double((*number as f64).to_bits()),
        (Value::Float(_), Scalar::Real(number)) => Value::Float((*number as f32).to_bits()),
        (Value::Float(_), Scalar::Integer(number)) => Value::Float((*number as f32).to_bits()),
        _ => as_it_is(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::rule::{Kind, Sql, Typed};
    use super::super::sql;
    use super::super::subject::tests::{about, encoded};
    use super::*;
    use message::overlay;

    fn try_act(text: &str, before: Option<&Overlay>) -> Result<Acted, Wrong> {
        let bytes = encoded(
            &[("Label", "news"), ("SessionId", "s")],
            &[
                ("color", "blue".into()),
                ("quantity", Value::Int(12)),
                ("price", Value::Double(2.5f64.to_bits())),
                ("ratio", Value::Float(0.5f32.to_bits())),
            ],
        );
        let ttl = Typed { kind: Kind::Duration, text: "PT1M".into() };
        let when = Typed { kind: Kind::DateTime, text: "2030-01-01T00:00:00Z".into() };
        let parameters = vec![("@ttl".into(), ttl), ("@when".into(), when)];
        let statements = sql::action(&Sql { expression: text.into(), parameters }).expect(text);
        act(&statements, "my rule", &Front::of(&bytes).unwrap(), before, about(), &Rc::default())
    }

    fn user(text: &str, name: &str) -> Option<Value> {
        match try_act(text, None).expect(text).overlay.application(name)? {
            overlay::Change::Set(value) => Some(Value::decode(value).unwrap()),
            overlay::Change::Removed => Some(Value::Null),
        }
    }

    fn system(text: &str, property: SystemProperty) -> Option<Value> {
        match try_act(text, None).expect(text).overlay.system(property)? {
            overlay::Change::Set(value) => Some(Value::decode(value).unwrap()),
            overlay::Change::Removed => Some(Value::Null),
        }
    }

    #[test]
    fn a_property_is_set_in_the_type_that_it_had() {
        // S-205
        assert_eq!(user("SET quantity = quantity + 1", "quantity"), Some(Value::Int(13)));
        assert_eq!(user("SET quantity = 3000000000", "quantity"), Some(Value::Long(3_000_000_000)));
        assert_eq!(user("SET price = 3", "price"), Some(Value::Double(3.0f64.to_bits())));
        assert_eq!(user("SET ratio = 3", "ratio"), Some(Value::Float(3.0f32.to_bits())));
        assert_eq!(user("SET ratio = ratio * 3", "ratio"), Some(Value::Float(1.5f32.to_bits())));
        assert_eq!(user("SET color = 7", "color"), Some("7".into()));
        assert_eq!(user("SET COLOR = 'red'", "color"), Some("red".into()));
        assert_eq!(user("SET fresh = 7", "fresh"), Some(Value::Long(7)));
        assert_eq!(user("SET fresh = 1 = 1", "fresh"), Some(Value::Boolean(true)));
        assert!(matches!(user("SET fresh = newid()", "fresh"), Some(Value::Uuid(_))));
    }

    #[test]
    fn statements_follow_each_other() {
        // S-205
        let text = "SET a = 1 SET a = a + 1; SET b = a * 10; REMOVE color";
        assert_eq!((user(text, "a"), user(text, "b")), (Some(Value::Long(2)), Some(Value::Long(20))));
        assert_eq!(user(text, "color"), Some(Value::Null));
        assert_eq!(user("SET a = missing; REMOVE missing", "a"), None);
        assert_ne!(
            user("SET a = newid() SET b = newid()", "a"),
            user("SET a = newid() SET b = newid()", "b")
        );
    }

    #[test]
    fn system_properties_are_set_where_they_may_be() {
        // S-186, S-203, S-206
        assert_eq!(system("SET sys.label = 'x'", SystemProperty::Label), Some("x".into()));
        assert_eq!(system("SET sys.MessageId = 7", SystemProperty::MessageId), Some("7".into()));
        assert_eq!(system("REMOVE sys.SessionId", SystemProperty::SessionId), Some(Value::Null));
        assert_eq!(user("SET CorrelationId = 'x'", "CorrelationId"), Some("x".into()));
        assert_eq!(
            system("SET sys.ScheduledEnqueueTimeUtc = @when", SystemProperty::ScheduledEnqueueTimeUtc),
            Some(Value::Timestamp(1_893_456_000_000))
        );
        assert_eq!(try_act("SET sys.TimeToLive = @ttl", None).unwrap().time_to_live, Some(Span::minutes(1)));
        for text in ["SET sys.SequenceNumber = 1", "REMOVE sys.LockToken", "SET sys.DeadLetterSource = 'x'"] {
            assert!(matches!(try_act(text, None), Err(Wrong::NotWritable(_))), "{text}");
        }
        let long = format!("SET sys.SessionId = '{}'", "x".repeat(129));
        assert!(matches!(try_act(&long, None), Err(Wrong::NotOfType(_))));
        assert_eq!(try_act("SET sys.Foo = 1", None), Err(Wrong::NoSystemProperty("Foo".into())));
        assert_eq!(try_act("SET a = sys.Foo", None), Err(Wrong::NoSystemProperty("Foo".into())));
        assert_eq!(try_act("SET a = 1 / 0", None), Err(Wrong::ByZero));
    }

    #[test]
    fn a_copy_says_which_rule_made_it_and_keeps_what_it_had() {
        // S-182
        assert_eq!(user("SET a = 1", overlay::RULE_NAME), Some("my rule".into()));
        let mut before = Overlay::default();
        before.set("color", &"green".into()).unwrap();
        let acted = try_act("SET other = color", Some(&before)).unwrap();
        assert_eq!(acted.overlay.application("color"), before.application("color"));
        assert_eq!(acted.overlay.application("other"), before.application("color"));
    }

    #[test]
    fn properties_that_grow_too_large_are_refused() {
        // S-18, S-107
        let text = "SET a = 'xxxxxxxxxxxxxxxx' SET a = a+a+a+a+a+a+a+a SET a = a+a+a+a+a+a+a+a SET a = a+a+a+a+a+a+a+a SET b=a+a+a SET c=a+a+a SET d=a+a+a";
        assert_eq!(try_act(text, None), Err(Wrong::TooLarge));
    }
}
