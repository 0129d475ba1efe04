//! The `broker` room.
