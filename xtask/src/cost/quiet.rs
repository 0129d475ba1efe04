//! Whether the machine was ours during a measurement.
//!
//! A process that shares a core with the broker makes every wait as long as the scheduler's tick. The raw figures that
//! a limit is relative to suffer most, so that a disturbed run can look better than a quiet one. Such a run gets no
//! verdict.

use super::broker::CpuTicks;

/// Cores that others may use. The kernel's own writing to disk for us counts as others', and is about half of this.
const FOREIGN_CORES: f64 = 0.15;

/// What was used up at an instant: by everybody, and by us and those we started.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    at: std::time::Instant,
    all: CpuTicks,
    ours: CpuTicks,
}

impl Usage {
    /// Reads the counters. `broker` is the process that is measured; all others of ours have been waited for.
    pub fn read(broker: Option<u32>) -> Result<Usage, String> {
        let text = std::fs::read_to_string("/proc/stat")
            .map_err(|error| format!("cannot read /proc/stat: {error}"))?;
        let all = busy(&text).ok_or("/proc/stat has no CPU time")?;
        let own = CpuTicks::of_process("self", true)?;
        let brokers = broker.map_or(Ok(CpuTicks(0)), |pid| CpuTicks::of_process(&pid.to_string(), false))?;
        Ok(Usage { at: std::time::Instant::now(), all, ours: CpuTicks(own.0 + brokers.0) })
    }

    /// How many cores others used from then to now.
    pub fn foreign_cores(&self, now: &Usage) -> f64 {
        let all = (now.all.0 - self.all.0) as i64;
        let ours = (now.ours.0 - self.ours.0) as i64;
        let used = CpuTicks((all - ours).max(0) as u64).time();
        used.as_secs_f64() / now.at.duration_since(self.at).as_secs_f64()
    }
}

pub fn is_quiet(foreign_cores: f64) -> bool {
    foreign_cores <= FOREIGN_CORES
}

/// All time of all cores that was not idle: the first line of `/proc/stat`, without `idle` and `iowait` and without the
/// guests' time, which `user` and `nice` include.
fn busy(stat: &str) -> Option<CpuTicks> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let (idle, iowait) = (3, 4);
    let counted = ticks.iter().take(8).enumerate().filter(|(index, _)| *index != idle && *index != iowait);
    Some(CpuTicks(counted.map(|(_, ticks)| ticks).sum()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn idle_time_and_guests_are_not_busy() {
        assert_eq!(busy("cpu  1 2 4 1000 2000 8 16 32 500 500\ncpu0 9 9"), Some(CpuTicks(63)));
        assert_eq!(busy("intr 1 2 3"), None);
    }

    #[test]
    fn what_we_did_not_use_others_did() {
        let at = Instant::now();
        let before = Usage { at, all: CpuTicks(1000), ours: CpuTicks(100) };
        let after = Usage { at: at + Duration::from_secs(2), all: CpuTicks(1300), ours: CpuTicks(300) };
        assert_eq!(before.foreign_cores(&after), 0.5);
        assert!(!is_quiet(0.5) && is_quiet(0.1));
    }
}
