//! The AMQP door as a client sees it: the real door and a real engine over a disk in memory, and a client that writes
//! exactly the frames that a test says.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod attaching;
mod backlog;
mod claims;
mod client;
mod letters;
mod living;
mod managing;
mod receiving;
mod rights;
mod sending;
mod server;
mod sessions;
mod settling;
mod transactions;
mod via;
