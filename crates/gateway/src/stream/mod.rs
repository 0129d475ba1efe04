//! Streams around a stream: what encrypts it, what was read of it already, what is overheard of it.

pub(crate) mod encrypted;
pub(crate) mod line_ends;
pub mod prefixed;
pub(crate) mod through;
