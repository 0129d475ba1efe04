//! The doors of the real binary: what every port takes, which TLS it speaks, what a reload changes and what it leaves,
//! and who cannot crowd it out.
#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod ports;
mod reload;
mod server;
mod strangers;
