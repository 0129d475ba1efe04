//! What happened to a message's properties since it was stored: set or removed by abandon, defer, dead-letter and
//! rule actions. The stored message stays as it is; the overlay lives in the journal record of the change and is
//! merged in when the message is read.
//!
//! Changes are kept sorted and one per property, so an overlay has exactly one encoding (docs/format/overlay.md).
//! Values are kept as encoded AMQP values: they go to the journal and to the wire as they are, type included.

use crate::codec::{Malformed, Reader};
use crate::limits::{OVERLAY_BYTES, OVERLAY_ENTRY_COST, PROPERTY_BYTES};
use crate::system::SystemProperty;
use crate::value::Value;

pub const DEAD_LETTER_REASON: &str = "DeadLetterReason";
pub const DEAD_LETTER_ERROR_DESCRIPTION: &str = "DeadLetterErrorDescription";
pub const RULE_NAME: &str = "RuleName";

const VERSION: u8 = 1;

const SET: u8 = 1;
const REMOVED: u8 = 2;
const SYSTEM_SET: u8 = 3;
const SYSTEM_REMOVED: u8 = 4;

/// Why an overlay cannot be made or read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OverlayError {
    #[error("overlay version {0} is unknown; this build knows version {VERSION}")]
    UnknownVersion(u8),
    #[error("overlay entry of unknown kind {0}")]
    UnknownKind(u8),
    #[error("system property number {0} is unknown")]
    UnknownProperty(u8),
    #[error("overlay entries are not in order")]
    OutOfOrder,
    #[error("an overlay value is malformed: {0}")]
    Malformed(#[from] Malformed),
    #[error("{} cannot have a value of this type", .0.name())]
    WrongType(SystemProperty),
    #[error("a property has {0} bytes; at most {PROPERTY_BYTES} are allowed")]
    PropertyTooLarge(usize),
    #[error("changed properties have {0} bytes; at most {OVERLAY_BYTES} are allowed together")]
    TooLarge(usize),
}

/// What an overlay says about one property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// One encoded AMQP value, never null.
    Set(&'a [u8]),
    Removed,
}

/// An encoded value, or that the property was removed.
type Stored = Option<Box<[u8]>>;

/// Changes of a message's properties, sorted, one for each property.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Overlay {
    application: Vec<(Box<str>, Stored)>,
    system: Vec<(SystemProperty, Stored)>,
}

impl Overlay {
    pub fn is_empty(&self) -> bool {
        self.application.is_empty() && self.system.is_empty()
    }

    /// Sets an application property. Null removes it: clients ask for removal so, and some of them stumble over a
    /// null value when they receive one.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<(), OverlayError> {
        self.change(name, encoded(value))
    }

    pub fn remove(&mut self, name: &str) -> Result<(), OverlayError> {
        self.change(name, None)
    }

    /// Sets a system property, in the AMQP type that receivers expect; null removes it.
    pub fn set_system(&mut self, property: SystemProperty, value: &Value) -> Result<(), OverlayError> {
        let value = match value {
            Value::Null => None,
            value => encoded(&property.typed(value).ok_or(OverlayError::WrongType(property))?),
        };
        self.change_system(property, value)
    }

    /// Notes why the message is dead-lettered (S-104). What is not given is left as it was.
    pub fn set_dead_letter(
        &mut self,
        reason: Option<&str>,
        description: Option<&str>,
    ) -> Result<(), OverlayError> {
        for (name, text) in [(DEAD_LETTER_REASON, reason), (DEAD_LETTER_ERROR_DESCRIPTION, description)] {
            if let Some(text) = text {
                self.set(name, &text.into())?;
            }
        }
        Ok(())
    }

    /// Notes the rule whose action made this copy (S-182).
    pub fn set_rule_name(&mut self, rule: &str) -> Result<(), OverlayError> {
        self.set(RULE_NAME, &rule.into())
    }

    /// Notes the entity in which the message was dead-lettered before it was forwarded (S-112).
    pub fn set_dead_letter_source(&mut self, path: &str) -> Result<(), OverlayError> {
        self.set_system(SystemProperty::DeadLetterSource, &path.into())
    }

    pub fn application(&self, name: &str) -> Option<Change<'_>> {
        let at = self.application.binary_search_by(|(other, _)| (**other).cmp(name)).ok()?;
        Some(change(&self.application[at].1))
    }

    pub fn system(&self, property: SystemProperty) -> Option<Change<'_>> {
        let at = self.system.binary_search_by_key(&property, |(other, _)| *other).ok()?;
        Some(change(&self.system[at].1))
    }

    /// Changes of application properties, sorted by name.
    pub fn applications(&self) -> impl Iterator<Item = (&str, Change<'_>)> {
        self.application.iter().map(|(name, value)| (&**name, change(value)))
    }

    /// Changes of system properties, in the order of their numbers.
    pub fn systems(&self) -> impl Iterator<Item = (SystemProperty, Change<'_>)> {
        self.system.iter().map(|(property, value)| (*property, change(value)))
    }

    /// Takes over all changes of `later`, which win. Refuses whole.
    pub fn merge(&mut self, later: &Overlay) -> Result<(), OverlayError> {
        let mut merged = self.clone();
        for (name, value) in &later.application {
            merged.insert(name, value.clone());
        }
        for (property, value) in &later.system {
            merged.insert_system(*property, value.clone());
        }
        merged.within_limit()?;
        *self = merged;
        Ok(())
    }

    fn change(&mut self, name: &str, value: Stored) -> Result<(), OverlayError> {
        check_size(name.len(), value.as_deref())?;
        let before = self.insert(name, value);
        self.within_limit().inspect_err(|_| match before {
            Some(before) => drop(self.insert(name, before)),
            None => self.application.retain(|(other, _)| **other != *name),
        })
    }

    fn change_system(&mut self, property: SystemProperty, value: Stored) -> Result<(), OverlayError> {
        check_size(1, value.as_deref())?;
        let before = self.insert_system(property, value);
        self.within_limit().inspect_err(|_| match before {
            Some(before) => drop(self.insert_system(property, before)),
            None => self.system.retain(|(other, _)| *other != property),
        })
    }

    fn insert(&mut self, name: &str, value: Stored) -> Option<Stored> {
        match self.application.binary_search_by(|(other, _)| (**other).cmp(name)) {
            Ok(at) => Some(std::mem::replace(&mut self.application[at].1, value)),
            Err(at) => {
                self.application.insert(at, (name.into(), value));
                None
            }
        }
    }

    fn insert_system(&mut self, property: SystemProperty, value: Stored) -> Option<Stored> {
        match self.system.binary_search_by_key(&property, |(other, _)| *other) {
            Ok(at) => Some(std::mem::replace(&mut self.system[at].1, value)),
            Err(at) => {
                self.system.insert(at, (property, value));
                None
            }
        }
    }

    fn within_limit(&self) -> Result<(), OverlayError> {
        let bytes = self.encoded_bytes();
        if bytes <= OVERLAY_BYTES { Ok(()) } else { Err(OverlayError::TooLarge(bytes)) }
    }

    /// How long [`Overlay::encode`] makes its output.
    pub fn encoded_bytes(&self) -> usize {
        let value = |value: &Stored| value.as_ref().map_or(0, |value| 2 + value.len());
        let application = self.application.iter().map(|(name, v)| 1 + 2 + name.len() + value(v));
        let system = self.system.iter().map(|(_, v)| 1 + 1 + value(v));
        1 + application.sum::<usize>() + system.sum::<usize>()
    }

    /// What it takes in memory, about.
    pub fn held_bytes(&self) -> usize {
        let value = |value: &Stored| OVERLAY_ENTRY_COST + value.as_ref().map_or(0, |value| value.len());
        let application = self.application.iter().map(|(name, stored)| name.len() + value(stored));
        application.sum::<usize>() + self.system.iter().map(|(_, stored)| value(stored)).sum::<usize>()
    }

    /// Appends the overlay as docs/format/overlay.md draws it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        for (name, value) in &self.application {
            out.push(if value.is_some() { SET } else { REMOVED });
            write_sized(out, name.as_bytes());
            value.iter().for_each(|value| write_sized(out, value));
        }
        for (property, value) in &self.system {
            out.push(if value.is_some() { SYSTEM_SET } else { SYSTEM_REMOVED });
            out.push(*property as u8);
            value.iter().for_each(|value| write_sized(out, value));
        }
    }

    /// Reads exactly what [`Overlay::encode`] wrote, and nothing that it would not have written.
    pub fn decode(bytes: &[u8]) -> Result<Overlay, OverlayError> {
        if bytes.len() > OVERLAY_BYTES {
            return Err(OverlayError::TooLarge(bytes.len()));
        }
        let mut reader = Reader::new(bytes);
        let version = reader.take_u8()?;
        if version != VERSION {
            return Err(OverlayError::UnknownVersion(version));
        }
        let mut overlay = Overlay::default();
        while !reader.is_empty() {
            let kind = reader.take_u8()?;
            match kind {
                SET | REMOVED => overlay.read_application(&mut reader, kind == SET)?,
                SYSTEM_SET | SYSTEM_REMOVED => overlay.read_system(&mut reader, kind == SYSTEM_SET)?,
                _ => return Err(OverlayError::UnknownKind(kind)),
            }
        }
        Ok(overlay)
    }

    fn read_application(&mut self, reader: &mut Reader<'_>, is_set: bool) -> Result<(), OverlayError> {
        let name = std::str::from_utf8(read_sized(reader)?).map_err(|_| Malformed::NotUtf8)?;
        let value = is_set.then(|| read_value(reader)).transpose()?;
        check_size(name.len(), value.as_deref())?;
        if !self.system.is_empty() || self.application.last().is_some_and(|(last, _)| **last >= *name) {
            return Err(OverlayError::OutOfOrder);
        }
        self.application.push((name.into(), value));
        Ok(())
    }

    fn read_system(&mut self, reader: &mut Reader<'_>, is_set: bool) -> Result<(), OverlayError> {
        let number = reader.take_u8()?;
        let property = SystemProperty::from_number(number).ok_or(OverlayError::UnknownProperty(number))?;
        let value = is_set.then(|| read_value(reader)).transpose()?;
        check_size(1, value.as_deref())?;
        if self.system.last().is_some_and(|(last, _)| *last >= property) {
            return Err(OverlayError::OutOfOrder);
        }
        self.system.push((property, value));
        Ok(())
    }
}

fn change(value: &Stored) -> Change<'_> {
    value.as_deref().map_or(Change::Removed, Change::Set)
}

fn encoded(value: &Value) -> Stored {
    if value.is_null() {
        return None;
    }
    let mut out = Vec::new();
    value.encode(&mut out);
    Some(out.into())
}

fn check_size(name_bytes: usize, value: Option<&[u8]>) -> Result<(), OverlayError> {
    let bytes = name_bytes + value.map_or(0, <[u8]>::len);
    if bytes <= PROPERTY_BYTES as usize { Ok(()) } else { Err(OverlayError::PropertyTooLarge(bytes)) }
}

fn write_sized(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u16::try_from(bytes.len()).expect("check_size keeps names and values below 32 KiB");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes);
}

fn read_sized<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let length = u16::from_be_bytes(reader.fixed()?);
    reader.take(length.into())
}

fn read_value(reader: &mut Reader<'_>) -> Result<Box<[u8]>, OverlayError> {
    let bytes = read_sized(reader)?;
    let mut value = Reader::new(bytes);
    if value.null() {
        return Err(Malformed::MissingField.into());
    }
    value.skip()?;
    value.finish()?;
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(overlay: &Overlay) -> Vec<u8> {
        let mut out = Vec::new();
        overlay.encode(&mut out);
        assert_eq!(out.len(), overlay.encoded_bytes());
        out
    }

    fn sample() -> Overlay {
        let mut overlay = Overlay::default();
        overlay.set("b", &Value::Int(1)).unwrap();
        overlay.remove("a").unwrap();
        overlay.set_dead_letter(Some("reason"), None).unwrap();
        overlay.set_dead_letter_source("orders").unwrap();
        overlay.set_system(SystemProperty::Label, &Value::Null).unwrap();
        overlay
    }

    #[test]
    fn an_overlay_reads_back_as_it_was_written() {
        assert_eq!(Overlay::decode(&bytes(&sample())), Ok(sample()));
        assert_eq!(Overlay::decode(&bytes(&Overlay::default())), Ok(Overlay::default()));
    }

    // docs/format/overlay.md draws this example.
    #[test]
    fn the_format_is_the_documented_one() {
        let mut overlay = Overlay::default();
        overlay.set("b", &Value::Int(1)).unwrap();
        overlay.remove("a").unwrap();
        overlay.set_dead_letter_source("q").unwrap();
        let expected = [1, 2, 0, 1, b'a', 1, 0, 1, b'b', 0, 2, 0x54, 1, 3, 12, 0, 3, 0xa1, 1, b'q'];
        assert_eq!(bytes(&overlay), expected);
    }

    #[test]
    fn the_later_change_wins() {
        let mut overlay = sample();
        let mut later = Overlay::default();
        later.set("a", &Value::from("back")).unwrap();
        later.remove("b").unwrap();
        later.set_system(SystemProperty::Label, &"l".into()).unwrap();
        overlay.merge(&later).unwrap();
        assert_eq!(overlay.application("a"), Some(Change::Set(&[0xa1, 4, b'b', b'a', b'c', b'k'])));
        assert_eq!(overlay.application("b"), Some(Change::Removed));
        assert_eq!(overlay.application("c"), None);
        assert_eq!(overlay.system(SystemProperty::Label), Some(Change::Set(&[0xa1, 1, b'l'])));
        assert!(matches!(overlay.application(DEAD_LETTER_REASON), Some(Change::Set(_))));
    }

    #[test]
    fn one_property_is_accepted_to_its_limit_and_no_further() {
        let mut overlay = Overlay::default();
        // The name, five bytes of binary32, the content.
        let fits = PROPERTY_BYTES as usize - 1 - 5;
        overlay.set("n", &Value::Binary(vec![0; fits])).unwrap();
        let refused = overlay.set("n", &Value::Binary(vec![0; fits + 1]));
        assert_eq!(refused, Err(OverlayError::PropertyTooLarge(PROPERTY_BYTES as usize + 1)));
    }

    #[test]
    fn all_changes_together_are_accepted_to_the_limit_and_a_refused_one_leaves_no_trace() {
        let mut overlay = Overlay::default();
        // Version 1; per entry kind 1, length 2, name 1, length 2, binary32 5.
        overlay.set("a", &Value::Binary(vec![0; 30_000])).unwrap();
        overlay.set("b", &Value::Binary(vec![0; 30_000])).unwrap();
        let rest = OVERLAY_BYTES - 1 - 3 * 11 - 2 * 30_000;
        overlay.set("c", &Value::Binary(vec![0; rest])).unwrap();
        assert_eq!(overlay.encoded_bytes(), OVERLAY_BYTES);
        let full = overlay.clone();
        let too_large = Err(OverlayError::TooLarge(OVERLAY_BYTES + 1));
        assert_eq!(overlay.set("c", &Value::Binary(vec![0; rest + 1])), too_large);
        assert_eq!(overlay, full);
        let mut later = Overlay::default();
        later.remove("d").unwrap();
        assert!(overlay.remove("d").is_err() && overlay.merge(&later).is_err());
        assert_eq!(overlay, full);
        assert_eq!(Overlay::decode(&bytes(&full)), Ok(full));
    }

    #[test]
    fn a_system_property_that_finds_no_room_is_left_as_it_was() {
        let long = |length: usize| Value::String("x".repeat(length));
        let mut overlay = Overlay::default();
        overlay.set_system(SystemProperty::Label, &"label".into()).unwrap();
        overlay.set_system(SystemProperty::To, &Value::Null).unwrap();
        for name in ["a", "b"] {
            overlay.set(name, &Value::Binary(vec![0; 32_000])).unwrap();
        }
        let full = overlay.clone();
        // One that was set, one that was removed, one of which nothing was said.
        for property in [SystemProperty::Label, SystemProperty::To, SystemProperty::ReplyTo] {
            let refused = overlay.set_system(property, &long(2_000));
            assert!(matches!(refused, Err(OverlayError::TooLarge(_))), "{property:?}: {refused:?}");
            assert_eq!(overlay, full, "{property:?}");
        }
        let mut later = Overlay::default();
        later.set_system(SystemProperty::To, &"there".into()).unwrap();
        later.set_system(SystemProperty::ReplyTo, &long(2_000)).unwrap();
        assert!(matches!(overlay.merge(&later), Err(OverlayError::TooLarge(_))));
        assert_eq!(overlay, full, "not even what would have found room");
    }

    #[test]
    fn what_was_not_written_by_us_is_refused() {
        assert_eq!(Overlay::decode(&[]), Err(Malformed::Truncated.into()));
        assert_eq!(Overlay::decode(&[2]), Err(OverlayError::UnknownVersion(2)));
        assert_eq!(Overlay::decode(&[1, 9]), Err(OverlayError::UnknownKind(9)));
        assert_eq!(Overlay::decode(&[1, 4, 99]), Err(OverlayError::UnknownProperty(99)));
        let twice = [1, 2, 0, 1, b'a', 2, 0, 1, b'a'];
        assert_eq!(Overlay::decode(&twice), Err(OverlayError::OutOfOrder));
        let null = [1, 1, 0, 1, b'a', 0, 1, 0x40];
        assert_eq!(Overlay::decode(&null), Err(Malformed::MissingField.into()));
        let whole = bytes(&sample());
        let entries = (1..whole.len()).filter(|cut| Overlay::decode(&whole[..*cut]).is_ok()).count();
        assert_eq!(entries, 5, "a cut reads only where an entry ends");
    }

    #[test]
    fn what_is_held_is_names_and_values_and_the_cost_of_each_entry() {
        type Step = fn(&mut Overlay, &Value);
        let mut overlay = Overlay::default();
        assert_eq!(overlay.held_bytes(), 0);
        // Constructor and length before a text.
        let value = Value::String("x".repeat(40));
        let steps: [(&str, Step, usize); 4] = [
            ("set", |overlay, value| overlay.set("colour", value).unwrap(), 6 + 42),
            ("removed", |overlay, _| overlay.remove("size").unwrap(), 4),
            ("system", |overlay, value| overlay.set_system(SystemProperty::To, value).unwrap(), 42),
            ("no system", |overlay, _| overlay.set_system(SystemProperty::Label, &Value::Null).unwrap(), 0),
        ];
        let mut expected = 0;
        for (what, step, bytes) in steps {
            step(&mut overlay, &value);
            expected += OVERLAY_ENTRY_COST + bytes;
            assert_eq!(overlay.held_bytes(), expected, "{what}");
        }
        overlay.set("size", &value).unwrap();
        assert_eq!(overlay.held_bytes(), expected + 42, "an entry that is there is changed");
    }

    #[test]
    fn a_system_property_keeps_its_type() {
        let mut overlay = Overlay::default();
        overlay.set_system(SystemProperty::ContentType, &"text/plain".into()).unwrap();
        assert!(matches!(overlay.system(SystemProperty::ContentType), Some(Change::Set([0xa3, 10, ..]))));
        let wrong = overlay.set_system(SystemProperty::Label, &Value::Int(1));
        assert_eq!(wrong, Err(OverlayError::WrongType(SystemProperty::Label)));
    }
}
