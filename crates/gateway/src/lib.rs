//! The doors: they translate what peers send into commands and effects into what peers understand.
//!
//! [`listen`] accepts connections and finds out what they speak; [`auth`] says who may do what; the rest is one module
//! for each protocol. A door decides nothing about messages.

pub mod account;
pub mod amqp;
pub mod ask;
pub mod auth;
pub mod cosmos;
#[doc(hidden)]
pub mod fuzzing;
mod head;
mod head_timer;
mod health;
pub mod http;
pub mod iso;
pub mod limits;
pub mod listen;
pub mod metrics;
pub mod names;
pub mod namespaces;
pub mod places;
mod state;
pub mod stream;
pub mod tls;
pub mod websocket;

pub use state::State;
