//! A world with two clocks: real time, which only goes on, and a wall clock that somebody may set to anything.
//! Owner time follows the same rule as in the server.

use crate::random::Random;
use broker::Time;
use engine::Slew;

const START: i64 = 1_750_000_000_000;
const HOUR: i64 = 3_600_000;
const TEN_YEARS: i64 = 10 * 365 * 24 * HOUR;

#[derive(Debug)]
pub struct WorldClock {
    wall: i64,
    owner: Slew,
    /// Real time that has passed and was not yet told to the owner's clock.
    elapsed: i64,
}

impl Default for WorldClock {
    fn default() -> WorldClock {
        WorldClock { wall: START, owner: Slew::resume(None, START), elapsed: 0 }
    }
}

impl WorldClock {
    pub fn pass(&mut self, milliseconds: i64) {
        self.wall += milliseconds;
        self.elapsed += milliseconds;
    }

    /// Somebody sets the wall clock.
    pub fn step(&mut self, random: &mut Random) {
        self.wall += *random.pick(&[1_000, -1_000, HOUR, -HOUR, TEN_YEARS, -TEN_YEARS]);
    }

    /// Whether no time has passed since somebody last looked.
    pub fn is_still(&self) -> bool {
        self.elapsed == 0
    }

    pub fn now(&mut self) -> Time {
        let elapsed = std::mem::take(&mut self.elapsed);
        let before = self.owner.now();
        self.owner.advance(elapsed, self.wall);
        let moved = self.owner.now().0 - before.0;
        assert!(
            (elapsed / 2..=2 * elapsed).contains(&moved),
            "owner time moved {moved} ms while {elapsed} ms went by"
        );
        self.owner.now()
    }

    /// A new life begins after the last batch that the old one wrote.
    pub fn resume(&mut self, last: Option<Time>) {
        self.owner = Slew::resume(last, self.wall);
        self.elapsed = 0;
    }
}
