//! What a request's path addresses, and what of it is signed (P-2, P-3, P-16, P-17).

use super::percent;
use crate::limits::{ADDRESS_SEGMENTS, HTTP_PATH_BYTES};
use hyper::Uri;
use items::rid;

/// A path taken apart: percent-decoded segments without slashes at its ends.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Address {
    pub segments: Vec<String>,
}

/// Why a path is no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoAddress;

impl Address {
    /// What a request addresses. The protocol has no queries in addresses: JavaScript clients write a `?` in the id of an item as it is,
    /// so that what looks like one belongs to the id (P-30).
    pub fn of(uri: &Uri) -> Result<Address, NoAddress> {
        let mut address = Address::read(uri.path())?;
        if let (Some(rest), [_, _, _, _, kind, id]) = (uri.query(), address.segments.as_mut_slice())
            && kind == "docs"
        {
            if uri.path().len() + rest.len() > HTTP_PATH_BYTES {
                return Err(NoAddress);
            }
            id.push('?');
            id.push_str(std::str::from_utf8(&percent::decoded(rest)).map_err(|_| NoAddress)?);
        }
        Ok(address)
    }

    pub fn read(path: &str) -> Result<Address, NoAddress> {
        if path.len() > HTTP_PATH_BYTES {
            return Err(NoAddress);
        }
        let path = path.trim_matches('/');
        if path.is_empty() {
            return Ok(Address::default());
        }
        let mut segments = Vec::with_capacity(6);
        for segment in path.split('/') {
            let decoded = String::from_utf8(percent::decoded(segment).into_owned()).map_err(|_| NoAddress)?;
            if decoded.is_empty() || segments.len() >= ADDRESS_SEGMENTS {
                return Err(NoAddress);
            }
            segments.push(decoded);
        }
        Ok(Address { segments })
    }

    /// Resource type and link as they are signed.
    pub fn signed(&self) -> (String, String) {
        let segments = match self.segments.as_slice() {
            [container @ .., operations, _] if operations == "operations" => container,
            all => all,
        };
        match segments {
            [] => Default::default(),
            [parents @ .., last] if segments.len() % 2 == 1 => (last.to_lowercase(), parents.join("/")),
            [.., kind, _] => (kind.to_lowercase(), segments.join("/")),
            [last] => (last.to_lowercase(), String::new()),
        }
    }

    /// The link when the path is made of rids: of the last one alone, in lower case. Clients take a path for one of rids when its
    /// database is (P-28); offers have nothing else.
    pub fn signed_by_rid(&self) -> Option<String> {
        let segments = self.segments.as_slice();
        let is_by_rid = match segments {
            [root, _] if root == "offers" => true,
            [root, database, ..] if root == "dbs" => {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(path: &str) -> (String, String) {
        Address::read(path).unwrap().signed()
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
        let signed = |uri: &str| Address::of(&uri.parse().unwrap()).unwrap().signed().1;
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
