//! Topics on a disk: copies share a body, which lives as long as the last of them; rules are held against what is read
//! back; and what becomes many records becomes several appends.

use crate::owner::{UPKEEP, options};
use broker::topic::rule::{Filter, Rule, Sql};
use broker::topic::settings::{SubscriptionSettings, TopicSettings};
use broker::{
    Answer, Command, ConnectionId, Incoming, Intake, LinkId, NamespaceId, ReceiveMode, RequestId, Span, Task,
    Time,
};
use journal::disk::{Disk, Memory};
use journal::{Filling, Local, Options};
use message::Value;
use message::codec::write_descriptor;
use otobus_engine::{Batch, ByHand, Outbox, Outgoing, Work, recover};
use std::sync::Arc;

const HERE: ConnectionId = ConnectionId(1);
const SENDER: LinkId = LinkId { connection: HERE, link: 1 };

struct Rig {
    partition: ByHand,
    outbox: Arc<Outbox>,
    heard: Vec<Outgoing>,
    now: Time,
    links: u32,
}

/// A message with one property and a body of some length.
fn message(color: &str, length: usize) -> Vec<u8> {
    let mut out = Vec::new();
    write_descriptor(&mut out, 0x74);
    Value::Map(vec![("color".into(), color.into())]).encode(&mut out);
    write_descriptor(&mut out, 0x75);
    Value::Binary(vec![7; length]).encode(&mut out);
    out
}

impl Rig {
    fn open(memory: &Memory, options: Options, now: Time) -> Rig {
        let mut journal = Local::open(Arc::new(memory.clone()), options).unwrap();
        let recovered = recover(&mut journal, 1).unwrap();
        let partition = ByHand::new(recovered, Box::new(journal), UPKEEP);
        let outbox = Arc::new(Outbox::default());
        partition.put(Work::Connect { connection: HERE, mailbox: outbox.clone() });
        Rig { partition, outbox, heard: Vec::new(), now, links: 1 }
    }

    /// A topic with subscriptions by name and filter, and a link to send on.
    fn with_topic(memory: &Memory, options: Options, subscriptions: &[(&str, Filter)]) -> Rig {
        let mut rig = Rig::open(memory, options, Time(1_000_000));
        let settings = TopicSettings::default();
        rig.manage(Task::CreateTopic { path: "t".into(), settings, access: Vec::new() });
        for (name, filter) in subscriptions {
            let rule = Some(Rule { name: "r".into(), filter: filter.clone(), action: None });
            let (topic, name, settings) = ("t".into(), (*name).into(), SubscriptionSettings::default());
            rig.manage(Task::CreateSubscription { topic, name, settings, rule });
        }
        rig.attach_sender();
        rig
    }

    fn attach_sender(&mut self) {
        let (namespace, path) = (NamespaceId(0), "t".into());
        self.give(vec![Command::AttachSender { link: SENDER, namespace, path }]);
    }

    fn give(&mut self, commands: Vec<Command>) {
        self.partition.put(Work::Batch(Batch { commands, ..Batch::default() }));
        self.run();
    }

    fn manage(&mut self, task: Task) {
        let request = RequestId { connection: HERE, request: 1 };
        self.give(vec![Command::Manage { request, namespace: NamespaceId(0), task: Box::new(task) }]);
        let answer = self.heard.pop();
        assert!(matches!(answer, Some(Outgoing::Answered { answer: Ok(_), .. })), "{answer:?}");
    }

    fn run(&mut self) {
        self.partition.run(self.now).unwrap();
        self.outbox.take(&mut self.heard);
    }

    fn rest(&mut self, steps: u32) {
        for _ in 0..steps {
            self.now.0 += 20;
            self.partition.rest(self.now).unwrap();
            self.outbox.take(&mut self.heard);
        }
    }

    fn publish(&mut self, bodies: &[Vec<u8>]) {
        let mut batch = Batch::default();
        for (delivery, body) in bodies.iter().enumerate() {
            let first = batch.messages.len();
            batch.message(Span::MAX, |out| out.extend_from_slice(body));
            batch.send(SENDER, delivery as u32, false, first);
        }
        self.partition.put(Work::Batch(batch));
        self.run();
    }

    fn schedule(&mut self, body: &[u8], later: Span) {
        let mut batch = Batch::default();
        let scheduled = self.now.local(broker::ClockOffset::default()).after(later);
        batch.arrival(Incoming { scheduled, ..Incoming::new(Intake::default()) }, |out| {
            out.extend_from_slice(body);
        });
        batch.send(SENDER, 0, false, 0);
        self.partition.put(Work::Batch(batch));
        self.run();
    }

    /// Takes `most` messages of a subscription for good, and gives their bytes.
    fn take(&mut self, name: &str, most: u64) -> Vec<Vec<u8>> {
        self.links += 1;
        let link = LinkId { connection: HERE, link: self.links };
        let path = format!("t/Subscriptions/{name}").into();
        let (namespace, mode) = (NamespaceId(0), ReceiveMode::ReceiveAndDelete);
        self.give(vec![Command::AttachReceiver { link, namespace, path, mode }]);
        self.heard.clear();
        self.give(vec![Command::Credit { link, limit: most, drain: true }]);
        self.give(vec![Command::Detach { link }]);
        let delivered = self.heard.drain(..).filter_map(|outgoing| match outgoing {
            Outgoing::Deliver(sent) => Some(sent.place.read().unwrap()),
            _ => None,
        });
        delivered.collect()
    }
}

fn segments(memory: &Memory) -> usize {
    memory.list().unwrap().iter().filter(|name| name.ends_with(".segment")).count()
}

fn color(color: &str) -> Filter {
    Filter::Sql(Sql { expression: format!("color = '{color}'").into(), parameters: Vec::new() })
}

#[test]
fn a_shared_body_is_kept_and_moved_until_its_last_copy_is_gone() {
    let memory = Memory::new();
    let names = [("a", Filter::True), ("b", Filter::True), ("c", Filter::True)];
    let mut rig = Rig::with_topic(&memory, options(), &names);
    let bodies: Vec<_> = (0..300).map(|n| message(&format!("c{n}"), 1_000)).collect();
    bodies.iter().for_each(|body| rig.publish(std::slice::from_ref(body)));
    let full = segments(&memory);
    assert!(full > 10 && full < 20, "{full} segments: one body for three copies");
    assert_eq!((rig.take("a", 300).len(), rig.take("c", 300).len()), (300, 300));
    rig.rest(100);
    assert!(segments(&memory) + 3 > full, "the copies of the third are alive");
    assert_eq!(rig.take("b", 290).len(), 290);
    rig.rest(200);
    assert!(segments(&memory) <= 4, "{} segments are left", segments(&memory));
    drop(rig);
    let mut again = Rig::open(&memory, options(), Time(2_000_000));
    assert_eq!(again.take("b", 99), bodies[290..]);
    again.rest(200);
    assert!(segments(&memory) <= 2, "{} segments are left", segments(&memory));
}

#[test]
fn a_scheduled_message_is_read_back_for_the_rules() {
    // S-49: one that is too large for the cache.
    let memory = Memory::new();
    let large = Options { filling: Filling::Never, ..Options::new(11) };
    let mut rig = Rig::with_topic(&memory, large, &[("red", color("red")), ("blue", color("blue"))]);
    let (small, big) = (message("blue", 10), message("red", 300_000));
    rig.schedule(&small, Span::minutes(1));
    rig.schedule(&big, Span::minutes(1));
    rig.now.0 += Span::minutes(1).0 as i64;
    rig.rest(2);
    assert_eq!(rig.take("blue", 9), [small]);
    assert_eq!(rig.take("red", 9), [big]);
}

#[test]
fn a_move_of_time_waits_for_what_the_rules_want_to_read() {
    let memory = Memory::new();
    let large = Options { filling: Filling::Never, ..Options::new(11) };
    let mut rig = Rig::with_topic(&memory, large, &[("red", color("red"))]);
    let bodies: Vec<_> = [10, 300_000, 20].into_iter().map(|length| message("red", length)).collect();
    for (minutes, body) in [3, 1, 2].into_iter().zip(&bodies) {
        rig.schedule(body, Span::minutes(minutes));
    }
    let request = RequestId { connection: HERE, request: 9 };
    rig.heard.clear();
    rig.give(vec![Command::Advance { request, namespace: NamespaceId(0), by: Span::minutes(10) }]);
    let Some(Outgoing::Answered { answer: Ok(Answer::Advanced(advanced)), .. }) = rig.heard.pop() else {
        panic!("time was moved")
    };
    let minutes: Vec<_> = advanced.events.iter().map(|event| (event.at.0 - 1_000_000) / 60_000).collect();
    assert_eq!(minutes, [1, 2, 3]);
    assert_eq!(rig.take("red", 9), [bodies[1].clone(), bodies[2].clone(), bodies[0].clone()]);
}

#[test]
fn what_becomes_more_than_an_append_holds_becomes_several() {
    let memory = Memory::new();
    let large = Options { filling: Filling::Never, ..Options::new(11) };
    let names: Vec<_> = (0..500).map(|n| format!("s{n}")).collect();
    let subscriptions: Vec<_> = names.iter().map(|name| (&**name, Filter::True)).collect();
    let mut rig = Rig::with_topic(&memory, large.clone(), &subscriptions);
    // Every other one keeps its messages for a day only, so that the records have something to say.
    for name in names.iter().step_by(2) {
        let default_time_to_live = Span::minutes(24 * 60);
        let settings = SubscriptionSettings { default_time_to_live, ..SubscriptionSettings::default() };
        rig.manage(Task::UpdateSubscription { topic: "t".into(), name: (**name).into(), settings });
    }
    // One batch: 3,000 small messages, one and a half million copies, eighteen megabytes of records.
    let bodies = vec![message("x", 1); 3_000];
    rig.publish(&bodies);
    let accepted = rig.heard.iter().map(|outgoing| match outgoing {
        Outgoing::Accepted { first, last, .. } => last - first + 1,
        _ => 0,
    });
    assert_eq!(accepted.sum::<u32>(), 3_000);
    drop(rig);
    let again = Rig::open(&memory, large, Time(2_000_000));
    let active = again.partition.look(|partition| {
        partition.broker().durable().queues().map(|(_, queue)| queue.counts.active).collect::<Vec<_>>()
    });
    let active = active.into_iter();
    assert_eq!(active.sum::<u64>(), 1_500_000);
}
