//! Scripted conversations: what a client writes and what the server must answer, rule by rule. Frames are built and
//! read with the codec half, whose bytes the round-trip and differential tests vouch for.

mod hostile;
mod leaving;
mod linking;
mod opening;
mod peer;
mod receiving;
mod sending;
mod streaming;
