//! What a run of libFuzzer has told.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

/// How the last line of a log begins, which is ours.
const SIGNED: &str = "xtask:";

/// Ticks of a processor's clock in a second, as `/proc` counts.
const TICKS: u64 = 100;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Log {
    pub(super) date: String,
    pub(super) commit: String,
    pub(super) seconds: u64,
    /// Of a processor, where that is known.
    pub(super) processor_seconds: u64,
    /// Inputs that there were at the beginning.
    pub(super) seeds: u64,
    pub(super) executions: u64,
    pub(super) edges: u64,
    pub(super) features: u64,
    pub(super) inputs: u64,
    pub(super) crashes: u64,
}

impl Log {
    pub(super) fn read(path: &Path) -> Result<Log, String> {
        let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Log::of(&String::from_utf8_lossy(&bytes)))
    }

    fn of(text: &str) -> Log {
        let mut log = Log::default();
        for line in text.lines() {
            let number = |name: &str| -> Option<u64> {
                let digits =
                    line.split_once(name)?.1.trim_start().split(|c: char| !c.is_ascii_digit()).next()?;
                digits.parse().ok()
            };
            if let (true, Some(edges)) = (line.starts_with('#'), number(" cov: ")) {
                let (features, inputs) = (number(" ft: "), number(" corp: "));
                (log.edges, log.features) = (edges, features.unwrap_or(log.features));
                log.inputs = inputs.unwrap_or(log.inputs);
                log.executions = number("#").unwrap_or(log.executions);
                if line.contains("INITED") {
                    log.seeds = log.executions;
                }
            }
            log.executions = number("stat::number_of_executed_units:").unwrap_or(log.executions);
            log.crashes += u64::from(line.contains("Test unit written to"));
            if let Some(signed) = line.strip_prefix(SIGNED) {
                let mut words = signed.split_whitespace();
                log.date = words.next().unwrap_or_default().to_owned();
                log.commit = words.next().unwrap_or_default().to_owned();
                let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or_default();
                (log.seconds, log.processor_seconds) = (number(), number());
            }
        }
        log
    }

    pub(super) fn told(&self) -> String {
        let Log { seconds, executions, edges, features, inputs, crashes, .. } = self;
        format!(
            "{executions} executions in {seconds} s, {edges} edges, {features} features, {inputs} inputs, {crashes} crashes"
        )
    }
}

/// Writes down when, of what and for how long a log is.
pub(super) fn sign(
    path: &Path,
    date: &str,
    commit: &str,
    seconds: u64,
    processor: u64,
) -> Result<(), String> {
    let said = |error| format!("{}: {error}", path.display());
    let mut file = OpenOptions::new().append(true).open(path).map_err(said)?;
    writeln!(file, "{SIGNED} {date} {commit} {seconds} {processor}").map_err(said)
}

/// What a process has had of the processors until now.
pub(super) fn processor_seconds(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program stands in parentheses and may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((ticks()? + ticks()?) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_fuzzer_tells_is_read() {
        let text = "INFO: seed corpus: files: 9\n\
            #10\tINITED cov: 60 ft: 70 corp: 5/12Kb exec/s: 0 rss: 28Mb\n\
            #1149\tREDUCE cov: 194 ft: 426 corp: 110/170Kb lim: 2624 exec/s: 1912 rss: 29Mb L: 91/668 MS: 2 CMP-\n\
            artifact_prefix='x'; Test unit written to x/crash-1\n\
            stat::number_of_executed_units: 1150\n\
            xtask: 2026-01-02 abc1234 600 577\n";
        let expected = Log {
            date: "2026-01-02".into(),
            commit: "abc1234".into(),
            seconds: 600,
            processor_seconds: 577,
            seeds: 10,
            executions: 1150,
            edges: 194,
            features: 426,
            inputs: 110,
            crashes: 1,
        };
        assert_eq!(Log::of(text), expected);
    }
}
