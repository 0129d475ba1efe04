//! A load client that speaks AMQP 1.0 by hand: blocking sockets, one connection and one link per thread, nothing
//! allocated per message. It must cost so little that what is measured with it is the broker.

pub mod codec;
pub mod connection;
pub mod pace;
pub mod receiver;
pub mod sender;

use std::net::SocketAddr;

/// Which queue of which broker, and as whom.
#[derive(Debug, Clone)]
pub struct Place {
    pub address: SocketAddr,
    pub queue: String,
}

/// What a broker on loopback accepts without configuration.
pub const POLICY: &str = "RootManageSharedAccessKey";
pub const KEY: &str = "SAS_KEY_VALUE";
