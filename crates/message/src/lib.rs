//! The AMQP type system, a message's sections, its view and its overlay.
//!
//! This room knows bytes and values. It knows no frames, no links and no broker; everybody else may know it.
//! Nothing here trusts a length, a count or a depth that a peer wrote: see [`limits`].

pub mod codec;
pub mod limits;
pub mod value;

pub use codec::{Descriptor, Malformed, Reader};
pub use value::Value;
