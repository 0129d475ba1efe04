//! A stored message as its readers see it: filters, the HTTP door and the AMQP door all ask here.
//!
//! Look-ups are lazy and borrow: a question walks the one section that can answer it. What the overlay says wins over
//! what the sender wrote.

use crate::batch;
use crate::codec::{Malformed, Reader, code};
use crate::entries::optional_entries;
use crate::fields::{self, Header, Properties, header};
use crate::overlay::{Change, Overlay};
use crate::sections::{BodyKind, Sections};
use crate::system::{Home, SystemProperty};
use crate::value::Value;

/// One encoded AMQP value, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoded<'a>(&'a [u8]);

impl<'a> Encoded<'a> {
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    pub fn is_null(self) -> bool {
        self.0 == [code::NULL]
    }

    /// The text of a string or a symbol; `None` for any other type.
    pub fn as_str(self) -> Option<&'a str> {
        Reader::new(self.0).text().ok()
    }

    /// The value itself, of any type.
    pub fn value(self) -> Result<Value, Malformed> {
        Value::decode(self.0)
    }
}

/// A stored message with its overlay, borrowed: whatever is asked is looked up then.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    pub stored: &'a [u8],
    pub sections: &'a Sections,
    pub overlay: Option<&'a Overlay>,
}

impl<'a> View<'a> {
    /// A system property; `None` if it is absent or null.
    pub fn system(&self, property: SystemProperty) -> Result<Option<Encoded<'a>>, Malformed> {
        match self.overlay.and_then(|overlay| overlay.system(property)) {
            Some(Change::Set(value)) => return Ok(Some(Encoded(value))),
            Some(Change::Removed) => return Ok(None),
            None => {}
        }
        let found = match property.home() {
            // Only the broker says where a message was dead-lettered; a sender's word is ignored (S-3).
            _ if property == SystemProperty::DeadLetterSource => None,
            Home::Field(index) => {
                let fields = Properties::split(self.sections.properties.value(self.stored))?;
                Some(fields.raw(index))
            }
            Home::Annotation(name) => find(self.sections.message_annotations.value(self.stored), name)?,
        };
        Ok(found.map(Encoded).filter(|value| !value.is_null()))
    }

    /// An application property. One that is there with a null value is there.
    pub fn application(&self, name: &str) -> Result<Option<Encoded<'a>>, Malformed> {
        match self.overlay.and_then(|overlay| overlay.application(name)) {
            Some(Change::Set(value)) => Ok(Some(Encoded(value))),
            Some(Change::Removed) => Ok(None),
            None => Ok(find(self.sections.application_properties.value(self.stored), name)?.map(Encoded)),
        }
    }

    /// All application properties: the sender's that still hold, then the overlay's.
    pub fn applications(
        &self,
    ) -> Result<impl Iterator<Item = Result<(&'a str, Encoded<'a>), Malformed>>, Malformed> {
        let overlay = self.overlay;
        let is_changed = move |name: &str| overlay.is_some_and(|overlay| overlay.application(name).is_some());
        let sent = optional_entries(self.sections.application_properties.value(self.stored))?;
        let sent = sent.filter_map(move |entry| match entry {
            Ok(entry) => {
                let name = entry.name.filter(|name| !is_changed(name))?;
                Some(Ok((name, Encoded(entry.value))))
            }
            Err(malformed) => Some(Err(malformed)),
        });
        let set = overlay.into_iter().flat_map(|overlay| overlay.applications());
        let set = set.filter_map(|(name, change)| match change {
            Change::Set(value) => Some(Ok((name, Encoded(value)))),
            Change::Removed => None,
        });
        Ok(sent.chain(set))
    }

    /// The time to live that the sender asked for, in milliseconds (S-67). The effective one is the broker's.
    pub fn time_to_live(&self) -> Result<Option<u64>, Malformed> {
        let ttl = Header::split(self.sections.header.value(self.stored))?.get(header::TTL, Reader::uint)?;
        let lifetime = Properties::split(self.sections.properties.value(self.stored))?.lifetime()?;
        Ok(fields::time_to_live(ttl, lifetime))
    }

    /// The contents of a body of data sections, one slice for each; nothing for a body of another kind.
    pub fn data(&self) -> impl Iterator<Item = Result<&'a [u8], Malformed>> {
        let is_data = self.sections.body_kind == BodyKind::Data;
        batch::messages(if is_data { self.sections.body.bytes(self.stored) } else { &[] })
    }
}

fn find<'a>(map: Option<&'a [u8]>, name: &str) -> Result<Option<&'a [u8]>, Malformed> {
    for entry in optional_entries(map)? {
        let entry = entry?;
        if entry.name == Some(name) {
            return Ok(Some(entry.value));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{write_binary, write_descriptor};

    fn stored() -> Vec<u8> {
        let mut out = Vec::new();
        let symbol = |text: &str| Value::Symbol(text.into());
        let annotations = Value::Map(vec![
            (symbol("x-opt-partition-key"), "p".into()),
            (symbol("x-opt-deadletter-source"), "forged".into()),
        ]);
        let properties = Value::List(vec![Value::Ulong(7), Value::Null, Value::Null, "label".into()]);
        let application = Value::Map(vec![
            ("kept".into(), Value::Int(1)),
            ("null".into(), Value::Null),
            ("gone".into(), Value::Int(2)),
        ]);
        for (code, value) in [(0x72, annotations), (0x73, properties), (0x74, application)] {
            write_descriptor(&mut out, code);
            value.encode(&mut out);
        }
        for part in [b"one", b"two"] {
            write_descriptor(&mut out, 0x75);
            write_binary(&mut out, part);
        }
        out
    }

    fn overlay() -> Overlay {
        let mut overlay = Overlay::default();
        overlay.remove("gone").unwrap();
        overlay.set("new", &Value::Boolean(true)).unwrap();
        overlay.set_system(SystemProperty::To, &"to".into()).unwrap();
        overlay.set_system(SystemProperty::PartitionKey, &Value::Null).unwrap();
        overlay
    }

    /// Asks one question of the sample without and with an overlay.
    fn ask<T>(question: impl Fn(&View<'_>) -> T) -> (T, T) {
        let (stored, overlay) = (stored(), overlay());
        let sections = Sections::scan(&stored).unwrap();
        let view = View { stored: &stored, sections: &sections, overlay: None };
        (question(&view), question(&View { overlay: Some(&overlay), ..view }))
    }

    fn system(property: SystemProperty) -> (Option<Value>, Option<Value>) {
        ask(|view| view.system(property).unwrap().map(|value| value.value().unwrap()))
    }

    fn application(name: &str) -> (Option<Value>, Option<Value>) {
        ask(|view| view.application(name).unwrap().map(|value| value.value().unwrap()))
    }

    #[test]
    fn system_properties_are_found_in_their_sections_and_under_the_overlay() {
        assert_eq!(system(SystemProperty::MessageId), (Some(Value::Ulong(7)), Some(Value::Ulong(7))));
        assert_eq!(system(SystemProperty::Label).1, Some("label".into()));
        assert_eq!(system(SystemProperty::To), (None, Some("to".into())));
        assert_eq!(system(SystemProperty::PartitionKey), (Some("p".into()), None));
        assert_eq!(system(SystemProperty::SessionId), (None, None));
    }

    #[test]
    fn a_value_is_given_as_its_bytes_its_text_and_itself() {
        let label = |view: &View<'_>| {
            let label = view.system(SystemProperty::Label).unwrap().unwrap();
            assert_eq!((label.as_str(), label.is_null()), (Some("label"), false));
            label.bytes().to_vec()
        };
        assert_eq!(ask(label).0, [&[code::STRING_8, 5][..], b"label"].concat());
        let null = |view: &View<'_>| {
            let null = view.application("null").unwrap().unwrap();
            assert_eq!((null.as_str(), null.is_null()), (None, true));
            null.bytes().to_vec()
        };
        assert_eq!(ask(null).0, [code::NULL]);
    }

    // S-3
    #[test]
    fn a_senders_dead_letter_source_is_not_believed() {
        assert_eq!(system(SystemProperty::DeadLetterSource), (None, None));
    }

    // S-196: a null property exists, a missing one does not.
    #[test]
    fn application_properties_are_found_through_the_overlay() {
        assert_eq!(application("kept"), (Some(Value::Int(1)), Some(Value::Int(1))));
        assert_eq!(application("null"), (Some(Value::Null), Some(Value::Null)));
        assert_eq!(application("gone"), (Some(Value::Int(2)), None));
        assert_eq!(application("new"), (None, Some(Value::Boolean(true))));
        assert_eq!(application("missing"), (None, None));
    }

    #[test]
    fn all_application_properties_are_those_that_single_look_ups_find() {
        let names = |view: &View<'_>| {
            let all = view.applications().unwrap().map(Result::unwrap);
            all.map(|(name, value)| {
                assert_eq!(view.application(name), Ok(Some(value)));
                name.to_owned()
            })
            .collect::<Vec<_>>()
        };
        let (without, with) = ask(names);
        assert_eq!(without, ["kept", "null", "gone"]);
        assert_eq!(with, ["kept", "null", "new"]);
    }

    #[test]
    fn data_is_given_section_by_section() {
        let data = |view: &View<'_>| view.data().map(|part| part.unwrap().to_vec()).collect::<Vec<_>>();
        assert_eq!(ask(data).0, [b"one", b"two"]);
    }

    // S-67
    #[test]
    fn the_time_to_live_is_what_the_sender_asked_for() {
        assert_eq!(ask(|view| view.time_to_live().unwrap()).0, None);
        let mut stored = Vec::new();
        write_descriptor(&mut stored, 0x70);
        Value::List(vec![Value::Null, Value::Null, Value::Uint(60_000)]).encode(&mut stored);
        let sections = Sections::scan(&stored).unwrap();
        let view = View { stored: &stored, sections: &sections, overlay: None };
        assert_eq!(view.time_to_live(), Ok(Some(60_000)));
    }
}
