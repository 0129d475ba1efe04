//! Every way to turn a peer away, with the sub-code and the words that clients know (H-70).

use super::Right;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error("MissingToken: The authorization header was not found.")]
    MissingToken,
    /// The name or the key is wrong. Which of the two is not said.
    #[error("InvalidSignature: The token has an invalid signature.")]
    InvalidSignature,
    /// The token is for something else, or for no address at all.
    #[error("InvalidAudience: The authorization token does not cover the requested resource.")]
    InvalidAudience,
    #[error("MalformedToken: The credentials contained in the authorization token are malformed.")]
    MalformedToken,
    #[error("ExpiredToken: The token is expired.")]
    ExpiredToken,
    #[error("Unauthorized access. '{0}' claim(s) are required to perform this operation.")]
    MissingClaim(Right),
    #[error("Unauthorized access. Tokens of this kind are not accepted; use a shared access signature.")]
    UnsupportedToken,
}

impl Denied {
    /// The same, with the true reason in the log, which clients are not told. What the peer has sent is never repeated
    /// there: it may be a secret.
    pub(crate) fn because(self, why: impl std::fmt::Display) -> Denied {
        tracing::debug!(%why, told = %self, "a token is refused");
        self
    }

    pub fn sub_code(self) -> u32 {
        match self {
            Denied::MissingClaim(_) | Denied::UnsupportedToken => 40100,
            Denied::MissingToken => 40102,
            Denied::InvalidSignature => 40103,
            Denied::InvalidAudience => 40104,
            Denied::MalformedToken => 40105,
            Denied::ExpiredToken => 40106,
        }
    }
}
