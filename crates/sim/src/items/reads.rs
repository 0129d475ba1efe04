//! What clients read, and what the model says about it: items, queries, both kinds of the change feed.

use super::feeds::latest_after;
use super::world::Told;
use super::{Run, ask};
use items::{ChangeFeedStart, Scope, Time};

/// How far back the change feed is asked for by time.
const FEED_SECONDS: u64 = 12;

impl Run {
    /// Reads a few items: what was answered is there, what has expired is not.
    pub(super) fn read_some(&mut self) {
        for _ in 0..3 {
            let key = ask::draw_key(&mut self.random, self.ids);
            let Some((now, heard)) = self.world.read(&key) else { return self.hear() };
            // A read may have waited for an append, and others were answered with it.
            self.hear();
            let expected = self.model.expects(&key, now);
            self.tell(|| format!("{now:?} read {key:?}: {heard:?}"));
            self.report.expired += u64::from(expected.is_expired);
            if let Err(wrong) = self.model.has_read(&key, now, heard) {
                self.fail(wrong);
            }
        }
    }

    /// Asks for numbers in some way that an index may help with, or not.
    pub(super) fn query(&mut self) {
        let page = *self.random.pick(&[-1, 1, 2, 3]);
        let partition = self.random.below(ask::PARTITIONS);
        let (least, wanted) = (self.random.number() >> 24, self.random.below(3));
        let kind = self.random.below(5);
        let text = match kind {
            0 => format!("SELECT VALUE c.n FROM c WHERE c.n >= {least} ORDER BY c.n"),
            1 => format!("SELECT VALUE c.n FROM c WHERE c.u = {wanted} ORDER BY c.n"),
            2 => "SELECT VALUE COUNT(1) FROM c".to_owned(),
            3 => "SELECT VALUE c.n FROM c ORDER BY c.n DESC".to_owned(),
            _ => format!("SELECT VALUE c.n FROM c WHERE c.pk = \"p{partition}\" AND c.n < {least}"),
        };
        let scope = if kind == 3 { Scope::Key(ask::partition_key(partition)) } else { Scope::All };
        let told = self.world.query(&text, &scope, page);
        self.hear();
        self.look_after_life();
        let Some(told) = told else { return };
        self.report.queries += 1;
        let expected = |now: Time| {
            let alive = self.model.heard().all_alive(now.0);
            let wanted = alive.filter(|(key, item)| match kind {
                0 => item.content.number >= least,
                1 => item.content.unique == wanted,
                2 => true,
                3 => key.partition == partition,
                _ => key.partition == partition && item.content.number < least,
            });
            let mut numbers: Vec<u64> = wanted.map(|(_, item)| item.content.number).collect();
            numbers.sort_unstable();
            match kind {
                2 => vec![numbers.len() as u64],
                3 => numbers.into_iter().rev().collect(),
                _ => numbers,
            }
        };
        let mut found: Vec<u64> = told.values.iter().filter_map(|value| number(value)).collect();
        if kind == 4 {
            found.sort_unstable();
        }
        let (first, last) = (expected(told.first), expected(told.last));
        // Between two pages something may have ended.
        if first == last && first != found {
            self.fail(format!("{text} at {:?} finds {found:?}, not {first:?}", told.last));
        }
    }

    /// Both readers of the change feed go on where they were, and one reads what is there from the beginning or from a time.
    pub(super) fn read_feeds(&mut self) {
        self.settle();
        self.read_all_versions();
        self.read_latest();
        self.hear();
        self.look_after_life();
    }

    fn read_all_versions(&mut self) {
        let Some(continuation) = self.model.feeds.all_versions.clone() else { return self.begin_feed() };
        let Some(told) = self.world.all_versions(ChangeFeedStart::After(continuation)) else { return };
        self.hear();
        let checked = match told {
            Ok((told, changes)) => {
                self.tell(|| format!("{:?} all versions: {changes:?}", told.last));
                self.model.feeds.all_versions = Some(told.continuation);
                let state = self.model.heard().clone();
                self.model.feeds.all_versions(&state, told.last, &changes)
            }
            // Somebody has set the clock years ahead: what it was to be told is forgotten.
            Err(400) => {
                self.tell(|| "what the feed of all versions is to tell is forgotten".into());
                self.model.feeds.all_versions = None;
                return self.begin_feed();
            }
            Err(status) => Err(format!("the feed of all versions is refused with {status}")),
        };
        if let Err(wrong) = checked {
            self.fail(wrong);
        }
        if self.world.is_purged()
            && let Some(now) = self.world.now()
            && let Err(wrong) = self.model.feeds.is_complete(&self.model.heard().clone(), now)
        {
            self.fail(wrong);
        }
    }

    fn begin_feed(&mut self) {
        if let Some(Ok((told, _))) = self.world.all_versions(ChangeFeedStart::Now) {
            self.hear();
            let state = self.model.heard().clone();
            self.model.feeds.begin(&state, told.last, told.continuation);
        }
    }

    fn read_latest(&mut self) {
        let continuation = self.model.feeds.latest.clone();
        let start = continuation.map_or(ChangeFeedStart::Beginning, ChangeFeedStart::After);
        let Some(told) = self.world.latest_versions(start) else { return };
        self.hear();
        let state = self.model.heard().clone();
        self.model.feeds.latest = Some(told.continuation.clone());
        let expected = self.model.feeds.latest(&state, told.last);
        if state.shown(told.first.0) == state.shown(told.last.0) {
            self.compare("from where it was", &told, &expected);
        }
        let second = told.last.seconds() - self.random.below(FEED_SECONDS) as i64;
        let is_whole = self.random.once_in(2);
        let start = if is_whole { ChangeFeedStart::Beginning } else { ChangeFeedStart::Time(second) };
        let Some(told) = self.world.latest_versions(start) else { return };
        self.hear();
        let state = self.model.heard();
        if state.shown(told.first.0) == state.shown(told.last.0) {
            let is_wanted = |_, written| is_whole || Time(written).seconds() >= second;
            let expected = latest_after(state, told.last, is_wanted);
            self.compare("from a time", &told, &expected);
        }
    }

    fn compare(&mut self, from: &str, told: &Told, expected: &[u64]) {
        let found: Vec<u64> = told.values.iter().filter_map(|value| ask::number_in(value)).collect();
        self.tell(|| format!("{:?} change feed {from}: {found:?}", told.last));
        if found != expected {
            self.fail(format!("the change feed {from} at {:?} is {found:?}, not {expected:?}", told.last));
        }
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
