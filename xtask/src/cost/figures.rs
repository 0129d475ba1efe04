//! The figures of one measurement, how they pass between our processes and how they are printed.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

/// What a measurement saw.
#[derive(Debug)]
pub struct Figures {
    messages: u64,
    seconds: f64,
    /// The broker's CPU time, user and system.
    cpu_seconds: f64,
    /// Syncs of the journal; none if the broker does not tell.
    syncs: Option<u64>,
    pub p50_us: f64,
    pub p99_us: f64,
}

impl Figures {
    pub const HEAD: &str = "    msgs/s  msgs/sync  CPU s/M   p50 us   p99 us";

    /// Figures whose latencies are still to come.
    pub fn new(messages: u64, elapsed: Duration, cpu: Duration, syncs: Option<u64>) -> Figures {
        let (seconds, cpu_seconds) = (elapsed.as_secs_f64(), cpu.as_secs_f64());
        Figures { messages, seconds, cpu_seconds, syncs, p50_us: 0.0, p99_us: 0.0 }
    }

    /// Latencies in nanoseconds, in any order.
    pub fn with_latencies(self, mut latencies: Vec<u64>) -> Figures {
        latencies.sort_unstable();
        Figures { p50_us: percentile_us(&latencies, 50), p99_us: percentile_us(&latencies, 99), ..self }
    }

    pub fn cpu_per_million(&self) -> f64 {
        self.cpu_seconds / self.messages as f64 * 1e6
    }

    pub fn to_json(&self) -> Value {
        json!({
            "messages": self.messages, "seconds": self.seconds, "cpu_seconds": self.cpu_seconds,
            "syncs": self.syncs, "p50_us": self.p50_us, "p99_us": self.p99_us,
        })
    }

    pub fn read(value: &Value) -> Result<Figures, String> {
        let number =
            |name: &str| value[name].as_f64().ok_or(format!("the measurement lacks `{name}`: {value}"));
        Ok(Figures {
            messages: number("messages")? as u64,
            seconds: number("seconds")?,
            cpu_seconds: number("cpu_seconds")?,
            syncs: value["syncs"].as_u64(),
            p50_us: number("p50_us")?,
            p99_us: number("p99_us")?,
        })
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.messages as f64 / self.seconds;
        let per_sync = match self.syncs {
            Some(syncs) if syncs > 0 => format!("{:.1}", self.messages as f64 / syncs as f64),
            _ => "n/a".into(),
        };
        let cpu = self.cpu_per_million();
        write!(f, "{rate:>10.0} {per_sync:>10} {cpu:>8.2} {:>8.1} {:>8.1}", self.p50_us, self.p99_us)
    }
}

/// The given percentile of sorted nanoseconds, in microseconds; zero if there is none.
pub fn percentile_us(sorted: &[u64], percent: usize) -> f64 {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).map_or(0.0, |nanoseconds| *nanoseconds as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_taken_from_the_sorted_values() {
        let sorted: Vec<u64> = (0..100).map(|n| n * 1000).collect();
        assert_eq!(percentile_us(&sorted, 50), 50.0);
        assert_eq!(percentile_us(&sorted, 99), 99.0);
        assert_eq!(percentile_us(&[7000], 99), 7.0);
        assert_eq!(percentile_us(&[], 50), 0.0);
    }

    #[test]
    fn figures_survive_the_way_through_json() {
        let second = Duration::from_secs(1);
        let figures =
            Figures::new(200_000, second, second, Some(1000)).with_latencies(vec![3000, 1000, 2000]);
        let copy = Figures::read(&figures.to_json()).expect("all fields are there");
        assert_eq!(copy.to_string(), figures.to_string());
        assert_eq!(copy.cpu_per_million(), 5.0);
        assert_eq!(copy.p50_us, 2.0);
        assert!(copy.to_string().contains("200.0"), "messages per sync: {copy}");
    }

    #[test]
    fn a_broker_that_tells_no_syncs_is_shown_so() {
        let second = Duration::from_secs(1);
        assert!(Figures::new(1, second, second, None).to_string().contains("n/a"));
    }
}
