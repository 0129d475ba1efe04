//! How long to wait for more before an append is written. One function, [`Gather::write_at`], says it; the rest is what it
//! has measured.
//!
//! A sync costs the same whether it carries one message or a hundred, and so does waking a thread of the connections: at a
//! steady pace the CPU time of a message is decided by how many share one. Waiting costs time that somebody feels. So a lone
//! message waits for nothing; what nobody waits for rides along with the next append that somebody does; and while messages
//! keep coming in during syncs, the next one begins no sooner than a few syncs' time after the last one has begun.
//!
//! Nothing is gained by reading a socket before that. So the threads of connections pause until then, and while an append is
//! in flight ([`Gather::may_pause_until`]); when they have read and decided everything that has arrived by then, it is written.
//! `docs/design/0005` has the numbers.

use super::machine::Drafted;
use super::moment::Moment;
use std::time::Duration;

/// How long what nobody waits for may stay undurable: settlements that no client wants confirmed, messages that were sent
/// settled. If the machine fails meanwhile it is as if they had come that much later.
pub const UNAWAITED_MOST: Duration = Duration::from_millis(1);

/// The most that is waited for more, whatever the disk is like: on a slow one a sync takes long enough.
pub const GATHER_MOST: Duration = Duration::from_micros(300);

/// How many syncs' time passes between the beginnings of two appends, if connections pause meanwhile, and how much at most: then
/// sockets are read as often as the disk is written. More messages share a wake-up with each sync's time, and each waits longer.
const CYCLE_SYNCS: u32 = 4;
pub const CYCLE_MOST: Duration = Duration::from_millis(1);

/// How many must usually come in that time. With fewer there is nothing to share.
const CYCLE_LEAST: u32 = 3 * ONE / 2;

/// How long connections may take to read what has arrived before what they have read is written without the rest.
pub const READ_MOST: Duration = Duration::from_micros(100);

/// The most that reading and deciding one message takes. If reading took longer there was nothing to read for a while.
const READ_EACH: Duration = Duration::from_micros(4);

/// The unit of what usually comes during a sync.
const ONE: u32 = 256;

/// An append during which sockets are not read shows nothing. Of so many at most, one at least is watched.
const UNWATCHED_MOST: u32 = 15;

/// How often in a row gathering may end soon before it is tried as seldom as it gets: after 256 appends.
const MOST_FAILURES: u32 = 8;

/// Gathering that goes on for so many appends was no failure.
const LASTING: u32 = 64;

#[derive(Debug, Default)]
pub struct Gather {
    /// What a sync takes, smoothed, and when the last one has begun and ended.
    sync_time: Duration,
    began: Moment,
    ended: Moment,
    /// How many came while the append in flight was, with something to wait for. Who comes then does not wait for its answer,
    /// so more are sure to come.
    came_in_flight: u32,
    /// The same of the appends that were watched, smoothed, in [`ONE`]s.
    usual: u32,
    /// More was gathered for the append in flight; and it is watched: sockets are read meanwhile.
    was_sure: bool,
    is_watched: bool,
    /// So many appends need not be watched.
    unwatched: u32,
    /// For how many appends more was gathered without a break, how often in a row it was soon over, and for how many appends
    /// it is not tried for that.
    lasted: u32,
    failures: u32,
    resting: u32,
    /// Connections pause while more is gathered.
    is_paused_for: bool,
    /// The pause was ended so that connections read what has arrived, and they have read and decided all of it.
    is_letting_read: bool,
    has_read: bool,
    /// What that takes, smoothed.
    reading: Duration,
}

impl Gather {
    /// When to write a draft that was begun, or first waited for, at `since`.
    pub(super) fn write_at(&self, drafted: Drafted, since: Moment) -> Moment {
        if drafted.is_full {
            return since;
        }
        if !drafted.is_awaited {
            return since + UNAWAITED_MOST;
        }
        if !self.is_more_sure_to_come() || self.has_read {
            return since;
        }
        if self.is_paused_for {
            return since.max(self.read_at()) + READ_MOST;
        }
        let time = self.sync_time.min(GATHER_MOST);
        since.max(self.ended + time).min(since + time)
    }

    /// A thread of connections has decided all that it has read, `drafted` is not written, and no append is in flight or one
    /// that was begun at `written`. Until when it may pause before it reads more, if it may.
    pub(super) fn may_pause_until(
        &mut self,
        drafted: Option<Drafted>,
        written: Option<Moment>,
        now: Moment,
    ) -> Option<Moment> {
        self.is_paused_for = true;
        if !self.is_more_sure_to_come() {
            return None;
        }
        if let Some(written) = written {
            return (!self.is_watched).then(|| written + self.cycle());
        }
        let read_at = self.read_at();
        if now < read_at {
            self.is_letting_read = true;
            return Some(read_at);
        }
        if !std::mem::replace(&mut self.is_letting_read, true) {
            return None;
        }
        let drafted = drafted.filter(|drafted| drafted.is_awaited)?;
        if !self.has_read {
            self.has_read = true;
            let took = now.since(read_at).min(READ_EACH * drafted.records);
            self.reading = (self.reading * 7 + took) / 8;
        }
        // It is about to be written.
        (self.unwatched > 0).then(|| now + self.cycle())
    }

    /// When the owner looks whether there is something to write though nobody has called it.
    pub(super) fn look_at(&self, now: Moment) -> Option<Moment> {
        let gathered = self.read_at() + READ_MOST;
        let unawaited = self.ended + UNAWAITED_MOST;
        if self.is_paused_for && self.is_more_sure_to_come() && now < gathered {
            return Some(gathered);
        }
        (now < unawaited).then_some(unawaited)
    }

    /// Whether so much usually comes in the time that would be waited that it pays.
    fn is_more_sure_to_come(&self) -> bool {
        let time = if self.is_paused_for { self.cycle() } else { self.sync_time };
        let comes = time.as_micros() as u64 * u64::from(self.usual);
        let least = if self.is_paused_for { CYCLE_LEAST } else { ONE };
        self.resting == 0 && self.usual > 0 && comes >= self.sync_time.as_micros() as u64 * u64::from(least)
    }

    /// From the beginning of one append to the next.
    fn cycle(&self) -> Duration {
        (self.sync_time * CYCLE_SYNCS).min(CYCLE_MOST)
    }

    /// When sockets are to be read, so that all that has arrived is decided when the time is over.
    fn read_at(&self) -> Moment {
        self.ended.max(self.began + (self.cycle() - self.reading.min(self.cycle())))
    }

    /// So much is drafted now and somebody waits for it.
    pub(super) fn arrived(&mut self, is_in_flight: bool) {
        if is_in_flight {
            self.came_in_flight += 1;
        }
    }

    pub(super) fn written(&mut self) {
        (self.is_letting_read, self.has_read) = (false, false);
        self.came_in_flight = 0;
        self.was_sure = self.is_more_sure_to_come();
        self.is_watched = !self.is_paused_for || !self.was_sure || self.unwatched == 0;
        self.unwatched = self.unwatched.saturating_sub(1);
        if self.was_sure {
            self.lasted += 1;
        } else {
            self.resting = self.resting.saturating_sub(1);
        }
    }

    pub(super) fn synced(&mut self, since: Moment, now: Moment) {
        let took = now.since(since);
        self.sync_time = if self.sync_time.is_zero() { took } else { (self.sync_time * 7 + took) / 8 };
        (self.began, self.ended) = (since, now);
        if self.is_watched {
            self.watched();
        }
    }

    /// Takes in what came during the sync that has ended.
    fn watched(&mut self) {
        // Where two and more have come each time and now none does, everybody waits for an answer.
        let is_over = self.came_in_flight == 0 && self.usual >= 2 * ONE;
        // Rounded up, or one that comes each time would never be one.
        self.usual =
            if is_over { 0 } else { (self.usual * 7 + self.came_in_flight.min(ONE) * ONE).div_ceil(8) };
        // The first that is gathered for is watched, to see whether those who came before come again.
        self.unwatched = if self.was_sure { (4 * self.came_in_flight).min(UNWATCHED_MOST) } else { 0 };
        if self.was_sure && !self.is_more_sure_to_come() {
            self.failures = if self.lasted < LASTING { (self.failures + 1).min(MOST_FAILURES) } else { 0 };
            self.resting = (1 << self.failures) - 1;
            self.lasted = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWAITED: Drafted = Drafted { records: 1, is_awaited: true, is_full: false };
    const SYNC: Duration = Duration::from_micros(80);

    /// An append of 80 microseconds that ends at this moment, with so many who come meanwhile.
    fn append(gather: &mut Gather, ends: u64, came: u32) {
        gather.written();
        (0..came).for_each(|_| gather.arrived(true));
        gather.synced(Moment(ends) - SYNC, Moment(ends));
    }

    /// The last sync has ended at 10,000, and so many came in each.
    fn after_syncs(came: u32) -> Gather {
        let mut gather = Gather::default();
        (1..=100).for_each(|nth| append(&mut gather, nth * 100, came));
        gather
    }

    /// The same where connections pause.
    fn paused_for(came: u32) -> Gather {
        let mut gather = after_syncs(came);
        gather.may_pause_until(None, None, Moment(10_000));
        gather
    }

    #[test]
    fn a_lone_message_waits_for_nothing() {
        assert_eq!(Gather::default().write_at(AWAITED, Moment(5)), Moment(5));
        for mut gather in [after_syncs(0), paused_for(0)] {
            assert_eq!(gather.write_at(AWAITED, Moment(10_001)), Moment(10_001));
            assert_eq!(gather.may_pause_until(Some(AWAITED), None, Moment(10_001)), None);
        }
        let late = Moment(10_000) + SYNC;
        assert_eq!(after_syncs(1).write_at(AWAITED, late), late, "the last sync is long over");
    }

    #[test]
    fn while_more_keeps_coming_a_sync_begins_no_sooner_than_a_syncs_time_after_the_last() {
        let gather = after_syncs(1);
        assert_eq!(gather.write_at(AWAITED, Moment(10_030)), Moment(10_080));
        assert_eq!(gather.write_at(AWAITED, Moment(9_950)), Moment(10_030), "nothing waits longer than that");
        let full = Drafted { is_full: true, ..AWAITED };
        assert_eq!(gather.write_at(full, Moment(10_030)), Moment(10_030));
    }

    #[test]
    fn appends_begin_four_syncs_apart_and_what_connections_read_then_is_written_at_once() {
        let mut gather = paused_for(1);
        gather.unwatched = 1;
        let read_at = Moment(10_240);
        assert_eq!(gather.may_pause_until(None, None, Moment(10_010)), Some(read_at));
        assert_eq!(gather.write_at(AWAITED, Moment(10_010)), read_at + READ_MOST, "they may not come");
        assert_eq!(gather.may_pause_until(None, None, read_at), None, "nothing has come: they wait for it");
        assert_eq!(gather.may_pause_until(Some(AWAITED), None, Moment(10_010)), Some(read_at));
        assert!(gather.may_pause_until(Some(AWAITED), None, read_at).is_some());
        assert_eq!(gather.write_at(AWAITED, Moment(10_010)), Moment(10_010), "all is read");
        gather.unwatched = 0;
        assert_eq!(gather.may_pause_until(Some(AWAITED), None, read_at), None, "this one is watched");
        gather.is_letting_read = false;
        assert_eq!(
            gather.may_pause_until(Some(AWAITED), None, read_at),
            None,
            "nobody has read since the sync"
        );
        let late = Moment(11_000);
        assert_eq!(paused_for(1).write_at(AWAITED, late), late + READ_MOST, "they have yet to read the rest");
    }

    #[test]
    fn sockets_are_read_sooner_the_longer_it_takes() {
        let mut gather = paused_for(1);
        let many = Drafted { records: 100, ..AWAITED };
        for _ in 0..100 {
            let Some(read_at) = gather.may_pause_until(None, None, gather.ended) else { break };
            gather.may_pause_until(Some(many), None, read_at + Duration::from_micros(100));
            append(&mut gather, 10_000, 1);
        }
        let read_at = gather.read_at().since(gather.ended);
        assert!((140..150).contains(&read_at.as_micros()), "{read_at:?}");
    }

    #[test]
    fn most_appends_are_not_watched_where_much_comes_and_none_goes_unwatched_for_long() {
        let mut gather = paused_for(5);
        let mut watched = 0;
        for nth in 0..1_600 {
            gather.written();
            let in_flight = Some(Moment(20_000));
            let pause = gather.may_pause_until(None, in_flight, Moment(20_001));
            assert_eq!(pause.is_none(), gather.is_watched, "{nth}");
            watched += u32::from(gather.is_watched);
            let came = if gather.is_watched { 5 } else { 0 };
            (0..came).for_each(|_| gather.arrived(true));
            gather.synced(Moment(20_000), Moment(20_080));
        }
        assert_eq!(watched, 100);
    }

    #[test]
    fn a_slow_disk_is_not_waited_for_longer() {
        let mut gather = Gather::default();
        for _ in 0..10 {
            gather.written();
            (0..200).for_each(|_| gather.arrived(true));
            gather.synced(Moment(0), Moment(10_000));
        }
        assert_eq!(gather.write_at(AWAITED, Moment(10_000)), Moment(10_000) + GATHER_MOST);
        gather.may_pause_until(None, None, Moment(10_000));
        assert_eq!(gather.write_at(AWAITED, Moment(10_000)), Moment(10_000) + READ_MOST);
        gather.unwatched = 1;
        gather.written();
        assert_eq!(gather.may_pause_until(None, Some(Moment(0)), Moment(1)), Some(Moment(0) + CYCLE_MOST));
    }

    #[test]
    fn what_nobody_waits_for_rides_along_or_is_written_a_little_later() {
        let unawaited = Drafted { is_awaited: false, ..AWAITED };
        assert_eq!(Gather::default().write_at(unawaited, Moment(5)), Moment(5) + UNAWAITED_MOST);
        assert_eq!(Gather::default().look_at(Moment(0)), Some(Moment(0) + UNAWAITED_MOST));
        assert_eq!(Gather::default().look_at(Moment(0) + UNAWAITED_MOST), None);
        let gather = paused_for(1);
        let look = gather.read_at() + READ_MOST;
        assert_eq!(
            gather.look_at(Moment(10_001)),
            Some(look),
            "for what the connections did not read in time"
        );
        assert_eq!(gather.look_at(look), Some(Moment(10_000) + UNAWAITED_MOST));
    }

    /// Everybody waits for an answer. What is written at once splits them into two that come in turns; what gathers has all
    /// of them, and nobody comes while it is in flight.
    #[test]
    fn where_everybody_waits_for_an_answer_gathering_is_given_up() {
        for mut gather in [after_syncs(0), paused_for(0)] {
            let mut gathered = 0;
            for _ in 0..10_000 {
                let is_gathering = gather.is_more_sure_to_come();
                gathered += u32::from(is_gathering);
                append(&mut gather, 20_000, if is_gathering { 0 } else { 3 });
            }
            assert!((10..500).contains(&gathered), "{gathered}");
        }
    }
}
