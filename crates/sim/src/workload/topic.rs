//! Topics: they, their subscriptions and the rules of those come, change, go and are looked at. The limits of a topic are
//! so small here that clients reach them.

use super::{Actor, NAMESPACE, Workload, namespace_of};
use crate::oracle::{Oracle, Question};
use crate::rules::Meaning;
use broker::topic::settings::{SubscriptionSettings, TopicSettings};
use broker::{Command, RequestId, Span, Status, Task};
use engine::Batch;

/// Topics that may exist in each partition.
pub(super) const TOPICS: [&[&str]; crate::PARTITIONS] = [&["news", "Alerts"], &["wire"]];

/// One more than a topic may have subscriptions.
const SUBSCRIPTIONS: [&str; 4] = ["all", "Some", "few", "rest"];
const RULES: [&str; 4] = ["$Default", "first", "Second", "third"];

/// The subscription whose messages are received in sessions.
const IN_SESSIONS: &str = "Some";

/// Whether a path is that of a topic.
pub(super) fn is_topic(path: &str) -> bool {
    TOPICS.iter().flat_map(|topics| topics.iter()).any(|topic| topic.eq_ignore_ascii_case(path))
}

/// Whether a path is that of a subscription that requires sessions.
pub(super) fn requires_session(path: &str) -> bool {
    let name = path.rsplit_once('/').filter(|(topic, _)| topic.contains('/')).map(|(_, name)| name);
    name.is_some_and(|name| name.eq_ignore_ascii_case(IN_SESSIONS))
}

fn path_of(topic: &str, name: &str) -> String {
    format!("{topic}/Subscriptions/{name}")
}

impl Workload {
    pub(super) fn topic(&mut self, nth: usize) -> String {
        let topic = *self.random.pick(TOPICS[nth]);
        if self.random.once_in(10) { topic.to_uppercase() } else { topic.to_owned() }
    }

    fn topic_and_name(&mut self, nth: usize) -> (String, String) {
        let topic = self.topic(nth);
        let name = *self.random.pick(&SUBSCRIPTIONS);
        (topic, if self.random.once_in(10) { name.to_lowercase() } else { name.to_owned() })
    }

    pub(super) fn subscription(&mut self, nth: usize) -> String {
        let (topic, name) = self.topic_and_name(nth);
        path_of(&topic, &name)
    }

    pub(super) fn subscription_with_sessions(&mut self, nth: usize) -> String {
        path_of(&self.topic(nth), IN_SESSIONS)
    }

    /// Where messages are sent to: a queue or a topic.
    pub(super) fn outbox(&mut self, nth: usize) -> String {
        if self.random.once_in(5) { self.topic(nth) } else { self.path(nth) }
    }

    /// The same in the first namespace.
    pub(super) fn first_outbox(&mut self, nth: usize) -> String {
        loop {
            let path = self.outbox(nth);
            if namespace_of(&path) == NAMESPACE {
                return path;
            }
        }
    }

    /// Where messages are received from: a queue or a subscription.
    pub(super) fn inbox(&mut self, nth: usize) -> String {
        if self.random.once_in(3) { self.subscription(nth) } else { self.path(nth) }
    }

    /// The first who comes makes the topics, with most of their subscriptions.
    pub(super) fn make_topics(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        for topic in TOPICS[who.nth] {
            self.create_topic(who, topic, batch, oracle);
            for name in &SUBSCRIPTIONS[..2] {
                self.subscribe(who, topic, name, batch, oracle);
            }
        }
    }

    fn manage(&self, request: RequestId, task: Task, batch: &mut Batch) {
        batch.commands.push(Command::Manage { request, namespace: NAMESPACE, task: Box::new(task) });
    }

    pub(super) fn ask_topic(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let nth = who.nth;
        match self.random.below(100) {
            0..8 => {
                let topic = self.topic(nth);
                self.create_topic(who, &topic, batch, oracle);
            }
            8..16 => self.update_topic(who, batch, oracle),
            16..18 => self.delete(who, self.topic_of(nth), batch, oracle),
            18..42 => {
                let (topic, name) = self.topic_and_name(nth);
                self.subscribe(who, &topic, &name, batch, oracle);
            }
            42..52 => self.resubscribe(who, batch, oracle),
            52..57 => self.unsubscribe(who, batch, oracle),
            57..78 => self.put_rule(who, batch, oracle),
            78..85 => self.drop_rule(who, batch, oracle),
            _ => self.look(who, batch, oracle),
        }
    }

    /// The first topic of a partition: the others stay for longer.
    fn topic_of(&self, nth: usize) -> String {
        TOPICS[nth][0].to_owned()
    }

    fn topic_settings(&mut self) -> TopicSettings {
        let usual = TopicSettings::default();
        TopicSettings {
            default_time_to_live: match self.random.below(5) {
                0 => Span::seconds(self.random.between(1, 120)),
                _ => usual.default_time_to_live,
            },
            auto_delete_on_idle: match self.random.below(6) {
                0 => Span::seconds(self.random.between(300, 400)),
                _ => usual.auto_delete_on_idle,
            },
            partitioning: self.random.once_in(6),
            requires_duplicate_detection: self.random.once_in(3),
            duplicate_window: match self.random.below(8) {
                0 => usual.duplicate_window,
                _ => Span::seconds(self.random.between(20, 120)),
            },
            status: match self.random.below(16) {
                0 => Status::SendDisabled,
                1 => Status::Disabled,
                _ => Status::Active,
            },
            ..usual
        }
    }

    fn create_topic(&mut self, who: Actor, topic: &str, batch: &mut Batch, oracle: &mut Oracle) {
        let settings = self.topic_settings();
        let request = self.request(who, topic);
        oracle.ask(request, Question::CreateTopic(topic.to_lowercase(), Box::new(settings.clone())));
        self.manage(request, Task::CreateTopic { path: topic.into(), settings, access: Vec::new() }, batch);
    }

    fn update_topic(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let topic = self.topic(who.nth);
        let mut settings = self.topic_settings();
        if let Some(queue) =
            oracle.ledger.find(&topic.to_lowercase()).map(|entity| &oracle.ledger.queues[&entity])
        {
            settings.partitioning = queue.settings.partitioning;
            settings.requires_duplicate_detection = queue.settings.requires_duplicate_detection;
        }
        let request = self.request(who, &topic);
        oracle.ask(request, Question::UpdateTopic(topic.to_lowercase(), Box::new(settings.clone())));
        self.manage(request, Task::UpdateTopic { path: topic.into(), settings, access: Vec::new() }, batch);
    }

    fn subscription_settings(&mut self, nth: usize, name: &str) -> SubscriptionSettings {
        let usual = SubscriptionSettings::default();
        let requires_session = name.eq_ignore_ascii_case(IN_SESSIONS);
        let forwards = self.random.once_in(7) && !requires_session;
        // Where dead letters go to a topic, those of its subscriptions stay: they would come round and multiply.
        let letters = nth == 0 && self.random.once_in(12);
        let own = TOPICS[nth][0];
        SubscriptionSettings {
            lock_duration: Span::seconds(self.random.between(5, 30)),
            requires_session,
            max_delivery_count: *self.random.pick(&[1, 2, 3, 10]),
            dead_letter_on_expiration: self.random.once_in(2),
            dead_letter_on_filter_exceptions: !self.random.once_in(4),
            default_time_to_live: match self.random.below(4) {
                0 => Span::seconds(self.random.between(1, 120)),
                _ => usual.default_time_to_live,
            },
            auto_delete_on_idle: match self.random.below(6) {
                0 => Span::seconds(self.random.between(300, 400)),
                _ => usual.auto_delete_on_idle,
            },
            forward_to: forwards.then(|| self.target(own, true)),
            forward_dead_letters_to: letters.then(|| self.target(own, false)),
            status: if self.random.once_in(16) { Status::ReceiveDisabled } else { Status::Active },
            ..usual
        }
    }

    fn subscribe(&mut self, who: Actor, topic: &str, name: &str, batch: &mut Batch, oracle: &mut Oracle) {
        let settings = self.subscription_settings(who.nth, name);
        let first = (!self.random.once_in(3)).then(|| {
            let name = *self.random.pick(&RULES);
            (name.to_owned(), Meaning::draw(&mut self.random))
        });
        let rule = first.as_ref().map(|(name, meaning)| meaning.rule(name));
        let path = path_of(topic, name);
        let request = self.request(who, &path);
        oracle.ask(request, Question::Subscribe(path.to_lowercase(), Box::new(settings.clone()), first));
        let (topic, name) = (topic.into(), name.into());
        self.manage(request, Task::CreateSubscription { topic, name, settings, rule }, batch);
    }

    fn resubscribe(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let (topic, name) = self.topic_and_name(who.nth);
        let path = path_of(&topic, &name);
        let mut settings = self.subscription_settings(who.nth, &name);
        // What is fixed at creation is sometimes forgotten (S-260).
        settings.requires_session ^= self.random.once_in(30);
        let request = self.request(who, &path);
        oracle.ask(request, Question::Resubscribe(path.to_lowercase(), Box::new(settings.clone())));
        let (topic, name) = (topic.into(), name.into());
        self.manage(request, Task::UpdateSubscription { topic, name, settings }, batch);
    }

    fn unsubscribe(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let (topic, name) = self.topic_and_name(who.nth);
        let path = path_of(&topic, &name);
        let request = self.request(who, &path);
        oracle.ask(request, Question::Unsubscribe(path.to_lowercase()));
        let (topic, name) = (topic.into(), name.into());
        self.manage(request, Task::DeleteSubscription { topic, name }, batch);
    }

    fn put_rule(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let (topic, subscription) = self.topic_and_name(who.nth);
        let path = path_of(&topic, &subscription);
        let name = *self.random.pick(&RULES);
        let meaning = Meaning::draw(&mut self.random);
        let rule = meaning.rule(name);
        let request = self.request(who, &path);
        oracle.ask(request, Question::PutRule(path.to_lowercase(), name.to_lowercase(), meaning));
        let (topic, subscription) = (topic.into(), subscription.into());
        let task = match self.random.once_in(3) {
            true => Task::UpdateRule { topic, subscription, rule },
            false => Task::CreateRule { topic, subscription, rule },
        };
        self.manage(request, task, batch);
    }

    fn drop_rule(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let (topic, subscription) = self.topic_and_name(who.nth);
        let path = path_of(&topic, &subscription);
        let name = *self.random.pick(&RULES);
        let request = self.request(who, &path);
        oracle.ask(request, Question::DropRule(path.to_lowercase(), name.to_lowercase()));
        let (topic, subscription, name) = (topic.into(), subscription.into(), name.into());
        self.manage(request, Task::DeleteRule { topic, subscription, name }, batch);
    }

    /// Looks at what there is.
    fn look(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let (topic, name) = self.topic_and_name(who.nth);
        let path = path_of(&topic, &name);
        let folded = path.to_lowercase();
        let request = self.request(who, &path);
        let (skip, top) = (self.random.below(2) as usize, self.random.between(1, 5) as usize);
        let (topic, subscription): (Box<str>, Box<str>) = (topic.into(), name.into());
        let (question, task) = match self.random.below(6) {
            0 => (Question::Topics(skip, top), Task::ListTopics { skip, top }),
            1 => {
                let question = Question::Subscriptions(topic.to_lowercase(), skip, top);
                (question, Task::ListSubscriptions { topic, skip, top })
            }
            2 => (Question::Rules(folded, skip, top), Task::ListRules { topic, subscription, skip, top }),
            3 => {
                let name = *self.random.pick(&RULES);
                let question = Question::Rule(folded, name.to_lowercase());
                (question, Task::DescribeRule { topic, subscription, name: name.into() })
            }
            4 => {
                let name = subscription;
                (Question::Describe(folded, None), Task::DescribeSubscription { topic, name })
            }
            _ => {
                let question = Question::Describe(topic.to_lowercase(), None);
                (question, Task::Describe { path: topic })
            }
        };
        oracle.ask(request, question);
        self.manage(request, task, batch);
    }
}
