//! Bodies of the fuzz targets: heads of requests, Atom entries, and what senders say of their messages.

pub use super::message::fuzzing::broker_properties;

use super::atom;
use super::description::{queue, rule, subscription, topic};
use super::heads::{Heads, Respelled, Spelled};
use super::route::{Address, Needs};
use super::xml::{self, Element, Writer};
use super::{Manner, check_head};
use crate::fuzzing::{Pieces, run_until_it_waits};
use crate::limits::{HTTP_HEAD_BYTES, HTTP_HEADERS, XML_DEPTH, XML_ELEMENTS};
use crate::stream::line_ends::LineEnds;
use crate::stream::through::Overheard;
use broker::topic::TopicDescription;
use broker::topic::rule::RuleDescription;
use broker::topic::subscription::SubscriptionDescription;
use broker::{Counts, LocalTime, QueueDescription};
use bytes::Bytes;
use http_body_util::Empty;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Response, Uri, Version};
use hyper_util::rt::TokioIo;
use std::cell::RefCell;
use std::convert::Infallible;
use tokio::sync::watch;

/// Pieces in which bytes arrive, over and over.
const CUTS: [&[usize]; 4] = [&[1], &[3, 7, 1], &[64], &[16, 2]];

/// The first byte chooses how the request is cut, the rest is the request.
///
/// However it is cut it means the same. No head passes whose lines somebody else might see otherwise, or that names two
/// hosts; names are spelled as they came, in the answer too; and what an address needs does not depend on its case.
pub fn http_head(bytes: &[u8]) {
    let Some((&first, request)) = bytes.split_first() else { return };
    let whole = seen(request, &[1 << 20]);
    let cut = seen(request, CUTS[usize::from(first) % CUTS.len()]);
    assert_eq!(whole, cut, "cut, the request means something else");
    let Some(seen) = whole else { return };
    if seen.is_refused {
        return;
    }
    assert!(!has_bare_line_feed(request), "lines that somebody else sees otherwise");
    assert!(seen.hosts == 1 || seen.hosts == 0 && seen.is_old, "{} hosts", seen.hosts);
}

#[derive(Debug, PartialEq, Eq)]
struct Seen {
    is_refused: bool,
    is_old: bool,
    hosts: usize,
    spelled: Vec<String>,
    address: String,
}

fn seen(request: &[u8], cut: &[usize]) -> Option<Seen> {
    let (heads, found) = (Heads::default(), RefCell::new(None));
    let ((_stop, stopping), line_ends) = (watch::channel(false), LineEnds::default());
    let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
        let (spelling, stopping) = (heads.take(), stopping.clone());
        let manner = Manner { spelling, has_wrong_lines: line_ends.is_next_wrong(), stopping };
        found.borrow_mut().get_or_insert_with(|| look(&request.into_parts().0, &manner));
        heads.expect(Some(Spelled(vec!["OrderId".to_owned()])));
        let answer = Response::builder().header("orderid", "7").header("connection", "close");
        async { Ok::<_, Infallible>(answer.body(Empty::<Bytes>::new()).expect("it is sound")) }
    });
    let mut stream = Pieces::new(request, cut).staying();
    let watched = Overheard::new(&mut stream, |read: &[u8]| {
        line_ends.add(read);
        heads.add(read);
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .max_buf_size(HTTP_HEAD_BYTES)
        .max_headers(HTTP_HEADERS)
        .serve_connection(TokioIo::new(Respelled::new(watched, heads.clone())), service);
    let _ = run_until_it_waits(connection);
    let found = found.into_inner();
    if found.is_some() {
        let answer = String::from_utf8(stream.heard).expect("an answer of ours");
        assert!(answer.contains("\r\nOrderId: 7\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    }
    found
}

fn look(head: &Parts, manner: &Manner) -> Seen {
    let spelled = head.headers.keys().map(|name| {
        let spelled = manner.spelling.of(name.as_str());
        assert!(spelled.eq_ignore_ascii_case(name.as_str()), "{name} is spelled {spelled}");
        spelled.to_owned()
    });
    let read = |uri: &Uri| Address::read(&head.method, uri, head.headers.contains_key(AUTHORIZATION));
    let address = read(&head.uri);
    if let Ok(address) = &address
        && let Ok(shouted) = shouted(&head.uri).parse::<Uri>()
        && let Ok(other) = read(&shouted)
    {
        let needs = |address: &Address| -> Needs { address.route.needs(&head.method) };
        assert_eq!(needs(address), needs(&other), "{} and {shouted} need different rights", head.uri);
        assert!(!address.path.starts_with('/') && !address.path.ends_with('/'), "{}", address.path);
    }
    Seen {
        is_refused: check_head(head, manner).is_err(),
        is_old: head.version < Version::HTTP_11,
        hosts: head.headers.get_all(HOST).iter().count(),
        spelled: spelled.collect(),
        address: format!("{address:?}"),
    }
}

/// The same address, its path in capitals.
fn shouted(uri: &Uri) -> String {
    let query = uri.query().map_or(String::new(), |query| format!("?{query}"));
    format!("{}{query}", uri.path().to_ascii_uppercase())
}

/// Whether a line of the first head ends without a carriage return. Empty lines in front of it are no part of it.
fn has_bare_line_feed(request: &[u8]) -> bool {
    let start = request.iter().position(|byte| !b"\r\n".contains(byte)).unwrap_or_default();
    let mut lines = request[start..].split(|byte| *byte == b'\n');
    let mut head = lines.by_ref().take_while(|line| !matches!(line, [] | [b'\r']));
    if head.any(|line| !line.ends_with(b"\r")) {
        return true;
    }
    // The empty line that ended it.
    let length: usize = request[start..].windows(2).position(|two| two == b"\n\n").unwrap_or(usize::MAX);
    length < request[start..].windows(3).position(|three| three == b"\n\r\n").unwrap_or(usize::MAX)
}

/// Any bytes, read as an Atom entry around a description. What is read has bounds and says, once written, the same again.
pub fn atom_xml(bytes: &[u8]) {
    let Ok(root) = xml::read(bytes) else { return };
    assert!(count(&root) <= XML_ELEMENTS && depth(&root) <= XML_DEPTH);
    text_survives(&root);
    let Ok(description) = atom::description(bytes) else { return };
    let mut keys = || "key".to_owned();
    if let Ok((settings, access)) = queue::read(&description, &mut keys) {
        let described = QueueDescription {
            path: "q".into(),
            max_message_kilobytes: settings.max_message_kilobytes.unwrap_or(1_024),
            settings: settings.clone(),
            access,
            created: LocalTime(0),
            updated: LocalTime(0),
            accessed: None,
            counts: Counts::default(),
            bytes: 0,
        };
        let again = reread(|writer| queue::write(&described, "2021-05", writer));
        let (mut read, rules) = queue::read(&again, &mut keys).expect("ours can be read");
        if settings.max_message_kilobytes.is_none() {
            read.max_message_kilobytes = None;
        }
        assert_eq!(read, settings);
        assert_eq!(rules.len(), described.access.len());
    }
    if let Ok((settings, access)) = topic::read(&description, &mut keys) {
        let described = TopicDescription {
            path: "t".into(),
            max_message_kilobytes: settings.max_message_kilobytes.unwrap_or(1_024),
            settings: settings.clone(),
            access,
            created: LocalTime(0),
            updated: LocalTime(0),
            accessed: None,
            subscriptions: 0,
            sql_filters: 0,
            correlation_filters: 0,
            counts: Counts::default(),
            bytes: 0,
        };
        let again = reread(|writer| topic::write(&described, "2021-05", writer));
        let (mut read, _) = topic::read(&again, &mut keys).expect("ours can be read");
        if settings.support_ordering.is_none() {
            read.support_ordering = None;
        }
        if settings.max_message_kilobytes.is_none() {
            read.max_message_kilobytes = None;
        }
        assert_eq!(read, settings);
    }
    if let Ok((settings, _)) = subscription::read(&description) {
        let described = SubscriptionDescription {
            topic: "t".into(),
            name: "s".into(),
            settings: settings.clone(),
            created: LocalTime(0),
            updated: LocalTime(0),
            accessed: None,
            counts: Counts::default(),
            bytes: 0,
        };
        let again = reread(|writer| subscription::write(&described, writer));
        assert_eq!(subscription::read(&again).expect("ours can be read").0, settings);
    }
    if let Ok(read) = rule::read(&description, "r") {
        let (topic, subscription) = ("t".into(), "s".into());
        let described = RuleDescription { topic, subscription, rule: read.clone(), created: LocalTime(0) };
        let again = reread(|writer| rule::write(&described, writer));
        assert_eq!(rule::read(&again, "r").expect("ours can be read"), read);
    }
}

fn count(element: &Element) -> usize {
    1 + element.children.iter().map(count).sum::<usize>()
}

fn depth(element: &Element) -> usize {
    1 + element.children.iter().map(depth).max().unwrap_or_default()
}

/// Whatever text was taken in can be written, and is the same when it is read.
fn text_survives(element: &Element) {
    let again = reread(|writer| {
        writer.leaf("a", &element.text);
    });
    assert_eq!(again.text, element.text);
    element.children.iter().for_each(text_survives);
}

fn reread(write: impl FnOnce(&mut Writer)) -> Element {
    let mut writer = Writer::default();
    write(&mut writer);
    let text = writer.finish();
    xml::read(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}
