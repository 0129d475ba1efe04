//! What the server counts, as Prometheus text. Numbers alone: no names of entities, no addresses, no secrets.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the doors count by themselves.
#[derive(Debug, Default)]
pub struct Meters {
    /// Connections being served, by what they speak.
    pub amqp_connections: AtomicU64,
    pub http_connections: AtomicU64,
    /// Those at the items' port.
    pub items_connections: AtomicU64,
}

impl Meters {
    /// Counts a connection for as long as the answer lives.
    pub fn open(meter: &AtomicU64) -> Open<'_> {
        meter.fetch_add(1, Ordering::Relaxed);
        Open(meter)
    }
}

/// A connection that counts.
#[derive(Debug)]
pub struct Open<'a>(&'a AtomicU64);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the engine has done since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    pub syncs: u64,
    pub appended_bytes: u64,
    pub stored_messages: u64,
    pub delivered_messages: u64,
    /// The most that one decision has cost, in steps.
    pub longest_slice_steps: u64,
    /// How often something stored was found damaged.
    pub damages: u64,
}

impl From<&engine::Counters> for Totals {
    fn from(counters: &engine::Counters) -> Totals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Totals {
            syncs: read(&counters.appends),
            appended_bytes: read(&counters.appended_bytes),
            stored_messages: read(&counters.stored_messages),
            delivered_messages: read(&counters.delivered_messages),
            longest_slice_steps: counters.longest_slice_steps.load(Ordering::Relaxed) as u64,
            damages: 0,
        }
    }
}

/// What the items' engine has done since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ItemsWork {
    pub reads: u64,
    pub writes: u64,
    pub syncs: u64,
    pub appended_bytes: u64,
}

impl From<&items_engine::Activity> for ItemsWork {
    fn from(activity: &items_engine::Activity) -> ItemsWork {
        let ((reads, writes), (syncs, appended_bytes)) = (activity.asked(), activity.written());
        ItemsWork { reads, writes, syncs, appended_bytes }
    }
}

/// The page that a collector reads.
pub fn page(totals: Totals, items: Option<ItemsWork>, meters: &Meters, is_healthy: bool) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, samples: &[(&str, u64)]| {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    family("otobus_journal_syncs_total", "counter", "Appends made durable.", &[("", totals.syncs)]);
    family(
        "otobus_journal_bytes_total",
        "counter",
        "Bytes appended to the journal.",
        &[("", totals.appended_bytes)],
    );
    family("otobus_messages_stored_total", "counter", "Messages stored.", &[("", totals.stored_messages)]);
    family(
        "otobus_messages_delivered_total",
        "counter",
        "Messages handed to receivers.",
        &[("", totals.delivered_messages)],
    );
    family(
        "otobus_longest_decision_steps",
        "gauge",
        "The most that one decision has cost since the start, in steps.",
        &[("", totals.longest_slice_steps)],
    );
    family(
        "otobus_storage_damages_total",
        "counter",
        "Damage met in what is stored; the log names file and offset.",
        &[("", totals.damages)],
    );
    if let Some(items) = items {
        let requests = [("{kind=\"read\"}", items.reads), ("{kind=\"write\"}", items.writes)];
        family("otobus_items_requests_total", "counter", "Requests about items.", &requests);
        family(
            "otobus_items_journal_syncs_total",
            "counter",
            "Appends of items made durable.",
            &[("", items.syncs)],
        );
        family(
            "otobus_items_journal_bytes_total",
            "counter",
            "Bytes appended to the items' journal.",
            &[("", items.appended_bytes)],
        );
    }
    let open = |meter: &AtomicU64| meter.load(Ordering::Relaxed);
    let connections = [
        ("{protocol=\"amqp\"}", open(&meters.amqp_connections)),
        ("{protocol=\"http\"}", open(&meters.http_connections)),
        ("{protocol=\"items\"}", open(&meters.items_connections)),
    ];
    family("otobus_connections", "gauge", "Connections being served.", &connections);
    family("otobus_healthy", "gauge", "1 while what is sent is stored.", &[("", is_healthy.into())]);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_has_its_help_its_type_and_its_value() {
        let meters = Meters::default();
        let amqp = Meters::open(&meters.amqp_connections);
        let totals = Totals {
            syncs: 7,
            appended_bytes: 80,
            stored_messages: 9,
            delivered_messages: 10,
            longest_slice_steps: 12,
            damages: 11,
        };
        let items = ItemsWork { reads: 12, writes: 13, syncs: 14, appended_bytes: 15 };
        let text = page(totals, Some(items), &meters, true);
        for line in [
            "# TYPE otobus_journal_syncs_total counter",
            "otobus_journal_syncs_total 7",
            "otobus_journal_bytes_total 80",
            "otobus_messages_stored_total 9",
            "otobus_longest_decision_steps 12",
            "otobus_messages_delivered_total 10",
            "otobus_storage_damages_total 11",
            "otobus_items_requests_total{kind=\"read\"} 12",
            "otobus_items_requests_total{kind=\"write\"} 13",
            "otobus_items_journal_syncs_total 14",
            "otobus_items_journal_bytes_total 15",
            "otobus_connections{protocol=\"amqp\"} 1",
            "otobus_connections{protocol=\"http\"} 0",
            "otobus_connections{protocol=\"items\"} 0",
            "otobus_healthy 1",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
        }
        drop(amqp);
        assert!(page(totals, None, &meters, false).contains("otobus_connections{protocol=\"amqp\"} 0"));
    }
}
