//! The AMQP type system, a message's sections, its view and its overlay.
//!
//! This crate knows bytes and values, no frames, no links and no broker; every other crate may know it.
//! Nothing here trusts a length, a count or a depth that a peer wrote: see [`limits`].

pub mod batch;
pub mod check;
pub mod codec;
mod decimal;
pub mod delivery;
mod entries;
pub mod facts;
mod fields;
pub mod intake;
pub mod limits;
pub mod normal;
pub mod overlay;
pub mod pieces;
pub mod planted;
pub mod sections;
pub mod system;
pub mod ticks;
pub mod value;
pub mod view;
mod write;

pub use codec::{Descriptor, Malformed, Reader};
pub use delivery::Stamp;
pub use facts::{Facts, FactsError, Field, MessageId};
pub use intake::append_stored;
pub use overlay::{Change, Overlay, OverlayError};
pub use sections::{BodyKind, Section, Sections, Span};
pub use system::SystemProperty;
pub use value::Value;
pub use view::{Encoded, View};
