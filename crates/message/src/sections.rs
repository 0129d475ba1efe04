//! Where each section of an encoded message is (AMQP 1.0 part 3, 3.2).
//!
//! One pass, no allocation, nothing copied: positions only. What is found here holds for every later reader: each
//! section is in its place, at most once (data and sequence sections may repeat), its value is of its outer type
//! and is wholly within the bytes. What is *inside* lists and maps is not looked at; see [`crate::facts`].

use crate::codec::{Descriptor, Malformed, Reader, code};
use crate::limits::MESSAGE_SECTIONS;
use std::ops::Range;

/// Descriptor codes of the sections.
pub mod section {
    pub const HEADER: u8 = 0x70;
    pub const DELIVERY_ANNOTATIONS: u8 = 0x71;
    pub const MESSAGE_ANNOTATIONS: u8 = 0x72;
    pub const PROPERTIES: u8 = 0x73;
    pub const APPLICATION_PROPERTIES: u8 = 0x74;
    pub const DATA: u8 = 0x75;
    pub const SEQUENCE: u8 = 0x76;
    pub const VALUE: u8 = 0x77;
    pub const FOOTER: u8 = 0x78;
}

/// The place of one section: its descriptor starts at `start`, its value at `value`; both end at `end`.
/// An absent section is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    pub start: u32,
    pub value: u32,
    pub end: u32,
}

impl Span {
    pub fn is_present(&self) -> bool {
        self.end > self.start
    }

    /// Descriptor and value.
    pub fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// The section with its descriptor; empty if absent.
    pub fn bytes<'a>(&self, message: &'a [u8]) -> &'a [u8] {
        &message[self.range()]
    }

    /// The section's value, which for a body of several sections is that of the first; `None` if absent.
    pub fn value<'a>(&self, message: &'a [u8]) -> Option<&'a [u8]> {
        self.is_present().then(|| &message[self.value as usize..self.end as usize])
    }
}

/// What the body consists of. Kinds do not mix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BodyKind {
    /// The specification asks for a body, but clients do send messages without one.
    #[default]
    Absent,
    Data,
    Sequence,
    Value,
}

/// The section map of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sections {
    pub header: Span,
    pub delivery_annotations: Span,
    pub message_annotations: Span,
    pub properties: Span,
    pub application_properties: Span,
    /// All body sections together, from the first descriptor to the last byte.
    pub body: Span,
    pub footer: Span,
    pub body_kind: BodyKind,
    /// How many data, sequence or value sections the body has.
    pub body_sections: u32,
    /// Every descriptor is a smallulong, the only form that all clients read. Otherwise the
    /// message is rewritten on delivery.
    pub is_plain: bool,
    /// Where the bare message begins: behind header and annotations, which are the broker's to write.
    pub bare: u32,
    /// How far the message was looked at: to its end, or to its body if only the front was scanned.
    pub scanned: u32,
}

impl Sections {
    /// Finds the sections of a whole encoded message.
    pub fn scan(bytes: &[u8]) -> Result<Sections, Malformed> {
        let mut found = Sections { is_plain: true, scanned: bytes.len() as u32, ..Sections::default() };
        let mut last = 0;
        for section in sections(bytes) {
            let section = section?;
            let repeats = section.code == last && matches!(last, section::DATA | section::SEQUENCE);
            let mixes = is_body(section.code) && found.body_kind != BodyKind::Absent && !repeats;
            if (section.code <= last && !repeats) || mixes {
                return Err(Malformed::SectionOutOfPlace(section.code.into()));
            }
            last = section.code;
            found.is_plain &= section.is_plain;
            found.place(&section);
        }
        Ok(found)
    }

    /// Finds what comes before the body in the first piece of a message. The body is not looked at, and the piece may
    /// end in it; before its descriptor has come nobody knows whether the front is whole, and that is an error.
    pub fn scan_front(piece: &[u8]) -> Result<Sections, Malformed> {
        let mut found = Sections { is_plain: true, ..Sections::default() };
        let mut reader = Reader::new(piece);
        loop {
            let start = reader.position() as u32;
            let (code, is_plain) = section_code(&mut reader)?;
            if code >= section::DATA {
                return Ok(found);
            }
            if code <= found.last_code() {
                return Err(Malformed::SectionOutOfPlace(code.into()));
            }
            let value = reader.position() as u32;
            skip_section_value(&mut reader, code)?;
            let end = reader.position() as u32;
            found.is_plain &= is_plain;
            found.place(&Section { code, span: Span { start, value, end }, is_plain });
            found.scanned = end;
        }
    }

    /// Code of the last section that is there; 0 if none is.
    pub(crate) fn last_code(&self) -> u8 {
        let spans = [
            (section::FOOTER, self.footer),
            (section::APPLICATION_PROPERTIES, self.application_properties),
            (section::PROPERTIES, self.properties),
            (section::MESSAGE_ANNOTATIONS, self.message_annotations),
            (section::DELIVERY_ANNOTATIONS, self.delivery_annotations),
            (section::HEADER, self.header),
        ];
        spans.iter().find(|(_, span)| span.is_present()).map_or(0, |(code, _)| *code)
    }

    fn place(&mut self, section: &Section) {
        match section.code {
            section::HEADER => self.header = section.span,
            section::DELIVERY_ANNOTATIONS => self.delivery_annotations = section.span,
            section::MESSAGE_ANNOTATIONS => self.message_annotations = section.span,
            section::PROPERTIES => self.properties = section.span,
            section::APPLICATION_PROPERTIES => self.application_properties = section.span,
            section::FOOTER => self.footer = section.span,
            _ => {
                if self.body_sections == 0 {
                    self.body = section.span;
                    self.body_kind = match section.code {
                        section::DATA => BodyKind::Data,
                        section::SEQUENCE => BodyKind::Sequence,
                        _ => BodyKind::Value,
                    };
                }
                self.body.end = section.span.end;
                self.body_sections += 1;
            }
        }
        if section.code <= section::MESSAGE_ANNOTATIONS {
            self.bare = section.span.end;
        }
    }
}

pub(crate) fn is_body(code: u8) -> bool {
    matches!(code, section::DATA | section::SEQUENCE | section::VALUE)
}

/// One section as it is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// One of [`section`].
    pub code: u8,
    pub span: Span,
    /// The descriptor is a smallulong.
    pub is_plain: bool,
}

/// The sections of a message one by one, in the order of the bytes, whatever that order is. Ends after an error.
pub fn sections(bytes: &[u8]) -> Iter<'_> {
    Iter { reader: Reader::new(bytes), left: MESSAGE_SECTIONS, has_failed: false, length: bytes.len() }
}

/// See [`sections`].
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    reader: Reader<'a>,
    left: usize,
    has_failed: bool,
    length: usize,
}

impl Iterator for Iter<'_> {
    type Item = Result<Section, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() || self.has_failed {
            return None;
        }
        let section = self.read();
        self.has_failed = section.is_err();
        Some(section)
    }
}

impl Iter<'_> {
    #[inline]
    fn read(&mut self) -> Result<Section, Malformed> {
        if u32::try_from(self.length).is_err() {
            return Err(Malformed::TooLarge(self.length));
        }
        self.left = self.left.checked_sub(1).ok_or(Malformed::TooManySections)?;
        let start = self.reader.position() as u32;
        let (code, is_plain) = section_code(&mut self.reader)?;
        let value = self.reader.position() as u32;
        skip_section_value(&mut self.reader, code)?;
        let end = self.reader.position() as u32;
        Ok(Section { code, span: Span { start, value, end }, is_plain })
    }
}

pub(crate) fn section_code(reader: &mut Reader<'_>) -> Result<(u8, bool), Malformed> {
    if let [code::DESCRIBED, code::ULONG_SMALL, descriptor @ section::HEADER..=section::FOOTER, ..] =
        reader.rest()
    {
        let descriptor = *descriptor;
        reader.take(3)?;
        return Ok((descriptor, true));
    }
    let found = match reader.descriptor()? {
        Descriptor::Code(code) => code,
        Descriptor::Symbol(symbol) => match symbol {
            "amqp:header:list" => section::HEADER.into(),
            "amqp:delivery-annotations:map" => section::DELIVERY_ANNOTATIONS.into(),
            "amqp:message-annotations:map" => section::MESSAGE_ANNOTATIONS.into(),
            "amqp:properties:list" => section::PROPERTIES.into(),
            "amqp:application-properties:map" => section::APPLICATION_PROPERTIES.into(),
            "amqp:data:binary" => section::DATA.into(),
            "amqp:amqp-sequence:list" => section::SEQUENCE.into(),
            "amqp:amqp-value:*" => section::VALUE.into(),
            "amqp:footer:map" => section::FOOTER.into(),
            _ => return Err(Malformed::BadDescriptor),
        },
    };
    match u8::try_from(found) {
        Ok(code @ section::HEADER..=section::FOOTER) => Ok((code, false)),
        _ => Err(Malformed::SectionOutOfPlace(found)),
    }
}

fn skip_section_value(reader: &mut Reader<'_>, code: u8) -> Result<(), Malformed> {
    match code {
        section::HEADER | section::PROPERTIES | section::SEQUENCE => reader.list().map(drop),
        section::DATA => reader.binary().map(drop),
        section::VALUE => reader.skip(),
        _ => reader.map().map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{write_binary, write_descriptor, write_symbol};
    use crate::value::Value;

    fn empty(code: u8) -> Vec<u8> {
        let mut out = Vec::new();
        write_descriptor(&mut out, code.into());
        match code {
            section::HEADER | section::PROPERTIES | section::SEQUENCE => out.push(code::LIST_0),
            section::DATA => write_binary(&mut out, b"x"),
            section::VALUE => out.push(code::NULL),
            _ => out.extend_from_slice(&[code::MAP_8, 1, 0]),
        }
        out
    }

    fn message(codes: impl IntoIterator<Item = u8>) -> Vec<u8> {
        codes.into_iter().flat_map(empty).collect()
    }

    #[test]
    fn every_section_is_found_where_it_lies() {
        let bytes = message([0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x75, 0x78]);
        let found = Sections::scan(&bytes).unwrap();
        assert_eq!(found.header.bytes(&bytes), empty(0x70));
        assert_eq!(found.delivery_annotations.bytes(&bytes), empty(0x71));
        assert_eq!(found.message_annotations.bytes(&bytes), empty(0x72));
        assert_eq!(found.properties.value(&bytes), Some(&[code::LIST_0][..]));
        assert_eq!(found.application_properties.bytes(&bytes), empty(0x74));
        assert_eq!(found.body.bytes(&bytes), [empty(0x75), empty(0x75)].concat());
        assert_eq!((found.body_kind, found.body_sections), (BodyKind::Data, 2));
        assert_eq!(found.footer.bytes(&bytes), empty(0x78));
        assert_eq!(found.bare, found.properties.start);
        assert!(found.is_plain);
    }

    #[test]
    fn a_message_without_sections_is_empty_and_not_an_error() {
        let found = Sections::scan(&[]).unwrap();
        assert_eq!(found.body_kind, BodyKind::Absent);
        assert_eq!(found.body.value(&[]), None);
    }

    // AMQP 1.0 part 3, 3.2: the order of sections.
    #[test]
    fn any_two_sections_are_accepted_in_one_order_only() {
        for first in section::HEADER..=section::FOOTER {
            for second in section::HEADER..=section::FOOTER {
                let scanned = Sections::scan(&message([first, second]));
                let repeats = first == second && matches!(first, section::DATA | section::SEQUENCE);
                let mixes = is_body(first) && is_body(second) && !repeats;
                let is_fine = (first < second && !mixes) || repeats;
                assert_eq!(scanned.is_ok(), is_fine, "0x{first:02x} before 0x{second:02x}");
            }
        }
    }

    // AMQP 1.0 part 3, 3.2: the same order holds while the body has yet to come.
    #[test]
    fn any_two_sections_of_a_front_are_accepted_in_one_order_only() {
        for first in section::HEADER..section::DATA {
            for second in section::HEADER..section::DATA {
                let scanned = Sections::scan_front(&message([first, second, section::DATA]));
                let expected = (first >= second).then_some(Malformed::SectionOutOfPlace(second.into()));
                assert_eq!(scanned.err(), expected, "0x{first:02x} before 0x{second:02x}");
            }
        }
    }

    #[test]
    fn a_body_is_of_the_kind_of_its_sections() {
        for (codes, kind) in [
            (vec![section::FOOTER], BodyKind::Absent),
            (vec![section::DATA; 2], BodyKind::Data),
            (vec![section::SEQUENCE; 2], BodyKind::Sequence),
            (vec![section::VALUE], BodyKind::Value),
        ] {
            assert_eq!(Sections::scan(&message(codes)).unwrap().body_kind, kind);
        }
    }

    #[test]
    fn the_last_section_is_told_and_none_is_zero() {
        assert_eq!(Sections::default().last_code(), 0);
        for last in (section::HEADER..section::DATA).chain([section::FOOTER]) {
            let found = Sections::scan(&message(
                [section::HEADER, last].into_iter().skip(usize::from(last == section::HEADER)),
            ));
            assert_eq!(found.unwrap().last_code(), last);
        }
    }

    #[test]
    fn descriptors_may_be_wide_or_symbolic_and_the_message_is_then_not_plain() {
        let names = [
            "amqp:header:list",
            "amqp:delivery-annotations:map",
            "amqp:message-annotations:map",
            "amqp:properties:list",
            "amqp:application-properties:map",
            "amqp:data:binary",
            "amqp:amqp-sequence:list",
            "amqp:amqp-value:*",
            "amqp:footer:map",
        ];
        for (code, name) in (section::HEADER..).zip(names) {
            let plain = empty(code);
            let mut symbolic = vec![code::DESCRIBED];
            write_symbol(&mut symbolic, name);
            symbolic.extend_from_slice(&plain[3..]);
            let mut wide = vec![code::DESCRIBED, code::ULONG, 0, 0, 0, 0, 0, 0, 0, code];
            wide.extend_from_slice(&plain[3..]);
            for bytes in [symbolic, wide] {
                let section = sections(&bytes).next().unwrap().unwrap();
                assert_eq!((section.code, section.is_plain), (code, false), "{name}");
                assert_eq!(&bytes[section.span.value as usize..], &plain[3..]);
                assert!(!Sections::scan(&bytes).unwrap().is_plain);
                let front = |front: &[u8]| Sections::scan_front(&[front, &empty(section::DATA)].concat());
                if code < section::DATA {
                    assert!(front(&plain).unwrap().is_plain && !front(&bytes).unwrap().is_plain, "{name}");
                }
            }
        }
    }

    #[test]
    fn sections_are_counted_to_the_limit_and_no_further() {
        let body = |count| Sections::scan(&empty(section::DATA).repeat(count));
        assert_eq!(body(MESSAGE_SECTIONS).unwrap().body_sections as usize, MESSAGE_SECTIONS);
        assert_eq!(body(MESSAGE_SECTIONS + 1), Err(Malformed::TooManySections));
    }

    #[test]
    fn a_section_of_another_type_or_code_is_refused() {
        let described = |code: u64, value: Value| {
            let mut out = Vec::new();
            write_descriptor(&mut out, code);
            value.encode(&mut out);
            Sections::scan(&out)
        };
        assert!(matches!(described(0x75, "text".into()), Err(Malformed::Unexpected { .. })));
        assert!(matches!(described(0x73, Value::Map(vec![])), Err(Malformed::Unexpected { .. })));
        assert_eq!(described(0x79, Value::Null), Err(Malformed::SectionOutOfPlace(0x79)));
        assert_eq!(described(0x170, Value::List(vec![])), Err(Malformed::SectionOutOfPlace(0x170)));
    }

    #[test]
    fn every_cut_of_a_message_is_refused_or_ends_at_a_section() {
        let bytes = message([0x70, 0x72, 0x73, 0x75, 0x78]);
        let ends: Vec<usize> = sections(&bytes).map(|s| s.unwrap().span.end as usize).collect();
        for cut in 1..bytes.len() {
            assert_eq!(Sections::scan(&bytes[..cut]).is_ok(), ends.contains(&cut), "cut at {cut}");
        }
    }
}
