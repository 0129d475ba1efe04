//! Paths in a definition: of partition keys, unique keys, indexes, computed properties (P-40).
//!
//! `/a/b` leads to the member `b` of the member `a`. A name with a slash, a dash or spaces at its ends stands in quotes, double or
//! single: `/"a/b"/c`. Clients read the same paths to take keys out of items, so what they take for a name is one here: a quote
//! with a backslash before it does not end a name, and the backslash stays in it.

use crate::limits;

/// Why a text is no path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("a path begins with a slash, and so does each name in it; the character {0} is none")]
    NoSlash(usize),
    #[error("the quote at character {0} is never closed")]
    OpenQuote(usize),
    #[error("a path has at most {most} names", most = limits::PATH_NAMES)]
    TooLong,
}

/// The names in a path, outermost first. A slash at the end stands for nothing; `/` alone has no name.
pub fn names(path: &str) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    let mut at = 0;
    while let Some(first) = path[at..].chars().next() {
        if first != '/' {
            return Err(Error::NoSlash(at));
        }
        if names.len() == limits::PATH_NAMES {
            return Err(Error::TooLong);
        }
        at += 1;
        let rest = &path[at..];
        match rest.chars().next() {
            None => break,
            Some(quote @ ('"' | '\'')) => {
                let end = closing(rest, quote).ok_or(Error::OpenQuote(at))?;
                names.push(rest[1..end].to_owned());
                at += end + 1;
            }
            Some(_) => {
                let end = rest.find('/').unwrap_or(rest.len());
                names.push(rest[..end].trim().to_owned());
                at += end;
            }
        }
    }
    Ok(names)
}

/// Where the quote that begins the text is closed.
fn closing(text: &str, quote: char) -> Option<usize> {
    let is_closing = |at: &usize| !text[..*at].ends_with('\\');
    text.match_indices(quote).map(|(at, _)| at).skip(1).find(is_closing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_path_is_no_longer_than_an_item_is_deep() {
        assert_eq!(names(&"/a".repeat(limits::PATH_NAMES)).map(|names| names.len()), Ok(limits::PATH_NAMES));
        assert_eq!(names(&"/a".repeat(limits::PATH_NAMES + 1)), Err(Error::TooLong));
    }

    // P-40
    #[test]
    fn names_are_taken_apart_as_clients_do() {
        for (path, expected) in [
            ("/a", vec!["a"]),
            ("/a/b/c", vec!["a", "b", "c"]),
            ("/a/", vec!["a"]),
            ("/", vec![]),
            ("", vec![]),
            ("/\"a-b\"/c", vec!["a-b", "c"]),
            ("/'a/b'/\"c'd\"", vec!["a/b", "c'd"]),
            ("/ spaced / x", vec!["spaced", "x"]),
            ("/\" kept \"", vec![" kept "]),
            (r#"/"a\"b""#, vec![r#"a\"b"#]),
            ("/é/漢字", vec!["é", "漢字"]),
            ("/\"\"", vec![""]),
            ("/a\"b\"", vec!["a\"b\""]),
        ] {
            assert_eq!(names(path).unwrap(), expected, "{path}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        assert_eq!(names("a"), Err(Error::NoSlash(0)));
        assert_eq!(names("/\"a\"b"), Err(Error::NoSlash(4)));
        assert_eq!(names("/\"a"), Err(Error::OpenQuote(1)));
        assert_eq!(names("/'"), Err(Error::OpenQuote(1)));
    }

    proptest! {
        #[test]
        fn noise_does_no_harm(path in ".{0,60}") {
            let _ = names(&path);
            prop_assert_eq!(names(&format!("/'{}'", path.replace(['\'', '\\'], ""))).unwrap().len(), 1);
        }
    }
}
