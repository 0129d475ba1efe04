//! How long to wait for more before an append is written. One function, [`Gather::write_at`], says it; the rest is what it
//! has measured.
//!
//! A sync costs the same whether it carries one message or a hundred, and so does waking a thread of the connections: at a
//! steady pace the CPU time of a message is decided by how many share one. Waiting costs time that somebody feels. So a lone
//! message waits for nothing; what nobody waits for rides along with the next append that somebody does; and while messages
//! keep coming in during syncs, the next one begins no sooner than a few syncs' time after the last one has begun.
//!
//! Where the threads of connections tell when they have nothing left to decide ([`Gather::rested`]), that is when it is written, or a few
//! syncs' time later if they do not come to rest: a sync that begins while work is ready carries one message, and the next one the others.
//!
//! Nothing is gained by reading a socket before that. So the threads of connections pause until then, and while an append is
//! in flight ([`Gather::may_pause_until`]); when they have read and decided everything that has arrived by then, it is written.
//! `docs/design/0005` has the numbers.

mod arrivals;

use super::limits::{
    CYCLE_LEAST, CYCLE_MOST, CYCLE_SYNCS, GATHER_MOST, ONE_ARRIVAL, READ_EACH, READ_MOST, UNAWAITED_MOST,
};
use super::machine::DraftSize;
use super::moment::Moment;
use arrivals::{Arrivals, Needed};
use std::time::Duration;

/// Which of their turns the threads of connections are at, between two appends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Reading {
    /// They have not been told to read since the last append was written.
    #[default]
    NotYet,
    /// Their pause was ended, so that they read what has arrived.
    Told,
    /// They have read and decided all of it.
    Done,
}

#[derive(Debug, Default)]
pub struct Gather {
    /// What a sync takes, smoothed, and when the last one has begun and ended.
    sync_time: Duration,
    began: Moment,
    ended: Moment,
    arrivals: Arrivals,
    /// Connections pause while more is gathered.
    is_paused_for: bool,
    /// Connections' threads tell when they have nothing left to decide.
    tells_rest: bool,
    /// One of them has, and nothing was decided since.
    is_at_rest: bool,
    reading: Reading,
    /// What reading all that has arrived takes, smoothed.
    reading_time: Duration,
}

impl Gather {
    /// When to write a draft that was begun, or first waited for, at `since`.
    pub(super) fn write_at(&self, drafted: DraftSize, since: Moment) -> Moment {
        if drafted.is_full {
            return since;
        }
        if !drafted.is_awaited {
            return since + UNAWAITED_MOST;
        }
        if self.tells_rest {
            return if self.is_at_rest { since } else { since.max(self.ended) + self.cycle() };
        }
        let is_more_sure = self.is_more_sure_to_come();
        if self.reading == Reading::Done || !(is_more_sure || self.arrivals.are_split()) {
            return since;
        }
        if is_more_sure && self.is_paused_for {
            return since.max(self.read_at()) + READ_MOST;
        }
        let time = self.sync_time.min(GATHER_MOST);
        since.max(self.ended + time).min(since + time)
    }

    /// A thread of connections has decided all that it has read, `drafted` is not written, and no append is in flight or one
    /// that was begun at `written`. Until when it may pause before it reads more, if it may.
    pub(super) fn may_pause_until(
        &mut self,
        drafted: Option<DraftSize>,
        written: Option<Moment>,
        now: Moment,
    ) -> Option<Moment> {
        self.is_paused_for = true;
        if !self.is_more_sure_to_come() {
            return None;
        }
        if let Some(written) = written {
            return (!self.arrivals.is_watched()).then(|| written + self.cycle());
        }
        let read_at = self.read_at();
        let is_told = self.reading != Reading::NotYet;
        if !is_told {
            self.reading = Reading::Told;
        }
        if now < read_at {
            return Some(read_at);
        }
        let drafted = drafted.filter(|drafted| is_told && drafted.is_awaited)?;
        if self.reading == Reading::Told {
            self.reading = Reading::Done;
            let took = now.since(read_at).min(READ_EACH * drafted.records);
            self.reading_time = (self.reading_time * 7 + took) / 8;
        }
        // It is about to be written.
        self.arrivals.may_go_unwatched().then(|| now + self.cycle())
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

    fn is_more_sure_to_come(&self) -> bool {
        self.arrivals.are_sure(self.needed())
    }

    /// How much must usually come in the time that would be waited for it to pay.
    fn needed(&self) -> Needed {
        let (time, least) =
            if self.is_paused_for { (self.cycle(), CYCLE_LEAST) } else { (self.sync_time, ONE_ARRIVAL) };
        Needed { time, sync_time: self.sync_time, least }
    }

    /// From the beginning of one append to the next.
    fn cycle(&self) -> Duration {
        (self.sync_time * CYCLE_SYNCS).min(CYCLE_MOST)
    }

    /// When sockets are to be read, so that all that has arrived is decided when the time is over.
    fn read_at(&self) -> Moment {
        self.ended.max(self.began + (self.cycle() - self.reading_time.min(self.cycle())))
    }

    /// A thread of connections has nothing left to decide: whatever else comes has yet to be read.
    pub(super) fn rested(&mut self) {
        (self.tells_rest, self.is_at_rest) = (true, true);
    }

    /// Something more is drafted now and somebody waits for it.
    pub(super) fn arrived(&mut self, is_in_flight: bool) {
        self.is_at_rest = false;
        if is_in_flight {
            self.arrivals.came();
        }
    }

    pub(super) fn written(&mut self) {
        self.reading = Reading::NotYet;
        self.arrivals.written(self.needed(), self.is_paused_for);
    }

    pub(super) fn synced(&mut self, since: Moment, now: Moment) {
        let took = now.since(since);
        self.sync_time = if self.sync_time.is_zero() { took } else { (self.sync_time * 7 + took) / 8 };
        (self.began, self.ended) = (since, now);
        // Threads have answers to write now, and then perhaps the next requests of those who have waited for them.
        self.is_at_rest = false;
        self.arrivals.synced(self.needed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWAITED: DraftSize = DraftSize { records: 1, is_awaited: true, is_full: false };
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
    fn those_who_were_split_in_two_are_brought_together_while_gathering_rests() {
        for mut gather in [Gather::default(), paused_for(0)] {
            gather.arrivals.resting = 255;
            append(&mut gather, 10_000, 2);
            assert!(!gather.is_more_sure_to_come());
            assert_eq!(gather.write_at(AWAITED, Moment(9_950)), Moment(10_030), "for a sync's time at most");
            append(&mut gather, 10_200, 0);
            assert_eq!(gather.write_at(AWAITED, Moment(10_201)), Moment(10_201), "nobody was left behind");
        }
    }

    #[test]
    fn while_more_keeps_coming_a_sync_begins_no_sooner_than_a_syncs_time_after_the_last() {
        let gather = after_syncs(1);
        assert_eq!(gather.write_at(AWAITED, Moment(10_030)), Moment(10_080));
        assert_eq!(gather.write_at(AWAITED, Moment(9_950)), Moment(10_030), "nothing waits longer than that");
        let full = DraftSize { is_full: true, ..AWAITED };
        assert_eq!(gather.write_at(full, Moment(10_030)), Moment(10_030));
    }

    #[test]
    fn appends_begin_four_syncs_apart_and_what_connections_read_then_is_written_at_once() {
        let mut gather = paused_for(1);
        gather.arrivals.unwatched = 1;
        let read_at = Moment(10_240);
        assert_eq!(gather.may_pause_until(None, None, Moment(10_010)), Some(read_at));
        assert_eq!(gather.write_at(AWAITED, Moment(10_010)), read_at + READ_MOST, "they may not come");
        assert_eq!(gather.may_pause_until(None, None, read_at), None, "nothing has come: they wait for it");
        assert_eq!(gather.may_pause_until(Some(AWAITED), None, Moment(10_010)), Some(read_at));
        assert!(gather.may_pause_until(Some(AWAITED), None, read_at).is_some());
        assert_eq!(gather.write_at(AWAITED, Moment(10_010)), Moment(10_010), "all is read");
        gather.arrivals.unwatched = 0;
        assert_eq!(gather.may_pause_until(Some(AWAITED), None, read_at), None, "this one is watched");
        gather.reading = Reading::NotYet;
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
        let many = DraftSize { records: 100, ..AWAITED };
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
            assert_eq!(pause.is_none(), gather.arrivals.is_watched(), "{nth}");
            watched += u32::from(gather.arrivals.is_watched());
            let came = if gather.arrivals.is_watched() { 5 } else { 0 };
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
        gather.arrivals.unwatched = 1;
        gather.written();
        assert_eq!(gather.may_pause_until(None, Some(Moment(0)), Moment(1)), Some(Moment(0) + CYCLE_MOST));
    }

    #[test]
    fn what_nobody_waits_for_rides_along_or_is_written_a_little_later() {
        let unawaited = DraftSize { is_awaited: false, ..AWAITED };
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

    #[test]
    fn what_was_decided_is_written_when_its_thread_has_nothing_left_to_decide_and_in_four_syncs_time_anyway()
    {
        let mut gather = after_syncs(1);
        gather.rested();
        assert_eq!(gather.write_at(AWAITED, Moment(10_001)), Moment(10_001));
        gather.arrived(false);
        assert_eq!(gather.write_at(AWAITED, Moment(10_001)), Moment(10_001) + SYNC * CYCLE_SYNCS);
        let full = DraftSize { is_full: true, ..AWAITED };
        assert_eq!(gather.write_at(full, Moment(10_001)), Moment(10_001));
        gather.rested();
        assert_eq!(gather.write_at(AWAITED, Moment(10_001)), Moment(10_001));
        append(&mut gather, 20_000, 1);
        assert_eq!(
            gather.write_at(AWAITED, Moment(19_950)),
            Moment(20_000) + SYNC * CYCLE_SYNCS,
            "answers are written first"
        );
        let mut slow = Gather::default();
        append(&mut slow, 20_000, 0);
        slow.sync_time = Duration::from_secs(1);
        (slow.tells_rest, slow.is_at_rest) = (true, false);
        assert_eq!(slow.write_at(AWAITED, Moment(30_000)), Moment(30_000) + CYCLE_MOST);
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
