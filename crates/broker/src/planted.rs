//! Bugs that are planted on purpose, one at a time, so that the simulator can show that it finds them. They exist only
//! with the cargo feature `planted`, which the product never has: without it this is a constant `false`.

/// A bug that somebody could really have made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Bug {
    /// A lock that has ended still settles its message.
    Lock = 1,
    /// A renewal tells the new end of the lock and keeps the old one.
    Renewal,
    /// A message expires although it is locked.
    ExpiryUnderLock,
    /// A scheduled message is enqueued one second early.
    Activation,
    /// A lock that ends by itself does not raise the count.
    Count,
    /// A message that was delivered as often as it may be is handed out once more.
    DeadLetter,
    /// The numbers of an emptied queue are given out again.
    Numbering,
    /// Deleting messages also takes those that were sent at or after the given time.
    Purge,
    /// A queue counts as idle although messages are scheduled.
    IdleDeletion,
    /// The answer to every sixteenth send of a link is lost.
    LostEffect,
    /// A start forgets which ids were taken, so that a duplicate is stored.
    DuplicateAfterStart,
    /// A partitioned queue compares the ids of messages and not their partition keys.
    PartitionKey,
    /// A message that is forwarded also stays where it was.
    ForwardedTwice,
    /// A message is forwarded once more than it may be.
    Hops,
    /// What arrives at a queue that forwards overtakes what is there.
    Overtaking,
    /// Of three subscriptions or more that want a message the last one gets none.
    Unheard,
    /// A message that was sent by way of another entity is accepted and lost if its destination is closed.
    LostOnItsWay,
    /// The partition's thread goes to sleep though it was called.
    LostWakeUp,
    /// What waits for an append leaves whatever became of it.
    ReleaseBeforeSync,
    /// An append whose outcome was unknown is written again though it is there.
    DoubleWrite,
    /// What found no room on the disk is not tried again, and nothing waits for it.
    FullDiskForgotten,
    /// An owner that was fenced off goes on as if its append had been kept.
    FenceIgnored,
    /// Of a transaction everything is done but the last step.
    HalfTransaction,
    /// A transaction that is rolled back gives its messages back as if their deliveries had failed.
    CountedRollBack,
    /// A message that is sent within a transaction is in its queue at once.
    VisibleEarly,
    /// What a transaction has stored is not kept from the upkeep of the journal.
    StagedBytesLost,
    /// What a settlement frees is handed out at a time in which the offset of its namespace is counted twice.
    ClockLead,
    /// What is sent by way of another entity within a transaction is stored at its destination and on the way.
    TransferredTwice,
    /// A message for which a filter fails is dropped, also where such messages are to be kept.
    FilterErrorLost,
    /// Ids are known for the usual window, whatever the entity says.
    DuplicateWindow,
    /// What comes back to a session is served behind what is new in it.
    SessionOrder,
    /// A change of properties of which much was changed before takes the place of all of it.
    ChangesForgotten,
    /// What is stored of changed properties is not kept from the upkeep of the journal.
    ChangesLost,
}

impl Bug {
    pub const ALL: [Bug; 33] = [
        Bug::Lock,
        Bug::Renewal,
        Bug::ExpiryUnderLock,
        Bug::Activation,
        Bug::Count,
        Bug::DeadLetter,
        Bug::Numbering,
        Bug::Purge,
        Bug::IdleDeletion,
        Bug::LostEffect,
        Bug::DuplicateAfterStart,
        Bug::PartitionKey,
        Bug::ForwardedTwice,
        Bug::Hops,
        Bug::Overtaking,
        Bug::Unheard,
        Bug::LostOnItsWay,
        Bug::ClockLead,
        Bug::HalfTransaction,
        Bug::CountedRollBack,
        Bug::VisibleEarly,
        Bug::StagedBytesLost,
        Bug::TransferredTwice,
        Bug::FilterErrorLost,
        Bug::DuplicateWindow,
        Bug::SessionOrder,
        Bug::ChangesForgotten,
        Bug::ChangesLost,
        Bug::LostWakeUp,
        Bug::ReleaseBeforeSync,
        Bug::DoubleWrite,
        Bug::FullDiskForgotten,
        Bug::FenceIgnored,
    ];

    /// Those that only transactions show, also where there is nothing else.
    pub const TRANSACTIONS: [Bug; 4] =
        [Bug::HalfTransaction, Bug::CountedRollBack, Bug::VisibleEarly, Bug::StagedBytesLost];
}

#[cfg(feature = "planted")]
mod switch {
    use super::Bug;
    use std::sync::atomic::{AtomicU8, Ordering};

    static PLANTED: AtomicU8 = AtomicU8::new(0);

    /// Plants one bug instead of the one before, or none.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.store(bug.map_or(0, |bug| bug as u8), Ordering::Relaxed);
    }

    pub fn is_planted(bug: Bug) -> bool {
        PLANTED.load(Ordering::Relaxed) == bug as u8
    }
}

#[cfg(feature = "planted")]
pub use switch::{is_planted, plant};

#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn is_planted(_: Bug) -> bool {
    false
}
