//! Bytes to frames to performatives, and the state of one AMQP 1.0 connection with its sessions and links.
//!
//! Nothing here touches a socket or a clock: bytes and milliseconds come in, events and bytes come out, so that the
//! same machine runs behind TCP, TLS and WebSocket, in the simulator and under the fuzzer. The codec half
//! ([`frame`], [`performative`], [`sasl`], [`state`], [`terminus`]) reads and writes both directions; the machine
//! ([`Connection`]) is the server's side. What a peer may make us hold is in [`limits`].

pub mod condition;
mod connection;
mod fields;
pub mod frame;
mod keyed;
pub mod limits;
mod link;
pub mod performative;
pub mod sasl;
mod serial;
mod session;
pub mod state;
pub mod terminus;
pub mod transaction;
mod unsettled;

pub use connection::{AttachReply, Config, Connection, Event, LinkKey, Sent, SessionKey};
pub use performative::{Attach, Error, Performative, ReceiverSettleMode, Role, SenderSettleMode};
pub use sasl::SaslCode;
pub use state::State;
pub use terminus::{AnyTarget, Coordinator, Source, Target};
