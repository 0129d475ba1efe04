//! A message as filters and actions see it: its properties, never its body (S-187).

use super::expression::System;
use super::scalar::{Scalar, Wrong, id_text};
use super::steps::{STEP_NAMES, Steps};
use crate::ids::{MessageKey, Number};
use crate::time::LocalTime;
use message::facts::MessageId;
use message::overlay::Overlay;
use message::sections::Sections;
use message::system::SystemProperty;
use message::ticks::TICKS_PER_MS;
use message::{Encoded, Value, View};
use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// What comes before a message's body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Front<'a> {
    stored: &'a [u8],
    sections: Sections,
}

/// What the broker knows of a message that is being published.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About {
    pub(crate) now: LocalTime,
    pub(crate) expires: LocalTime,
    pub(crate) number: Number,
    pub(crate) length: u32,
    /// The bytes of its session id, which some copies have in a record of their own.
    pub(crate) session_bytes: usize,
    /// What ids are made of that an action asks for; fresh for each message.
    pub(crate) seed: [u64; 2],
}

#[derive(Debug)]
pub(super) struct Subject<'a> {
    view: View<'a>,
    properties: Vec<(&'a str, Encoded<'a>)>,
    /// Where to find them, once there was more than one question.
    names: OnceCell<Names<'a>>,
    about: About,
    ids: Cell<u64>,
    /// What is left to be spent on the message.
    pub(super) steps: Rc<Steps>,
}

/// The first property of each name, as it is written and in lower case.
#[derive(Debug)]
struct Names<'a> {
    exact: HashMap<&'a str, u32>,
    folded: HashMap<Box<str>, u32>,
}

/// So few are gone through faster than they are ordered.
const FEW_PROPERTIES: usize = 8;

/// A session id, from the value that a property has.
pub(super) fn session_text(value: &[u8]) -> Option<Arc<str>> {
    Value::decode(value).ok()?.as_str().map(Arc::from)
}

impl<'a> Front<'a> {
    /// The front of a whole message, or of its first part.
    pub(crate) fn of(stored: &'a [u8]) -> Option<Front<'a>> {
        // A message without a body has a front that only its end tells.
        let sections = Sections::scan_front(stored).or_else(|_| Sections::scan(stored)).ok()?;
        Some(Front { stored, sections })
    }

    /// Bytes of everything in front of the body.
    pub(crate) fn bytes(stored: &[u8]) -> Option<usize> {
        Sections::scan_front(stored).ok().map(|sections| sections.scanned as usize)
    }

    /// S-20: also one whose id is empty.
    pub(crate) fn session(&self, overlay: Option<&Overlay>) -> Option<Arc<str>> {
        let view = View { stored: self.stored, sections: &self.sections, overlay };
        session_text(view.system(SystemProperty::SessionId).ok()??.bytes())
    }

    /// What the message is known by where duplicates are looked for: its id, and what chooses its partition (S-160, S-162).
    pub(crate) fn known_by(&self, overlay: Option<&Overlay>) -> (MessageKey, u64) {
        let view = View { stored: self.stored, sections: &self.sections, overlay };
        let value = |property| view.system(property).ok().flatten()?.value().ok();
        let id = value(SystemProperty::MessageId);
        let id = MessageKey::of(match &id {
            Some(Value::String(text)) => Some(MessageId::String(text)),
            Some(Value::Uuid(uuid)) => Some(MessageId::Uuid(*uuid)),
            Some(Value::Ulong(number)) => Some(MessageId::Ulong(*number)),
            Some(Value::Binary(bytes)) => Some(MessageId::Binary(bytes)),
            _ => None,
        });
        let key = value(SystemProperty::SessionId).or_else(|| value(SystemProperty::PartitionKey));
        (id, MessageKey::partition(key.as_ref().and_then(Value::as_str)))
    }

    /// Bytes of all properties, which have a limit together (S-18).
    pub(super) fn property_bytes(&self) -> usize {
        let Sections { header, message_annotations, properties, application_properties, .. } = self.sections;
        let spans = [header, message_annotations, properties, application_properties];
        spans.iter().map(|span| span.range().len()).sum()
    }
}

impl<'a> Subject<'a> {
    pub(super) fn new(
        front: &'a Front<'a>,
        overlay: Option<&'a Overlay>,
        about: About,
        steps: &Rc<Steps>,
    ) -> Result<Subject<'a>, Wrong> {
        let view = View { stored: front.stored, sections: &front.sections, overlay };
        let properties = view.applications().and_then(Iterator::collect).map_err(|_| Wrong::Unreadable)?;
        let properties: Vec<_> = properties;
        // Each property is looked for among those that were changed.
        let changed = overlay.map_or(0, |overlay| overlay.applications().count());
        steps.spend(properties.len() * (1 + changed / STEP_NAMES))?;
        Ok(Subject {
            view,
            properties,
            names: OnceCell::new(),
            about,
            ids: Cell::new(0),
            steps: Rc::clone(steps),
        })
    }

    /// A user property, whatever the case of its name (S-190), with the name that it has.
    pub(super) fn entry(&self, name: &str) -> Result<Option<(&'a str, Encoded<'a>)>, Wrong> {
        self.steps.spend(1)?;
        if self.properties.len() <= FEW_PROPERTIES {
            let exact = self.properties.iter().find(|(known, _)| *known == name);
            let found = exact.or_else(|| self.properties.iter().find(|(known, _)| is_name(known, name)));
            return Ok(found.copied());
        }
        if self.names.get().is_none() {
            self.steps.spend(self.properties.len())?;
        }
        let names = self.names.get_or_init(|| Names::of(&self.properties));
        self.steps.spend_text(name.len())?;
        let found = names.exact.get(name).or_else(|| names.folded.get(&*name.to_lowercase()));
        Ok(found.map(|nth| self.properties[*nth as usize]))
    }

    /// `None` if there is none; unknown if it is there and null.
    pub(super) fn user(&self, name: &str) -> Result<Option<Scalar<'a>>, Wrong> {
        self.entry(name)?.map(|(_, value)| self.scalar(value)).transpose()
    }

    fn scalar(&self, value: Encoded<'a>) -> Result<Scalar<'a>, Wrong> {
        if value.as_str().is_none() {
            self.steps.spend(value.bytes().len())?;
        }
        scalar(value)
    }

    /// Names every user property, with a way to its value. What cannot be read is unknown.
    pub(super) fn each_user(&self, mut visit: impl FnMut(&'a str, &dyn Fn() -> Scalar<'a>)) {
        for (name, value) in &self.properties {
            visit(name, &|| scalar(*value).unwrap_or(Scalar::Unknown));
        }
    }

    pub(super) fn system(&self, system: &System) -> Result<Scalar<'a>, Wrong> {
        let instant =
            |time: LocalTime| if time.is_never() { Scalar::Unknown } else { Scalar::Instant(time.0) };
        Ok(match system {
            System::Carried(property) => return self.carried(*property),
            System::TimeToLive if self.about.expires.is_never() => Scalar::Unknown,
            System::TimeToLive => {
                Scalar::Ticks((self.about.expires.0 - self.about.now.0).saturating_mul(TICKS_PER_MS))
            }
            System::EnqueuedTime => instant(self.about.now),
            System::ExpiresAt => instant(self.about.expires),
            System::SequenceNumber => Scalar::Integer(self.about.number.0 as i64),
            System::Size => Scalar::Integer(self.about.length.into()),
            System::DeliveryCount => Scalar::Integer(0),
            System::Absent(_) => Scalar::Unknown,
            System::Unknown(name) => return Err(Wrong::NoSystemProperty(name.clone())),
        })
    }

    /// A system property that the sender has set. Ids are texts, whatever they are on the wire.
    pub(super) fn carried(&self, property: SystemProperty) -> Result<Scalar<'a>, Wrong> {
        let Sections { properties, message_annotations, .. } = self.view.sections;
        self.steps.spend_text(properties.range().len() + message_annotations.range().len())?;
        let Some(found) = self.view.system(property).map_err(|_| Wrong::Unreadable)? else {
            return Ok(Scalar::Unknown);
        };
        if let Some(text) = found.as_str() {
            return Ok(Scalar::Text(text.into()));
        }
        Ok(match found.value().map_err(|_| Wrong::Unreadable)? {
            Value::Uuid(id) => Scalar::text(id_text(&id)),
            Value::Ulong(number) => Scalar::text(number.to_string()),
            value => Scalar::of(value),
        })
    }

    /// An id that nobody has, of the form that random ones have.
    pub(super) fn fresh_id(&self) -> [u8; 16] {
        let nth = self.ids.replace(self.ids.get() + 1);
        let [high, low] = self.about.seed;
        let mix = |seed: u64| (seed ^ nth.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes();
        let mut id = [mix(high), mix(low)].concat();
        id[6] = id[6] & 0x0f | 0x40;
        id[8] = id[8] & 0x3f | 0x80;
        id.try_into().expect("twice eight bytes")
    }
}

impl<'a> Names<'a> {
    fn of(properties: &[(&'a str, Encoded<'a>)]) -> Names<'a> {
        let mut names = Names { exact: HashMap::new(), folded: HashMap::new() };
        for (nth, (name, _)) in properties.iter().enumerate() {
            names.exact.entry(name).or_insert(nth as u32);
            names.folded.entry(name.to_lowercase().into()).or_insert(nth as u32);
        }
        names
    }
}

fn is_name(known: &str, name: &str) -> bool {
    known.eq_ignore_ascii_case(name) || !name.is_ascii() && known.to_lowercase() == name.to_lowercase()
}

fn scalar(value: Encoded<'_>) -> Result<Scalar<'_>, Wrong> {
    match value.as_str() {
        Some(text) => Ok(Scalar::Text(text.into())),
        None => Ok(Scalar::of(value.value().map_err(|_| Wrong::Unreadable)?)),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use message::codec::write_descriptor;

    /// A message with some properties and a body.
    pub(crate) fn encoded(system: &[(&str, &str)], user: &[(&str, Value)]) -> Vec<u8> {
        let mut out = Vec::new();
        let names = [
            "MessageId",
            "",
            "To",
            "Label",
            "ReplyTo",
            "CorrelationId",
            "ContentType",
            "",
            "",
            "",
            "SessionId",
            "",
            "ReplyToSessionId",
        ];
        let field = |name: &&str| match system.iter().find(|(known, _)| known == name) {
            Some((_, text)) if *name == "ContentType" => Value::Symbol((*text).into()),
            Some((_, text)) => Value::from(*text),
            None => Value::Null,
        };
        write_descriptor(&mut out, 0x73);
        Value::List(names.iter().map(field).collect()).encode(&mut out);
        write_descriptor(&mut out, 0x74);
        let entries = user.iter().map(|(name, value)| (Value::from(*name), value.clone()));
        Value::Map(entries.collect()).encode(&mut out);
        write_descriptor(&mut out, 0x75);
        Value::Binary(b"body".to_vec()).encode(&mut out);
        out
    }

    pub(crate) fn about() -> About {
        About { now: LocalTime(1_000), number: Number(7), length: 100, seed: [3, 4], ..About::default() }
    }

    #[test]
    fn a_message_of_any_shape_has_a_front() {
        let whole = encoded(&[("To", "x")], &[("a", Value::Int(1))]);
        let cut = &whole[..whole.len() - 3];
        let bodiless = &whole[..Front::bytes(&whole).unwrap()];
        for bytes in [&whole[..], cut, bodiless] {
            let front = Front::of(bytes).unwrap();
            let subject = Subject::new(&front, None, about(), &Rc::default()).unwrap();
            assert_eq!(subject.user("A"), Ok(Some(Scalar::Integer(1))));
            assert_eq!(subject.carried(SystemProperty::To), Ok(Scalar::text("x".into())));
        }
        assert!(Front::of(b"no message").is_none());
    }

    #[test]
    fn of_two_names_that_differ_in_case_the_exact_one_is_meant() {
        // S-190
        let bytes = encoded(&[], &[("A", Value::Int(1)), ("a", Value::Int(2)), ("Ü", Value::Int(3))]);
        let front = Front::of(&bytes).unwrap();
        let subject = Subject::new(&front, None, about(), &Rc::default()).unwrap();
        assert_eq!(subject.user("a"), Ok(Some(Scalar::Integer(2))));
        assert_eq!(subject.user("ü"), Ok(Some(Scalar::Integer(3))));
        assert_eq!(subject.user("b"), Ok(None));
    }

    #[test]
    fn ids_on_the_wire_are_texts_to_filters() {
        let mut out = Vec::new();
        write_descriptor(&mut out, 0x73);
        Value::List(vec![Value::Uuid([0xab; 16])]).encode(&mut out);
        let front = Front::of(&out).unwrap();
        let subject = Subject::new(&front, None, about(), &Rc::default()).unwrap();
        let text = "abababab-abab-abab-abab-abababababab";
        assert_eq!(subject.carried(SystemProperty::MessageId), Ok(Scalar::text(text.into())));
        assert_ne!(subject.fresh_id(), subject.fresh_id());
        assert_eq!(subject.fresh_id()[6] >> 4, 4);
    }
}
