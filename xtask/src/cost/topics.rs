//! What publishing costs beside a send to a queue: copies for ten subscriptions, and a thousand rules that do not match.

use super::broker::Broker;
use super::figures::Figures;
use super::quiet::{Usage, is_quiet};
use super::{BROKER_CORE, CLIENT_CORE, QUEUE, disturbed, median, scratch, worker};
use std::fmt::Write as _;

const CONNECTIONS: &str = "4";
const WINDOW: &str = "250";

/// A topic whose subscriptions get everything.
const TEN: &str = "ten";
/// Topics with one subscription that gets everything by one rule, beside which it has others that never match.
const ONE_RULE: &str = "one-rule";
const MANY_RULES: &str = "many-rules";
const RULES: usize = 1_000;

/// What is measured.
struct Turn {
    entity: &'static str,
    name: &'static str,
    /// Against what: at most so many times its CPU.
    limit: Option<(&'static str, f64)>,
}

const TURNS: [Turn; 4] = [
    Turn { entity: QUEUE, name: "send to a queue", limit: None },
    Turn { entity: TEN, name: "publish to 10 subscriptions", limit: Some((QUEUE, 3.0)) },
    Turn { entity: ONE_RULE, name: "publish past 1 correlation rule", limit: None },
    Turn { entity: MANY_RULES, name: "publish past 1,000 correlation rules", limit: Some((ONE_RULE, 2.0)) },
];

fn declared() -> String {
    let mut text = format!("[[topic]]\nname = \"{TEN}\"\nmax_size_in_megabytes = 81920\n");
    for nth in 0..10 {
        let _ = write!(text, "[[topic.subscription]]\nname = \"s{nth}\"\n");
    }
    for (topic, rules) in [(ONE_RULE, 1), (MANY_RULES, RULES)] {
        let _ = write!(text, "[[topic]]\nname = \"{topic}\"\nmax_size_in_megabytes = 81920\n");
        text.push_str("[[topic.subscription]]\nname = \"s\"\n");
        text.push_str("[[topic.subscription.rule]]\nname = \"all\"\nsql = \"1 = 1\"\n");
        for nth in 0..rules {
            let _ = write!(
                text,
                "[[topic.subscription.rule]]\nname = \"r{nth}\"\ncorrelation = {{ label = \"{nth}\" }}\n"
            );
        }
    }
    text
}

/// Each in turn, on new data, as often as `rounds` says; medians are compared.
pub fn run(seconds: &str, rounds: u32) -> Result<(), String> {
    println!("{:<40}{}", "1 KiB, durable", Figures::HEAD);
    let mut found: Vec<(&str, Vec<f64>)> = TURNS.iter().map(|turn| (turn.entity, Vec::new())).collect();
    let mut noisiest: f64 = 0.0;
    for _ in 0..rounds {
        for (Turn { entity, name, .. }, (_, costs)) in TURNS.iter().zip(&mut found) {
            let folder = scratch("cost-topics")?;
            let broker = Broker::start_with(&folder, &["taskset", "-c", BROKER_CORE], &declared())?;
            let (port, pid) = (broker.port.to_string(), broker.pid().to_string());
            let before = Usage::read(Some(broker.pid()))?;
            let sent = worker(CLIENT_CORE, &["send", &port, entity, &pid, CONNECTIONS, WINDOW, seconds])?;
            let foreign = before.foreign_cores(&Usage::read(Some(broker.pid()))?);
            let figures = Figures::read(&sent)?;
            let words = if is_quiet(foreign) { String::new() } else { disturbed(foreign) };
            println!("{name:<40}{figures}  {words}");
            noisiest = noisiest.max(foreign);
            costs.push(figures.cpu_per_million());
        }
    }
    let mut is_above = false;
    for Turn { entity, name, limit } in TURNS {
        let Some((other, limit)) = limit else { continue };
        let cost =
            |of: &str| found.iter().find(|(each, _)| *each == of).map(|(_, costs)| median(costs.clone()));
        let ratio = cost(entity).unwrap_or(f64::NAN) / cost(other).unwrap_or(f64::NAN);
        is_above |= ratio > limit && is_quiet(noisiest);
        println!("{name}: {ratio:.2} times the CPU of `{other}` (at most {limit})");
    }
    if is_above { Err("publishing costs more than it may".into()) } else { Ok(()) }
}
