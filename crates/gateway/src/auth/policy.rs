//! Shared access policies: a name, one or two keys, and the rights they give.

use std::fmt;
use zeroize::Zeroizing;

/// What one may do with an entity. `Manage` includes the other two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    Listen,
    Send,
    Manage,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Right::Listen => "Listen",
            Right::Send => "Send",
            Right::Manage => "Manage",
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rights {
    listen: bool,
    send: bool,
    manage: bool,
}

impl Rights {
    pub const ALL: Rights = Rights { listen: true, send: true, manage: true };

    /// These and those together.
    pub fn with(self, others: Rights) -> Rights {
        Rights {
            listen: self.listen || others.listen,
            send: self.send || others.send,
            manage: self.manage || others.manage,
        }
    }

    /// Whether these are at least those.
    pub fn include_all(self, others: Rights) -> bool {
        [Right::Listen, Right::Send, Right::Manage]
            .into_iter()
            .all(|right| self.include(right) || !others.include(right))
    }

    pub fn include(self, right: Right) -> bool {
        match right {
            Right::Listen => self.listen,
            Right::Send => self.send,
            Right::Manage => self.manage,
        }
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Rights {
        rights.into_iter().fold(Rights::default(), |all, right| match right {
            Right::Listen => Rights { listen: true, ..all },
            Right::Send => Rights { send: true, ..all },
            Right::Manage => Rights::ALL,
        })
    }
}

/// A key. It is wiped when dropped and has no text but the one asked for by [`Secret::expose`].
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    pub fn new(key: impl Into<String>) -> Secret {
        Secret(Zeroizing::new(key.into()))
    }

    /// The key's text. Its UTF-8 bytes are the key (H-100): it is not decoded, whatever it looks like.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[derive(Debug, Clone)]
pub struct Policy {
    pub name: Box<str>,
    pub primary: Secret,
    pub secondary: Option<Secret>,
    pub rights: Rights,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manage_includes_send_and_listen() {
        assert_eq!([Right::Manage].into_iter().collect::<Rights>(), Rights::ALL);
        let send_only: Rights = [Right::Send].into_iter().collect();
        assert!(send_only.include(Right::Send));
        assert!(!send_only.include(Right::Listen));
        assert!(!send_only.include(Right::Manage));
    }

    #[test]
    fn a_policy_printed_for_debugging_shows_no_key() {
        let policy = Policy {
            name: "root".into(),
            primary: Secret::new("first-key"),
            secondary: Some(Secret::new("second-key")),
            rights: Rights::ALL,
        };
        let text = format!("{policy:?}");
        assert!(text.contains("root"));
        assert!(!text.contains("first-key") && !text.contains("second-key"), "{text}");
    }
}
