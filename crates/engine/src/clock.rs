//! The owner's time: previous time plus what has really elapsed, drawn towards the wall clock, never backwards and
//! never slower than half real time. A step of the wall clock therefore moves no lock and expires no message.

use crate::commit::Moment;
use broker::Time;
use std::fmt::Debug;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub trait Clock: Send + Debug {
    /// The owner's time.
    fn now(&mut self) -> Time;

    /// What has really elapsed, whatever the time is.
    fn moment(&mut self) -> Moment;
}

/// The rule that owner time follows, apart from any clock: how far it may move for the real time that elapsed.
#[derive(Debug)]
pub struct Slew {
    time: i64,
}

impl Slew {
    /// Goes on from the time of the last batch in the journal; a new journal starts at the wall clock. Between two
    /// runs any time may have passed, so a wall clock that is ahead is believed at once; one that is behind is not.
    pub fn resume(last: Option<Time>, wall: i64) -> Slew {
        Slew { time: last.map_or(wall, |last| wall.max(last.0)) }
    }

    pub fn now(&self) -> Time {
        Time(self.time)
    }

    /// Moves on by `elapsed` milliseconds while the wall clock shows `wall`. Behind the wall clock it runs at most
    /// twice as fast, ahead of it half as fast, until they meet.
    pub fn advance(&mut self, elapsed: i64, wall: i64) -> i64 {
        let plain = self.time + elapsed;
        self.time = if wall > plain { wall.min(plain + elapsed) } else { wall.max(plain - elapsed / 2) };
        self.time
    }
}

/// Owner time on this machine's clocks.
#[derive(Debug)]
pub struct OwnerClock {
    slew: Slew,
    read: Instant,
    started: Instant,
}

impl OwnerClock {
    /// See [`Slew::resume`].
    pub fn resume(last: Option<Time>) -> OwnerClock {
        let now = Instant::now();
        OwnerClock { slew: Slew::resume(last, wall()), read: now, started: now }
    }

    /// How far owner time is ahead of the wall clock, in milliseconds.
    pub fn gap(&self) -> i64 {
        self.slew.time - wall()
    }
}

impl Clock for OwnerClock {
    fn now(&mut self) -> Time {
        let elapsed = self.read.elapsed().as_millis() as i64;
        if elapsed > 0 {
            // Whole milliseconds only: what is left over counts next time.
            self.read += std::time::Duration::from_millis(elapsed as u64);
            self.slew.advance(elapsed, wall());
        }
        self.slew.now()
    }

    fn moment(&mut self) -> Moment {
        Moment(self.started.elapsed().as_micros() as u64)
    }
}

fn wall() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::LARGE_GAP_MS;

    #[test]
    fn with_a_steady_wall_clock_time_is_the_wall_clock() {
        let mut slew = Slew { time: 1_000 };
        assert_eq!(slew.advance(10, 1_010), 1_010);
    }

    #[test]
    fn a_step_forward_is_caught_up_at_twice_the_pace() {
        let mut slew = Slew { time: 0 };
        assert_eq!(slew.advance(100, 3_600_100), 200);
        assert_eq!(slew.advance(100, 250), 250);
    }

    #[test]
    fn a_step_back_never_stops_time_nor_turns_it() {
        let mut slew = Slew { time: 1_000_000 };
        let mut before = slew.time;
        for elapsed in [1, 2, 10, 1_000] {
            let after = slew.advance(elapsed, 0);
            assert!(after >= before + elapsed / 2 && after <= before + elapsed, "{before} -> {after}");
            before = after;
        }
    }

    #[test]
    fn a_new_run_never_starts_before_the_last_one_ended() {
        let future = Time(wall() + 1_000_000);
        let mut clock = OwnerClock::resume(Some(future));
        assert!(clock.now() >= future);
        assert!(clock.gap() > LARGE_GAP_MS);
    }

    #[test]
    fn a_wall_clock_that_went_on_between_two_runs_is_believed_at_once_and_one_that_went_back_is_not() {
        assert_eq!(Slew::resume(Some(Time(1_000)), 3_600_000).now(), Time(3_600_000));
        assert_eq!(Slew::resume(Some(Time(1_000)), 999).now(), Time(1_000));
        assert_eq!(Slew::resume(None, 999).now(), Time(999));
    }
}
