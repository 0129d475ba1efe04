//! XML as the management API needs it: read into a small tree by namespace, never by prefix; written as text.
//!
//! What a stranger sends may be at most [`HTTP_BODY_BYTES`](crate::limits::HTTP_BODY_BYTES) long, is at most
//! [`XML_DEPTH`] deep, has at most [`XML_ELEMENTS`] elements and declares nothing: a document type is refused, so
//! there are no entities to expand and no files to fetch.

use crate::limits::{XML_DEPTH, XML_ELEMENTS};
use message::planted::is_planted;
use quick_xml::escape::{escape, partial_escape, resolve_predefined_entity};
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::ResolveResult;
use quick_xml::reader::NsReader;
use std::borrow::Cow;

pub const ATOM: &str = "http://www.w3.org/2005/Atom";
pub const SERVICE_BUS: &str = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";
pub const COUNTS: &str = "http://schemas.microsoft.com/netservices/2011/06/servicebus";
pub const SCHEMA: &str = "http://www.w3.org/2001/XMLSchema";
pub const SCHEMA_INSTANCE: &str = "http://www.w3.org/2001/XMLSchema-instance";

/// An element with its text and its children. Of its attributes only the type is kept: nothing depends on others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Element {
    pub namespace: Box<str>,
    pub name: Box<str>,
    /// The schema-instance type without its prefix, as in `i:type="d6p1:string"` (H-63).
    pub kind: Option<Box<str>>,
    pub text: String,
    pub children: Vec<Element>,
}

impl Element {
    pub fn is(&self, namespace: &str, name: &str) -> bool {
        *self.namespace == *namespace && *self.name == *name
    }

    pub fn child(&self, namespace: &str, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.is(namespace, name))
    }
}

/// Why a document was not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum XmlError {
    #[error("the body is not UTF-8")]
    NotText,
    #[error("the body is not well-formed XML: {0}")]
    Malformed(String),
    #[error("the body declares a document type, which is not allowed")]
    DocumentType,
    #[error("the body uses an entity that is not defined")]
    UnknownEntity,
    #[error("the body nests elements deeper than {XML_DEPTH}")]
    TooDeep,
    #[error("the body has more than {XML_ELEMENTS} elements")]
    TooManyElements,
    #[error("the body contains a character that XML does not allow")]
    IllegalCharacter,
}

/// Reads a document and returns its root.
pub fn read(body: &[u8]) -> Result<Element, XmlError> {
    let malformed = |error: &dyn std::fmt::Display| XmlError::Malformed(error.to_string());
    let text = std::str::from_utf8(body).map_err(|_| XmlError::NotText)?;
    let mut reader = NsReader::from_str(text.trim_start_matches('\u{feff}'));
    reader.config_mut().expand_empty_elements = true;
    let mut open: Vec<Element> = Vec::new();
    let mut root = None;
    let mut count = 0;
    loop {
        let (namespace, event) = reader.read_resolved_event().map_err(|error| broken(&error))?;
        match event {
            Event::Start(start) => {
                count += 1;
                if open.len() == XML_DEPTH {
                    return Err(XmlError::TooDeep);
                }
                if count > XML_ELEMENTS {
                    return Err(XmlError::TooManyElements);
                }
                if root.is_some() {
                    return Err(malformed(&"a second root element"));
                }
                let namespace = match namespace {
                    ResolveResult::Bound(namespace) => namespace.into_inner().into(),
                    ResolveResult::Unbound => "".into(),
                    ResolveResult::Unknown(_) => return Err(malformed(&"an undeclared prefix")),
                };
                let name = start.local_name().into_inner().into();
                let kind = schema_type(&reader, &start)?;
                open.push(Element { namespace, name, kind, ..Element::default() });
            }
            Event::End(_) => {
                let element = open.pop().ok_or_else(|| malformed(&"an end without a start"))?;
                match open.last_mut() {
                    Some(parent) => parent.children.push(element),
                    None => root = Some(element),
                }
            }
            Event::Text(part) => add_text(&mut open, &part.xml10_content())?,
            Event::CData(part) => add_text(&mut open, &part.xml10_content())?,
            Event::GeneralRef(reference) => {
                let name = reference.xml10_content();
                let character =
                    reference.resolve_char_ref().map_err(|_| malformed(&"a character reference is none"))?;
                let replacement = match character {
                    Some(character) => Cow::Owned(character.to_string()),
                    None => Cow::Borrowed(resolve_predefined_entity(&name).ok_or(XmlError::UnknownEntity)?),
                };
                add_text(&mut open, &replacement)?;
            }
            Event::DocType(_) => return Err(XmlError::DocumentType),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
            Event::Empty(_) => return Err(malformed(&"an empty element was not expanded")),
            Event::Eof => break,
        }
    }
    if !open.is_empty() {
        return Err(malformed(&"an element without an end"));
    }
    root.ok_or_else(|| malformed(&"no root element"))
}

/// What is wrong, in words that repeat nothing of the body: it may hold a key.
fn broken(error: &quick_xml::Error) -> XmlError {
    XmlError::Malformed(match error {
        quick_xml::Error::Syntax(error) => error.to_string(),
        quick_xml::Error::IllFormed(_) => "a start and an end do not belong together".to_owned(),
        _ => "it cannot be read".to_owned(),
    })
}

/// The value of the one attribute that counts. All are read, so that broken ones are refused.
fn schema_type(reader: &NsReader<&[u8]>, start: &BytesStart<'_>) -> Result<Option<Box<str>>, XmlError> {
    let mut kind = None;
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|error| XmlError::Malformed(error.to_string()))?;
        let (namespace, name) = reader.resolver().resolve_attribute(attribute.key);
        let is_type = name.into_inner() == "type"
            && matches!(namespace, ResolveResult::Bound(bound) if bound.into_inner() == SCHEMA_INSTANCE);
        if is_type {
            let value = attribute.value.trim();
            let local = value.rsplit_once(':').map_or(value, |(_, local)| local);
            kind = Some(local.into());
        }
    }
    Ok(kind)
}

fn add_text(open: &mut [Element], text: &str) -> Result<(), XmlError> {
    if !text.chars().all(is_allowed) {
        return Err(XmlError::IllegalCharacter);
    }
    match open.last_mut() {
        Some(element) => element.text.push_str(text),
        None if text.trim().is_empty() => {}
        None => return Err(XmlError::Malformed("text outside the root element".to_owned())),
    }
    Ok(())
}

/// XML 1.0, 2.2: most control characters cannot be written in any way.
fn is_allowed(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// A text with a replacement character for each that no document may have, not even escaped.
fn legal(text: &str) -> Cow<'_, str> {
    let is_illegal =
        |c: char| c < ' ' && !matches!(c, '\t' | '\n' | '\r') || matches!(c, '\u{fffe}' | '\u{ffff}');
    match text.contains(is_illegal) {
        true => text.replace(is_illegal, "\u{fffd}").into(),
        false => text.into(),
    }
}

/// Writes a document. Names and attributes are ours; texts may be anybody's and are escaped.
#[derive(Debug, Default)]
pub struct Writer {
    text: String,
    open: Vec<&'static str>,
}

impl Writer {
    /// Starts an element; `attributes` are names with their values.
    pub fn start(&mut self, name: &'static str, attributes: &[(&str, &str)]) -> &mut Writer {
        self.tag(name, attributes);
        self.text.push('>');
        self.open.push(name);
        self
    }

    /// Ends the newest element that has not ended.
    pub fn end(&mut self) -> &mut Writer {
        let name = self.open.pop().expect("each end has its start");
        self.text.push_str("</");
        self.text.push_str(name);
        self.text.push('>');
        self
    }

    /// An element with nothing in it.
    pub fn empty(&mut self, name: &str, attributes: &[(&str, &str)]) -> &mut Writer {
        self.tag(name, attributes);
        self.text.push_str("/>");
        self
    }

    /// An element with a text.
    pub fn leaf(&mut self, name: &str, text: &str) -> &mut Writer {
        self.leaf_with(name, &[], text)
    }

    pub fn leaf_with(&mut self, name: &str, attributes: &[(&str, &str)], text: &str) -> &mut Writer {
        self.tag(name, attributes);
        self.text.push('>');
        match is_planted("atom_xml") && !text.contains('<') {
            true => self.text.push_str(text),
            false => self.text.push_str(&partial_escape(legal(text).as_ref())),
        }
        self.text.push_str("</");
        self.text.push_str(name);
        self.text.push('>');
        self
    }

    fn tag(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.text.push('<');
        self.text.push_str(name);
        for (name, value) in attributes {
            self.text.push(' ');
            self.text.push_str(name);
            self.text.push_str("=\"");
            self.text.push_str(&escape(legal(value).as_ref()));
            self.text.push('"');
        }
    }

    pub fn finish(self) -> String {
        assert!(self.open.is_empty(), "each start has its end");
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(body: &str) -> Result<String, XmlError> {
        read(body.as_bytes()).map(|root| root.text)
    }

    #[test]
    fn elements_are_known_by_namespace_whatever_their_prefix() {
        for body in [
            r#"<a xmlns="urn:x"><b>t</b></a>"#,
            r#"<n:a xmlns:n="urn:x"><n:b>t</n:b></n:a>"#,
            r#"<a xmlns="urn:x"><b xmlns="urn:x">t</b></a>"#,
            "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<a xmlns=\"urn:x\">\n <!-- c --> <b>t</b></a>\n",
        ] {
            let root = read(body.as_bytes()).unwrap();
            assert!(root.is("urn:x", "a"), "{body}");
            assert_eq!(root.child("urn:x", "b").unwrap().text, "t");
        }
        assert!(!read(b"<a><b/></a>").unwrap().is("urn:x", "a"));
    }

    // H-63
    #[test]
    fn the_schema_type_is_known_under_any_prefix() {
        for body in [
            r#"<a xmlns:i="http://www.w3.org/2001/XMLSchema-instance" i:type="SqlFilter"/>"#,
            r#"<a xmlns:p4="http://www.w3.org/2001/XMLSchema-instance" p4:type="x:SqlFilter" type="no"/>"#,
        ] {
            assert_eq!(read(body.as_bytes()).unwrap().kind.as_deref(), Some("SqlFilter"), "{body}");
        }
        let foreign = r#"<a xmlns:p="urn:x" p:type="x" type="y"/>"#;
        assert_eq!(read(foreign.as_bytes()).unwrap().kind, None);
        assert!(read(br#"<a b="1" b="2"/>"#).is_err());
    }

    #[test]
    fn text_comes_from_characters_references_and_cdata_alike() {
        assert_eq!(texts("<a>1 &lt;&amp;&#x41;&#66;<![CDATA[<x>&]]></a>"), Ok("1 <&AB<x>&".to_owned()));
    }

    #[test]
    fn a_document_type_is_refused_before_anything_is_expanded() {
        let bomb = r#"<!DOCTYPE a [<!ENTITY x "xxxxxxxxxx"><!ENTITY y "&x;&x;">]><a>&y;</a>"#;
        assert_eq!(texts(bomb), Err(XmlError::DocumentType));
        assert_eq!(texts(r#"<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>"#), Err(XmlError::DocumentType));
        assert_eq!(texts("<a>&y;</a>"), Err(XmlError::UnknownEntity));
    }

    #[test]
    fn depth_and_number_of_elements_have_an_end() {
        let nested = |depth| format!("{}{}", "<a>".repeat(depth), "</a>".repeat(depth));
        assert!(texts(&nested(XML_DEPTH)).is_ok());
        assert_eq!(texts(&nested(XML_DEPTH + 1)), Err(XmlError::TooDeep));
        let wide = |count| format!("<a>{}</a>", "<b/>".repeat(count - 1));
        assert!(texts(&wide(XML_ELEMENTS)).is_ok());
        assert_eq!(texts(&wide(XML_ELEMENTS + 1)), Err(XmlError::TooManyElements));
    }

    #[test]
    fn broken_documents_are_refused() {
        for body in [
            "",
            " ",
            "<a>",
            "</a>",
            "<a></b>",
            "<a/><b/>",
            "<a/>text",
            "text",
            "<p:a/>",
            "<a",
            "<a>&#xd800;</a>",
            "<a>&#0;</a>",
            "<a>&unfinished</a>",
        ] {
            assert!(texts(body).is_err(), "{body}");
        }
        assert_eq!(texts("<a>&#1;</a>"), Err(XmlError::IllegalCharacter));
        assert_eq!(read(b"<a>\xff</a>"), Err(XmlError::NotText));
    }

    #[test]
    fn what_is_written_is_escaped_and_reads_back() {
        let mut writer = Writer::default();
        writer.start("a", &[("x", "\"<>&")]).leaf("b", "<&\"'>").empty("c", &[]).end();
        let text = writer.finish();
        assert_eq!(read(text.as_bytes()).unwrap().child("", "b").unwrap().text, "<&\"'>");
        assert!(text.starts_with("<a x=\"&quot;&lt;&gt;&amp;\"><b>"));
    }

    #[test]
    fn what_no_document_may_have_is_replaced() {
        // H-4: an error that repeats an address is read by clients, whatever the address is.
        let mut writer = Writer::default();
        writer.start("a", &[("x", "q\u{1}")]).leaf("b", "q\0\u{1f}\u{fffe}\t").end();
        let text = writer.finish();
        assert_eq!(
            read(text.as_bytes()).unwrap().child("", "b").unwrap().text,
            "q\u{fffd}\u{fffd}\u{fffd}\t"
        );
        assert!(text.contains("x=\"q\u{fffd}\""));
    }
}
