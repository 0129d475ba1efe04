//! Every number of the commit machine, with its reason. They stand here, and not with those of the engine, because the items use
//! the machine with numbers of their own beside it.

use std::time::Duration;

/// How often a disk without room is asked again.
pub const FULL_RETRY: Duration = Duration::from_secs(1);

/// Pieces of work that a connection's thread decides: its own and those of a few others who came at the same time. The rest is
/// left to the owner, so that no connection is kept from its own work for long.
pub const MOST_FOR_OTHERS: usize = 32;

/// How long what nobody waits for may stay undurable: settlements that no client wants confirmed, messages that were sent
/// settled. If the machine fails meanwhile it is as if they had come that much later.
pub const UNAWAITED_MOST: Duration = Duration::from_millis(1);

/// The most that is waited for more, whatever the disk is like: on a slow one a sync takes long enough.
pub const GATHER_MOST: Duration = Duration::from_micros(300);

/// How many syncs' time passes between the beginnings of two appends, if connections pause meanwhile, and how much at most: then
/// sockets are read as often as the disk is written. More messages share a wake-up with each sync's time, and each waits longer.
pub const CYCLE_SYNCS: u32 = 4;
pub const CYCLE_MOST: Duration = Duration::from_millis(1);

/// How many must usually come in that time. With fewer there is nothing to share.
pub const CYCLE_LEAST: u32 = 3 * ONE_ARRIVAL / 2;

/// How long connections may take to read what has arrived before what they have read is written without the rest.
pub const READ_MOST: Duration = Duration::from_micros(100);

/// The most that reading and deciding one message takes. If reading took longer there was nothing to read for a while.
pub const READ_EACH: Duration = Duration::from_micros(4);

/// The unit of what usually comes during a sync.
pub const ONE_ARRIVAL: u32 = 256;

/// An append during which sockets are not read shows nothing. Of so many at most, one at least is watched.
pub const UNWATCHED_MOST: u32 = 15;

/// How often in a row gathering may end soon before it is tried as seldom as it gets: after 256 appends.
pub const GATHER_FAILURES_MOST: u32 = 8;

/// Gathering that goes on for so many appends was no failure.
pub const GATHER_LASTING: u32 = 64;
