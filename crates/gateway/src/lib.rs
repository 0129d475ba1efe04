//! The doors: they translate what peers send into commands and effects into what peers understand.
//!
//! [`listen`] accepts connections and finds out what they speak; [`auth`] says who may do what; the rest is one module
//! for each protocol. A door decides nothing about messages.

pub mod account;
pub mod amqp;
pub mod ask;
pub mod auth;
pub mod cosmos;
mod encrypted;
#[doc(hidden)]
pub mod fuzzing;
pub mod http;
pub mod iso;
pub mod limits;
mod line_ends;
pub mod listen;
pub mod metrics;
pub mod names;
pub mod namespaces;
pub mod places;
pub mod prefixed;
mod state;
mod through;
pub mod tls;
pub mod websocket;

pub use state::State;
