//! The life of a message in a queue: one verb, one file.

pub mod index;
mod lock;
mod receive;
mod send;
mod settle;
