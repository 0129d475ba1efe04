//! What a request's path addresses, and what of it is signed (P-2, P-3, P-16, P-17).

use super::percent;
use crate::limits::{ADDRESS_SEGMENTS, HTTP_PATH_BYTES};
use hyper::Uri;
use items::rid;
use std::borrow::Cow;

/// A path taken apart: percent-decoded segments without slashes at its ends.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Address<'p> {
    /// Decoded, so a segment may hold slashes of its own.
    text: Cow<'p, str>,
    /// Where each segment ends.
    ends: [usize; ADDRESS_SEGMENTS],
    count: usize,
}

/// The segments of an address.
#[derive(Debug, Clone, Copy)]
pub struct Segments<'a> {
    all: [&'a str; ADDRESS_SEGMENTS],
    count: usize,
}

impl<'a> Segments<'a> {
    pub fn as_slice(&self) -> &[&'a str] {
        &self.all[..self.count]
    }
}

/// Why a path is no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoAddress;

impl<'p> Address<'p> {
    /// What a request addresses. The protocol has no queries in addresses: JavaScript clients write a `?` in the id of an item as it is,
    /// so that what looks like one belongs to the id (P-30).
    pub fn of(uri: &'p Uri) -> Result<Address<'p>, NoAddress> {
        let mut address = Address::read(uri.path())?;
        let Some(rest) = uri.query() else { return Ok(address) };
        if let [_, _, _, _, "docs", _] = address.segments().as_slice() {
            if uri.path().len() + rest.len() > HTTP_PATH_BYTES {
                return Err(NoAddress);
            }
            let text = address.text.to_mut();
            text.push('?');
            text.push_str(std::str::from_utf8(&percent::decoded(rest)).map_err(|_| NoAddress)?);
            address.ends[address.count - 1] = text.len();
        }
        Ok(address)
    }

    pub fn read(path: &'p str) -> Result<Address<'p>, NoAddress> {
        if path.len() > HTTP_PATH_BYTES {
            return Err(NoAddress);
        }
        let path = path.trim_matches('/');
        let mut address = Address::default();
        if path.is_empty() {
            return Ok(address);
        }
        let is_plain = memchr::memchr(b'%', path.as_bytes()).is_none();
        let mut decoded = String::new();
        for segment in path.as_bytes().split(|byte| *byte == b'/') {
            let before = address.ends[..address.count].last().map_or(0, |end| end + 1);
            let length = match is_plain {
                true => segment.len(),
                false => {
                    let segment = percent::decoded(segment);
                    let segment = std::str::from_utf8(&segment).map_err(|_| NoAddress)?;
                    decoded.push_str(if before > 0 { "/" } else { "" });
                    decoded.push_str(segment);
                    segment.len()
                }
            };
            if length == 0 || address.count >= ADDRESS_SEGMENTS {
                return Err(NoAddress);
            }
            address.ends[address.count] = before + length;
            address.count += 1;
        }
        address.text = if is_plain { Cow::Borrowed(path) } else { Cow::Owned(decoded) };
        Ok(address)
    }

    pub fn segments(&self) -> Segments<'_> {
        let mut segments = Segments { all: [""; ADDRESS_SEGMENTS], count: self.count };
        let mut start = 0;
        for (segment, end) in segments.all.iter_mut().zip(&self.ends[..self.count]) {
            *segment = &self.text[start..*end];
            start = end + 1;
        }
        segments
    }

    /// The first segments, with the slashes between them.
    fn first(&self, count: usize) -> &str {
        let end = count.checked_sub(1).map_or(0, |last| self.ends[last]);
        &self.text[..end]
    }

    /// Resource type and link as they are signed.
    pub fn signed(&self) -> (Cow<'_, str>, &str) {
        let segments = self.segments();
        let segments = match segments.as_slice() {
            [container @ .., "operations", _] => container,
            all => all,
        };
        let (kind, link) = match segments {
            [] => ("", ""),
            [.., last] if segments.len() % 2 == 1 => (*last, self.first(segments.len() - 1)),
            [.., kind, _] => (*kind, self.first(segments.len())),
            [last] => (*last, ""),
        };
        (lower(kind), link)
    }

    /// The link when the path is made of rids: of the last one alone, in lower case. Clients take a path for one of rids when its
    /// database is (P-28); offers have nothing else.
    pub fn signed_by_rid(&self) -> Option<String> {
        let segments = self.segments();
        let segments = segments.as_slice();
        let is_by_rid = match segments {
            ["offers", _] => true,
            ["dbs", database, ..] => {
                database.len() == 8 && rid::bytes(database).is_some_and(|bytes| bytes.len() == 4)
            }
            _ => false,
        };
        let last = if segments.len() % 2 == 1 {
            segments.len().checked_sub(2)?
        } else {
            segments.len().checked_sub(1)?
        };
        is_by_rid.then(|| segments[last].to_lowercase())
    }
}

/// Clients write what is signed in small letters already.
fn lower(text: &str) -> Cow<'_, str> {
    match text.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(text.to_lowercase()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(path: &str) -> (String, String) {
        let address = Address::read(path).unwrap();
        let (kind, link) = address.signed();
        (kind.into_owned(), link.to_owned())
    }

    // P-2, P-3, P-16
    #[test]
    fn type_and_link_are_taken_from_the_decoded_path() {
        for (path, kind, link) in [
            ("/", "", ""),
            ("", "", ""),
            ("/dbs", "dbs", ""),
            ("/dbs/", "dbs", ""),
            ("/dbs/d%20b/", "dbs", "dbs/d b"),
            ("/dbs/D/colls", "colls", "dbs/D"),
            ("/dbs/d/colls/c/docs", "docs", "dbs/d/colls/c"),
            ("/dbs/d/colls/c/docs/It%C3%A9m/", "docs", "dbs/d/colls/c/docs/Itém"),
            ("/dbs/d/colls/c/pkranges/", "pkranges", "dbs/d/colls/c"),
            ("/dbs/d/colls/c/operations/partitionkeydelete", "colls", "dbs/d/colls/c"),
            ("/dbs/d/colls/c/sprocs/s", "sprocs", "dbs/d/colls/c/sprocs/s"),
            ("/offers", "offers", ""),
            ("/offers/AbCd", "offers", "offers/AbCd"),
            ("/dbs/d/users/u/permissions/p", "permissions", "dbs/d/users/u/permissions/p"),
            ("//dbs/d/colls/a%2Fb/docs//", "docs", "dbs/d/colls/a/b"),
            ("/dbs/d/COLLS/c", "colls", "dbs/d/COLLS/c"),
        ] {
            assert_eq!(signed(path), (kind.to_owned(), link.to_owned()), "{path}");
        }
    }

    // P-17
    #[test]
    fn of_rids_the_last_one_is_signed_in_lower_case() {
        let by_rid = |path| Address::read(path).unwrap().signed_by_rid();
        assert_eq!(by_rid("/offers/AbCd").as_deref(), Some("abcd"));
        assert_eq!(by_rid("/dbs/Jic9AA==/colls/Jic9ANWdO-E=/").as_deref(), Some("jic9anwdo-e="));
        assert_eq!(by_rid("/dbs/Jic9AA==/colls/Jic9ANWdO-E=/docs").as_deref(), Some("jic9anwdo-e="));
        assert_eq!(by_rid("/dbs/orders/colls/c"), None);
        assert_eq!(by_rid("/dbs"), None);
        assert_eq!(by_rid("/"), None);
    }

    // P-30
    #[test]
    fn a_question_mark_belongs_to_the_id_of_an_item() {
        let signed = |uri: &str| Address::of(&uri.parse().unwrap()).unwrap().signed().1.to_owned();
        assert_eq!(signed("/dbs/d/colls/c/docs/a?b%20c?d"), "dbs/d/colls/c/docs/a?b c?d");
        assert_eq!(signed("/dbs/d/colls/c/docs/a%3Fb"), "dbs/d/colls/c/docs/a?b");
        assert_eq!(signed("/dbs/docs/colls/c?b"), "dbs/docs/colls/c", "there is none in a name");
        assert_eq!(signed("/dbs/d/colls/c/docs?b"), "dbs/d/colls/c");
        for wrong in ["/dbs/d/colls/c/docs/a?%FF", &format!("/dbs/d/colls/c/docs/a?{}", "b".repeat(5_000))] {
            assert_eq!(Address::of(&wrong.parse().unwrap()), Err(NoAddress));
        }
    }

    #[test]
    fn what_is_too_long_or_not_utf8_or_has_holes_is_no_address() {
        for path in ["/dbs//colls", "/dbs/%FF", "/a/b/c/d/e/f/g/h/i", &"/a".repeat(3_000)] {
            assert_eq!(Address::read(path), Err(NoAddress), "{path}");
        }
    }
}
