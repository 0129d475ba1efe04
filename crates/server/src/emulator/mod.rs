//! The official emulator's `Config.json` (H-124), `//` comments included, its limits lifted (H-125). Its one namespace is
//! ours called `default`, so that every host name reaches it.

mod file;

use crate::config::Error;
use crate::correlation::correlation_of;
use crate::definition::{DEFAULT_NAMESPACE, Declared, Definition, Queue, Subscription, Topic};
use crate::json_lines::Lines;
use broker::topic::rule::{Correlation, Filter, Kind, Rule, Sql, Typed};
use broker::topic::settings::{SubscriptionSettings, TopicSettings};
use broker::topic::subscription::check_name;
use broker::{QueueSettings, Refusal, Span};
use file::{
    CorrelationTable, File, FilterType, Lasting, QueueProperties, QueueTable, RuleTable, SqlTable,
    SubscriptionProperties, SubscriptionTable, TopicProperties, TopicTable,
};
use std::path::Path;

pub fn read(path: &Path) -> Result<Definition, Error> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| Error::Unreadable { path: path.to_owned(), source })?;
    parse(&text).map_err(|(line, what)| Error::Line { path: path.to_owned(), line, what })
}

/// What a server has after its first start if nobody has configured anything: what the emulator comes with, so that the
/// samples of the SDKs run.
pub fn first_start() -> Definition {
    parse(include_str!("first_start.json")).expect("a test reads it")
}

/// A complaint about the value at a path of the file.
struct Mistake {
    at: String,
    what: String,
}

fn mistake(at: impl Into<String>, what: impl Into<String>) -> Mistake {
    Mistake { at: at.into(), what: what.into() }
}

/// A refusal, told of the property that it names, else of the whole.
fn refused(at: &str, who: &str, refusal: &Refusal) -> Mistake {
    let at = match refusal {
        Refusal::InvalidName { .. } => format!("{at}/Name"),
        Refusal::InvalidSetting { property, .. } => format!("{at}/Properties/{property}"),
        _ => at.to_owned(),
    };
    mistake(at, format!("{who}: {refusal}"))
}

fn parse(text: &str) -> Result<Definition, (usize, String)> {
    // Some editors begin a file with a mark of its encoding.
    let text = without_comments(text.strip_prefix('\u{feff}').unwrap_or(text));
    let file: File = serde_json::from_str(&text).map_err(|error| {
        let what = error.to_string();
        let what = what.split(" at line ").next().unwrap_or_default().to_owned();
        (error.line(), what)
    })?;
    let lines = Lines::of(&text);
    read_whole(&file, &lines).map_err(|Mistake { at, what }| (lines.at(&at), what))
}

fn read_whole(file: &File, lines: &Lines) -> Result<Definition, Mistake> {
    const NAMESPACES: &str = "/UserConfig/Namespaces";
    let [namespace] = &file.user_config.namespaces[..] else {
        return Err(mistake(NAMESPACES, "there must be exactly one namespace"));
    };
    let mut definition = Definition::named(DEFAULT_NAMESPACE);
    let mut taken = Taken::default();
    for (nth, queue) in namespace.queues.iter().flatten().enumerate() {
        let at = format!("{NAMESPACES}/0/Queues/{nth}");
        taken.take("queue", &queue.name, &at)?;
        let settings = queue.settings();
        let refused = |refusal| refused(&at, &format!("queue `{}`", queue.name), &refusal);
        broker::check_path(&queue.name).map_err(refused)?;
        settings.check().map_err(refused)?;
        definition.queues.push(Queue {
            path: queue.name.as_str().into(),
            settings,
            declared: declared(&at, lines),
        });
    }
    for (nth, topic) in namespace.topics.iter().flatten().enumerate() {
        let at = format!("{NAMESPACES}/0/Topics/{nth}");
        taken.take("topic", &topic.name, &at)?;
        definition.topics.push(topic.read(&at, lines)?);
    }
    Ok(definition)
}

fn declared(at: &str, lines: &Lines) -> Declared {
    let property = |name: &str| Some(lines.at(&format!("{at}/Properties/{name}")));
    Declared {
        at: lines.at(&format!("{at}/Name")),
        forward_to: property("ForwardTo"),
        forward_dead_letters_to: property("ForwardDeadLetteredMessagesTo"),
    }
}

/// Names are taken once, whatever their case.
#[derive(Default)]
struct Taken(Vec<String>);

impl Taken {
    fn take(&mut self, kind: &str, name: &str, at: &str) -> Result<(), Mistake> {
        let folded = name.to_lowercase();
        if self.0.contains(&folded) {
            return Err(mistake(format!("{at}/Name"), format!("{kind} `{name}` is declared twice")));
        }
        self.0.push(folded);
        Ok(())
    }
}

/// Blanks what stands behind `//` outside of a text, so that lines and columns stay what they are.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut in_text, mut is_escaped, mut in_comment) = (false, false, false);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\n' {
            in_comment = false;
        } else if !in_text && character == '/' && characters.peek() == Some(&'/') {
            in_comment = true;
        } else if !in_comment && character == '"' && !is_escaped {
            in_text = !in_text;
        }
        is_escaped = in_text && character == '\\' && !is_escaped;
        out.push(if in_comment { ' ' } else { character });
    }
    out
}

/// What the emulator does unless told otherwise.
const TIME_TO_LIVE: Span = Span::minutes(60);
const DUPLICATE_WINDOW: Span = Span::seconds(20);
const MAX_DELIVERY_COUNT: u32 = 3;

/// An empty text is none.
fn given(text: &Option<String>) -> Option<Box<str>> {
    text.as_deref().filter(|text| !text.is_empty()).map(Into::into)
}

fn span(value: Option<Lasting>, usual: Span) -> Span {
    value.map_or(usual, |Lasting(span)| span)
}

impl QueueTable {
    fn settings(&self) -> QueueSettings {
        let unsaid = QueueProperties::default();
        let (said, usual) = (self.properties.as_ref().unwrap_or(&unsaid), QueueSettings::default());
        QueueSettings {
            lock_duration: span(said.lock_duration, usual.lock_duration),
            requires_duplicate_detection: said.requires_duplicate_detection.unwrap_or(false),
            duplicate_window: span(said.duplicate_detection_history_time_window, DUPLICATE_WINDOW),
            requires_session: said.requires_session.unwrap_or(false),
            default_time_to_live: span(said.default_message_time_to_live, TIME_TO_LIVE),
            dead_letter_on_expiration: said.dead_lettering_on_message_expiration.unwrap_or(false),
            max_delivery_count: said.max_delivery_count.unwrap_or(MAX_DELIVERY_COUNT),
            forward_to: given(&said.forward_to),
            forward_dead_letters_to: given(&said.forward_dead_lettered_messages_to),
            ..usual
        }
    }
}

impl TopicTable {
    fn read(&self, at: &str, lines: &Lines) -> Result<Topic, Mistake> {
        let unsaid = TopicProperties::default();
        let said = self.properties.as_ref().unwrap_or(&unsaid);
        let settings = TopicSettings {
            default_time_to_live: span(said.default_message_time_to_live, TIME_TO_LIVE),
            requires_duplicate_detection: said.requires_duplicate_detection.unwrap_or(false),
            duplicate_window: span(said.duplicate_detection_history_time_window, DUPLICATE_WINDOW),
            ..TopicSettings::default()
        };
        let refused = |refusal| refused(at, &format!("topic `{}`", self.name), &refusal);
        broker::check_path(&self.name).map_err(refused)?;
        settings.check().map_err(refused)?;
        let (mut subscriptions, mut taken) = (Vec::new(), Taken::default());
        for (nth, subscription) in self.subscriptions.iter().flatten().enumerate() {
            let at = format!("{at}/Subscriptions/{nth}");
            taken.take("subscription", &subscription.name, &at)?;
            subscriptions.push(subscription.read(&at, lines)?);
        }
        let path = self.name.as_str().into();
        Ok(Topic { path, settings, subscriptions, declared: declared(at, lines) })
    }
}

impl SubscriptionTable {
    fn read(&self, at: &str, lines: &Lines) -> Result<Subscription, Mistake> {
        let unsaid = SubscriptionProperties::default();
        let (said, usual) = (self.properties.as_ref().unwrap_or(&unsaid), SubscriptionSettings::default());
        let settings = SubscriptionSettings {
            lock_duration: span(said.lock_duration, usual.lock_duration),
            requires_session: said.requires_session.unwrap_or(false),
            default_time_to_live: span(said.default_message_time_to_live, TIME_TO_LIVE),
            dead_letter_on_expiration: said.dead_lettering_on_message_expiration.unwrap_or(false),
            max_delivery_count: said.max_delivery_count.unwrap_or(MAX_DELIVERY_COUNT),
            forward_to: given(&said.forward_to),
            forward_dead_letters_to: given(&said.forward_dead_lettered_messages_to),
            ..usual
        };
        let refused = |refusal| refused(at, &format!("subscription `{}`", self.name), &refusal);
        check_name(&self.name).map_err(refused)?;
        settings.check().map_err(refused)?;
        let (mut rules, mut taken) = (Vec::new(), Taken::default());
        for (nth, rule) in self.rules.iter().flatten().enumerate() {
            let at = format!("{at}/Rules/{nth}");
            taken.take("rule", &rule.name, &at)?;
            rules.push(rule.read(&at)?);
        }
        let name = self.name.as_str().into();
        Ok(Subscription { name, settings, rules, declared: declared(at, lines) })
    }
}

impl RuleTable {
    fn read(&self, at: &str) -> Result<Rule, Mistake> {
        let sql = |table: &SqlTable| Sql {
            expression: table.sql_expression.as_str().into(),
            parameters: Vec::new(),
        };
        let properties = &self.properties;
        let filter = match (&properties.filter_type, &properties.correlation_filter, &properties.sql_filter) {
            (FilterType::Sql, _, Some(table)) => Filter::Sql(sql(table)),
            (FilterType::Correlation, Some(table), _) => {
                let at = format!("{at}/Properties/CorrelationFilter/Properties");
                Filter::Correlation(table.read(&self.name, &at)?)
            }
            _ => {
                let what = format!("rule `{}` has no filter of the type that it names", self.name);
                return Err(mistake(format!("{at}/Properties/FilterType"), what));
            }
        };
        let action = properties.action.as_ref().map(sql);
        let rule = Rule { name: self.name.as_str().into(), filter, action };
        rule.check().map_err(|refusal| refused(at, &format!("rule `{}`", self.name), &refusal))?;
        Ok(rule)
    }
}

impl CorrelationTable {
    fn read(&self, rule: &str, at: &str) -> Result<Correlation, Mistake> {
        use serde_json::Value;
        let value = |(key, value): (&String, &Value)| {
            let (kind, text) = match value {
                Value::String(text) => (Kind::String, text.clone()),
                Value::Bool(truth) => (Kind::Boolean, truth.to_string()),
                Value::Number(number) if number.is_i64() => (Kind::Long, number.to_string()),
                Value::Number(number) => (Kind::Double, number.to_string()),
                Value::Null | Value::Array(_) | Value::Object(_) => {
                    let what = format!("the property `{key}` of rule `{rule}` is not one value");
                    return Err(mistake(format!("{at}/{key}"), what));
                }
            };
            Ok((key.as_str().into(), Typed { kind, text: text.into() }))
        };
        let properties = self.properties.iter().flatten().map(value).collect::<Result<_, _>>()?;
        Ok(correlation_of!(self, properties))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the shape of the emulator's own sample: comments, empty texts, rules of both kinds.
    const SAMPLE: &str = r#"{
  // Everything below is read at a start.
  "UserConfig": {
    "Namespaces": [
      {
        "Name": "sbemulatorns", // the only name
        "Queues": [
          {
            "Name": "queue.1",
            "Properties": {
              "DeadLetteringOnMessageExpiration": false,
              "DefaultMessageTimeToLive": "PT1H",
              "DuplicateDetectionHistoryTimeWindow": "PT20S",
              "ForwardDeadLetteredMessagesTo": "",
              "ForwardTo": "",
              "LockDuration": "PT1M",
              "MaxDeliveryCount": 3,
              "RequiresDuplicateDetection": false,
              "RequiresSession": false
            }
          }
        ],
        "Topics": [
          {
            "Name": "topic.1",
            "Properties": { "DefaultMessageTimeToLive": "PT1H" },
            "Subscriptions": [
              {
                "Name": "subscription.1",
                "Properties": { "LockDuration": "PT1M", "ForwardTo": "queue.1" },
                "Rules": [
                  { "Name": "by-type", "Properties": { "FilterType": "Correlation", "CorrelationFilter": {
                      "ContentType": "application/json", "Label": "http://a//b", "Properties": { "n": 1 } } } },
                  { "Name": "by-text", "Properties": { "FilterType": "Sql",
                      "SqlFilter": { "SqlExpression": "sys.Label = '//'" }, "Action": { "SqlExpression": "SET a = 1" } } }
                ]
              }
            ]
          }
        ]
      }
    ],
    "Logging": { "Type": "File" }
  }
}"#;

    // H-124
    #[test]
    fn a_file_in_the_shape_of_the_sample_is_read_whole() {
        let definition = parse(SAMPLE).expect("accepted");
        let Queue { path, settings, declared } = &definition.queues[0];
        assert_eq!((&**path, settings.max_delivery_count, &settings.forward_to), ("queue.1", 3, &None));
        assert_eq!((declared.at, declared.forward_to), (9, Some(15)));
        let subscription = &definition.topics[0].subscriptions[0];
        assert_eq!(subscription.settings.forward_to.as_deref(), Some("queue.1"));
        let Filter::Correlation(filter) = &subscription.rules[0].filter else { panic!("correlation") };
        assert_eq!(filter.label.as_deref(), Some("http://a//b"));
        assert_eq!(filter.properties[0].1, Typed { kind: Kind::Long, text: "1".into() });
        let Filter::Sql(filter) = &subscription.rules[1].filter else { panic!("sql") };
        assert_eq!(&*filter.expression, "sys.Label = '//'");
        assert!(subscription.rules[1].action.is_some());
    }

    #[test]
    fn the_first_start_makes_what_the_emulator_comes_with() {
        let made = first_start();
        let queue = &made.queues[0];
        assert_eq!((made.queues.len(), made.topics.len(), &*queue.path), (1, 1, "queue.1"));
        assert_eq!(queue.settings.max_delivery_count, 3);
        assert_eq!(queue.settings.default_time_to_live, Span::minutes(60));
        let rules = |nth: usize| made.topics[0].subscriptions[nth].rules.len();
        assert_eq!([0, 1, 2, 3].map(rules), [1, 1, 0, 1]);
    }

    // H-124
    #[test]
    fn a_file_laid_out_as_the_emulator_s_own_is_read_whole() {
        let file = include_str!("../../../../tests/sdk/python/emulator.config.json");
        let definition = parse(file).expect("accepted");
        assert_eq!((definition.queues.len(), definition.topics.len()), (1, 1));
        let subscriptions = definition.topics[0].subscriptions.iter();
        let rules: Vec<_> = subscriptions.map(|each| (&*each.name, each.rules.len())).collect();
        assert_eq!(
            rules,
            [("subscription.1", 1), ("subscription.2", 1), ("subscription.3", 0), ("subscription.4", 1)]
        );
    }

    // H-124
    #[test]
    fn what_is_null_is_not_there_and_a_mark_of_the_encoding_is_passed_over() {
        let all = serde_json::json!({ "$schema": "x", "UserConfig": { "Logging": null, "Namespaces": [ {
            "Name": null,
            "Queues": [ { "Name": "q", "Properties": {
                "DeadLetteringOnMessageExpiration": null, "DefaultMessageTimeToLive": null,
                "DuplicateDetectionHistoryTimeWindow": null, "ForwardDeadLetteredMessagesTo": null, "ForwardTo": null,
                "LockDuration": null, "MaxDeliveryCount": null, "RequiresDuplicateDetection": null, "RequiresSession": null } } ],
            "Topics": [ { "Name": "t", "Properties": null, "Subscriptions": [ {
                "Name": "s", "Properties": null, "Rules": null } ] } ] } ] } });
        let definition = parse(&format!("\u{feff}{all}")).expect("accepted");
        let bare = r#"{"UserConfig":{"Namespaces":[{"Queues":[{"Name":"q"}],"Topics":[{"Name":"t","Subscriptions":[{"Name":"s"}]}]}]}}"#;
        let bare = parse(bare).expect("accepted");
        assert_eq!(definition.queues[0].settings, bare.queues[0].settings);
        assert_eq!(definition.topics[0].subscriptions[0].settings, bare.topics[0].subscriptions[0].settings);
        assert!(definition.topics[0].subscriptions[0].rules.is_empty());
        assert!(parse(r#"{"UserConfig":{"Namespaces":[{"Name":"n","Queues":null,"Topics":null}]}}"#).is_ok());
    }

    fn with(queue: &str, topic: &str, subscription: &str) -> Definition {
        let text = format!(
            r#"{{"UserConfig":{{"Namespaces":[{{"Queues":[{{"Name":"q","Properties":{{{queue}}}}}],"Topics":[{{"Name":"t",
            "Properties":{{{topic}}},"Subscriptions":[{{"Name":"s","Properties":{{{subscription}}}}}]}}]}}]}}}}"#
        );
        parse(&text).expect("accepted")
    }

    // H-124
    #[test]
    fn what_is_not_said_is_what_the_emulator_does() {
        let bare = with("", "", "");
        let queue = QueueSettings {
            duplicate_window: Span::seconds(20),
            default_time_to_live: Span::minutes(60),
            max_delivery_count: 3,
            ..QueueSettings::default()
        };
        assert_eq!(bare.queues[0].settings, queue);
        let topic = TopicSettings {
            duplicate_window: Span::seconds(20),
            default_time_to_live: Span::minutes(60),
            ..TopicSettings::default()
        };
        assert_eq!(bare.topics[0].settings, topic);
        let subscription = SubscriptionSettings {
            default_time_to_live: Span::minutes(60),
            max_delivery_count: 3,
            ..SubscriptionSettings::default()
        };
        assert_eq!(bare.topics[0].subscriptions[0].settings, subscription);
    }

    // H-124
    #[test]
    fn each_property_is_taken_for_itself() {
        let bare = with("", "", "");
        type OfQueue = fn(&mut QueueSettings);
        let of_queue: [(&str, OfQueue); 9] = [
            (r#""LockDuration":"PT30S""#, |each| each.lock_duration = Span::seconds(30)),
            (r#""RequiresDuplicateDetection":true"#, |each| each.requires_duplicate_detection = true),
            (r#""DuplicateDetectionHistoryTimeWindow":"PT5M""#, |each| {
                each.duplicate_window = Span::minutes(5);
            }),
            (r#""RequiresSession":true"#, |each| each.requires_session = true),
            (r#""DefaultMessageTimeToLive":"PT7M""#, |each| each.default_time_to_live = Span::minutes(7)),
            (r#""DeadLetteringOnMessageExpiration":true"#, |each| each.dead_letter_on_expiration = true),
            (r#""MaxDeliveryCount":7"#, |each| each.max_delivery_count = 7),
            (r#""ForwardTo":"other""#, |each| each.forward_to = Some("other".into())),
            (r#""ForwardDeadLetteredMessagesTo":"other""#, |each| {
                each.forward_dead_letters_to = Some("other".into());
            }),
        ];
        for (said, change) in of_queue {
            let mut expected = bare.queues[0].settings.clone();
            change(&mut expected);
            assert_eq!(with(said, "", "").queues[0].settings, expected, "{said}");
        }
        type OfTopic = fn(&mut TopicSettings);
        let of_topic: [(&str, OfTopic); 3] = [
            (r#""RequiresDuplicateDetection":true"#, |each| each.requires_duplicate_detection = true),
            (r#""DuplicateDetectionHistoryTimeWindow":"PT5M""#, |each| {
                each.duplicate_window = Span::minutes(5);
            }),
            (r#""DefaultMessageTimeToLive":"PT7M""#, |each| each.default_time_to_live = Span::minutes(7)),
        ];
        for (said, change) in of_topic {
            let mut expected = bare.topics[0].settings.clone();
            change(&mut expected);
            assert_eq!(with("", said, "").topics[0].settings, expected, "{said}");
        }
        type OfSubscription = fn(&mut SubscriptionSettings);
        let of_subscription: [(&str, OfSubscription); 7] = [
            (r#""LockDuration":"PT30S""#, |each| each.lock_duration = Span::seconds(30)),
            (r#""RequiresSession":true"#, |each| each.requires_session = true),
            (r#""DefaultMessageTimeToLive":"PT7M""#, |each| each.default_time_to_live = Span::minutes(7)),
            (r#""DeadLetteringOnMessageExpiration":true"#, |each| each.dead_letter_on_expiration = true),
            (r#""MaxDeliveryCount":7"#, |each| each.max_delivery_count = 7),
            (r#""ForwardTo":"other""#, |each| each.forward_to = Some("other".into())),
            (r#""ForwardDeadLetteredMessagesTo":"other""#, |each| {
                each.forward_dead_letters_to = Some("other".into());
            }),
        ];
        for (said, change) in of_subscription {
            let mut expected = bare.topics[0].subscriptions[0].settings.clone();
            change(&mut expected);
            assert_eq!(with("", "", said).topics[0].subscriptions[0].settings, expected, "{said}");
        }
    }

    // H-125
    #[test]
    fn the_emulator_s_limits_are_lifted() {
        let long = SAMPLE.replacen("PT1H", "P14D", 1).replacen(": 3", ": 500", 1);
        let definition = parse(&long).expect("accepted");
        assert_eq!(definition.queues[0].settings.default_time_to_live, Span::minutes(14 * 24 * 60));
        assert_eq!(definition.queues[0].settings.max_delivery_count, 500);
    }

    #[test]
    fn each_mistake_is_named_with_its_line() {
        for (wrong, right, line, named) in [
            ("\"PT20S\"", "\"20 s\"", 13, "20 s"),
            (": 3,", ": \"3\",", 17, "string"),
            ("\"Sql\"", "\"Xml\"", 34, "Xml"),
            ("\"Topics\": [", "\"Topics\": [,", 23, ""),
            ("\"queue.1\"", "\"queue 1\"", 9, "`queue 1`"),
            ("\"LockDuration\": \"PT1M\",\n", "\"LockDuration\": \"PT1H\",\n", 16, "LockDuration"),
            ("\"topic.1\"", "\"Queue.1\"", 25, "declared twice"),
            ("\"topic.1\"", "\"topic/\"", 25, "`topic/`"),
            ("\"subscription.1\"", "\"a/b\"", 29, "`a/b`"),
            ("\"by-type\"", "\"by*type\"", 32, "`by*type`"),
            ("\"FilterType\": \"Sql\"", "\"FilterType\": \"Correlation\"", 34, "`by-text` has no filter"),
            ("{ \"n\": 1 }", "{ \"n\": [] }", 33, "`n` of rule `by-type`"),
            ("\"Queues\": [", "\"Queues\": {},\n\"Other\": [", 7, "invalid type"),
            ("\"Name\": \"queue.1\",", "", 21, "missing field `Name`"),
            ("\"Logging\"", "// \"Logging\"", 44, ""),
            // H-124: what the emulator does not have is a typing error.
            ("\"UserConfig\"", "\"Userconfig\"", 3, "unknown field `Userconfig`"),
            ("\"Queues\"", "\"Queue\"", 7, "unknown field `Queue`"),
            ("\"MaxDeliveryCount\"", "\"MaxDeliverycount\"", 17, "unknown field `MaxDeliverycount`"),
            ("{ \"DefaultMessageTimeToLive\"", "{ \"LockDuration\"", 26, "unknown field `LockDuration`"),
            ("\"Subscriptions\"", "\"Rules\"", 27, "unknown field `Rules`"),
            (
                "{ \"LockDuration\"",
                "{ \"RequiresDuplicateDetection\"",
                30,
                "unknown field `RequiresDuplicateDetection`",
            ),
            ("\"ContentType\"", "\"Contenttype\"", 33, "unknown field `Contenttype`"),
            ("\"Action\"", "\"Actions\"", 35, "unknown field `Actions`"),
            ("\"Type\"", "\"Kind\"", 43, "unknown field `Kind`"),
            ("\"by-text\"", "\"By-Type\"", 34, "rule `By-Type` is declared twice"),
        ] {
            let (found, what) = parse(&SAMPLE.replacen(wrong, right, 1)).expect_err("refused");
            assert_eq!(found, line, "{right}: {what}");
            assert!(what.contains(named), "{what}");
        }
        let (_, what) = parse(r#"{"UserConfig":{"Namespaces":[]}}"#).expect_err("refused");
        assert!(what.contains("one namespace"), "{what}");
    }

    #[test]
    fn a_comment_is_blanked_and_a_text_is_not() {
        assert_eq!(without_comments("a//b\n\"c//d\\\"//e\"//f"), "a   \n\"c//d\\\"//e\"   ");
    }

    #[test]
    fn a_text_whose_last_character_is_a_backslash_ends_behind_it() {
        assert_eq!(without_comments(r#""a\\"//b"#), r#""a\\"   "#);
        assert_eq!(without_comments(r#""a\\\"//b"//c"#), r#""a\\\"//b"   "#);
    }
}
