//! Who may do what. One verifier serves every door: tokens put on `$cbs`, SASL PLAIN and the HTTP header.
//!
//! A door hands in what the peer sent and gets a [`Grant`] or a [`Denied`]; it then asks the grant about each
//! operation. Keys are compared in constant time, an unknown key name costs the same work as a wrong key, and a key
//! never appears in an error, a log line or a `Debug` text.

mod bearer;
mod claims;
mod demand;
mod denied;
mod entity;
mod failures;
pub(crate) mod fuzzing;
mod grant;
mod guard;
mod policy;
pub mod sas;

pub use bearer::{Development, Issuer, Keys, KeysError, Role};
pub use claims::Claims;
pub use demand::Demand;
pub use denied::Denied;
pub use entity::entity_rights;
pub use failures::Failures;
pub(crate) use grant::first_label;
pub use grant::{Grant, Holder, Proof, Scope};
pub(crate) use guard::Hosts;
pub use guard::{Guard, ROOT_POLICY};
pub use policy::{Policy, Right, Rights, Secret};

/// Seconds since 1970 by the wall clock. Claims expire by this time, whatever the namespaces' own clocks say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixSeconds(pub u64);

impl UnixSeconds {
    /// Later than any claim: what never expires does so then.
    pub const NEVER: UnixSeconds = UnixSeconds(u64::MAX);

    pub fn now() -> UnixSeconds {
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        UnixSeconds(since_1970.map_or(0, |elapsed| elapsed.as_secs()))
    }
}
