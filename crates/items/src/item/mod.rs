//! Items: what a write must hold, how items are stored, and when they are gone.

pub mod apply;
pub mod body;
pub mod event;
pub mod patch;
pub mod scope;
pub mod stored;
pub mod transaction;
pub mod ttl;
pub mod unique;
