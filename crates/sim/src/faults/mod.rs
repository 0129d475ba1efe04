//! What goes wrong: the plan of one life of the process, drawn from the seed.
//!
//! A life ends by being killed between two turns, by a failing disk, by a power failure in the middle of a write, or
//! cleanly. What the disk keeps is drawn too.

mod clock;

pub use clock::WorldClock;

use crate::random::Random;
use journal::disk::Fault;

/// Every fault by name, for the table of what was reached.
pub const FAULTS: [&str; 36] = [
    "kill",
    "clean stop",
    "disk Eio",
    "disk Enospc",
    "disk Torn",
    "disk Short",
    "disk Rot",
    "power cut",
    "fault while opening",
    "last append lost",
    "last append kept",
    "clock step",
    "failed sync",
    "stalled sync",
    "decided by a connection",
    "decided during a sync",
    "decided before a sleep",
    "answered later",
    "gathered",
    "request lost",
    "answer lost",
    "fenced off",
    "back-pressure",
    "crash with a sync on its way",
    "completion out of order",
    "peer vanished",
    "peer on a link that is gone",
    "forged token",
    "idle deletion",
    "delivery outlived by its wait",
    "snapshot taken",
    "space given back",
    "started from a snapshot",
    "time moved",
    "time moved past something",
    "crash while time is moved",
];

/// How a call of the disk fails in one life, and which.
#[derive(Debug, Clone, Copy)]
pub struct DiskPlan {
    pub fault: Fault,
    pub at: u64,
    /// How many calls fail.
    pub lasting: u64,
}

impl DiskPlan {
    /// A disk that does what it should.
    pub const HEALTHY: DiskPlan = DiskPlan { fault: Fault::Eio, at: u64::MAX, lasting: 1 };

    pub fn draw(random: &mut Random) -> DiskPlan {
        let fault = match random.below(22) {
            0..7 => return DiskPlan::HEALTHY,
            7..13 => Fault::PowerCut,
            13..15 => Fault::Eio,
            15..17 => Fault::Torn,
            17..19 => Fault::Enospc,
            19 => Fault::Short,
            _ => Fault::Rot,
        };
        // Opening takes some ten calls, an append two: most lives go on for a while before.
        let most = *random.pick(&[12, 60, 400, 1_200]);
        let at = match fault {
            // Soon after a start nothing is in memory, and what is stored must be read. Counted from when it is open:
            // recovery must take other bytes at the end of a journal for what was never written.
            Fault::Rot => random.between(1, 60),
            _ => random.between(1, most),
        };
        let lasting = match fault {
            // A full disk stays full for a while, and then has room again.
            Fault::Enospc => random.between(1, 60),
            Fault::Rot => random.between(50, 1_500),
            _ => 1,
        };
        DiskPlan { fault, at, lasting }
    }

    /// Whether what was stored may be unreadable.
    pub fn may_not_read(self) -> bool {
        self.at != DiskPlan::HEALTHY.at && !matches!(self.fault, Fault::Enospc | Fault::Short)
    }

    pub fn name(self) -> &'static str {
        match self.fault {
            Fault::Eio => "disk Eio",
            Fault::Enospc => "disk Enospc",
            Fault::Short => "disk Short",
            Fault::Rot => "disk Rot",
            Fault::Torn => "disk Torn",
            Fault::PowerCut => "power cut",
        }
    }
}

/// How a journal behaves that is far away, in one life: most are not.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogPlan {
    /// Of how many appends the outcome of one is unknown; of none, if this is zero.
    pub unknown_in: u64,
    /// The append, counted from the start, that finds another owner.
    pub fenced_at: Option<u64>,
}

impl LogPlan {
    /// It answers, and nobody takes it over.
    pub const HEALTHY: LogPlan = LogPlan { unknown_in: 0, fenced_at: None };

    pub fn draw(random: &mut Random) -> LogPlan {
        let unknown_in = if random.once_in(4) { random.between(2, 9) } else { 0 };
        let fenced_at = random.once_in(12).then(|| random.between(1, 60));
        LogPlan { unknown_in, fenced_at }
    }
}

/// What a disk keeps of what was not synced: nothing, everything (as when only the process ends), or a mixture.
pub fn draw_image(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => 0,
        1 => 1,
        _ => random.number().max(2),
    }
}
