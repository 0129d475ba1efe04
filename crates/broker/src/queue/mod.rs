//! The life of a message in a queue: one verb, one file.

mod browse;
mod chunk;
#[cfg(test)]
mod cost_tests;
mod dead_letter;
mod defer;
mod delete_messages;
mod duplicate;
mod expire;
pub(crate) mod forward;
pub mod history;
mod idle;
pub mod index;
mod keep;
mod lock_end;
pub(crate) mod overlay;
pub mod read_request;
mod receive;
mod renew;
mod schedule;
pub(crate) mod send;
pub(crate) mod settle;
mod slot;
mod via;

pub(crate) use receive::delivery as delivery_of;
