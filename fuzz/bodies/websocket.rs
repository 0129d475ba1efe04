//! Any bytes, sent as frames of a WebSocket or as a request for one, in any pieces.
//!
//! The body lives in the crate, because it needs its insides.

pub fn run(bytes: &[u8]) {
    otobus_gateway::fuzzing::websocket(bytes);
}
