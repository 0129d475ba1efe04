//! The `gateway` room.
