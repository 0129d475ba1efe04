//! The records of management: what was created, changed or named, other than by messages. Their kinds begin at 32.

use super::rule::{Correlation, Filter, Kind, Rule, Sql, Typed};
use super::settings::{SubscriptionSettings, TopicSettings};
use crate::access::AccessRule;
use crate::ids::{EntityId, NamespaceId};
use crate::record::{Field, Fields, Unreadable, codes, or_zero, records, structure};
use crate::settings::QueueSettings;
use crate::time::LocalTime;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    QueueUpdated {
        entity: EntityId,
        settings: Box<QueueSettings>,
    },
    TopicCreated {
        entity: EntityId,
        namespace: NamespaceId,
        path: Box<str>,
        settings: Box<TopicSettings>,
    },
    TopicUpdated {
        entity: EntityId,
        settings: Box<TopicSettings>,
    },
    SubscriptionCreated {
        entity: EntityId,
        topic: EntityId,
        name: Box<str>,
        settings: Box<SubscriptionSettings>,
    },
    SubscriptionUpdated {
        entity: EntityId,
        settings: Box<SubscriptionSettings>,
    },
    /// A rule is there from now on, whether it was before or not.
    RulePut {
        subscription: EntityId,
        rule: Box<Rule>,
    },
    RuleRemoved {
        subscription: EntityId,
        name: Box<str>,
    },
    /// All authorization rules of an entity; none is none.
    AccessChanged {
        entity: EntityId,
        rules: Vec<AccessRule>,
    },
    /// A namespace has its number for good.
    NamespaceNamed {
        namespace: NamespaceId,
        name: Box<str>,
    },
    /// The time of a namespace was moved to `to`, when the owner's was that of the batch. From then on both run alike.
    ClockMoved {
        namespace: NamespaceId,
        to: LocalTime,
    },
}

records! { Change {
    32 QueueUpdated { entity, settings }
    33 TopicCreated { entity, namespace, path, settings }
    34 TopicUpdated { entity, settings }
    35 SubscriptionCreated { entity, topic, name, settings }
    36 SubscriptionUpdated { entity, settings }
    37 RulePut { subscription, rule }
    38 RuleRemoved { subscription, name }
    39 AccessChanged { entity, rules }
    40 NamespaceNamed { namespace, name }
    41 ClockMoved { namespace, to }
} }

structure! { TopicSettings {
    default_time_to_live, max_size_megabytes, duplicate_window, auto_delete_on_idle, max_message_kilobytes as or_zero,
    status;
    flags requires_duplicate_detection, batched_operations, filtering_before_publishing, partitioning,
        subscription_partitioning, express, support_ordering;
    user_metadata
} }
structure! { SubscriptionSettings {
    lock_duration, default_time_to_live, auto_delete_on_idle, max_delivery_count, status;
    flags requires_session, dead_letter_on_expiration, dead_letter_on_filter_exceptions, batched_operations;
    forward_to, forward_dead_letters_to, user_metadata
} }
structure! { Rule { name, filter, action } }
structure! { Sql { expression, parameters } }
structure! { Correlation {
    correlation_id, message_id, to, reply_to, label, session_id, reply_to_session_id, content_type, properties
} }
structure! { Typed { kind, text } }
codes! { Kind, "kind of a value": 0 String, 1 Int, 2 Long, 3 Boolean, 4 Double, 5 DateTime, 6 Duration }

impl Field for Filter {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Filter::True => out.push(0),
            Filter::False => out.push(1),
            Filter::Sql(sql) => {
                out.push(2);
                sql.put(out);
            }
            Filter::Correlation(correlation) => {
                out.push(3);
                correlation.put(out);
            }
        }
    }

    fn get(fields: &mut Fields<'_>) -> Result<Filter, Unreadable> {
        Ok(match u8::get(fields)? {
            0 => Filter::True,
            1 => Filter::False,
            2 => Filter::Sql(Field::get(fields)?),
            3 => Filter::Correlation(Field::get(fields)?),
            _ => return Err(Unreadable::BadField("kind of a filter")),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::access::Key;
    use crate::record::Record;
    use crate::settings::Status;

    /// One change of each kind and shape, as records.
    pub(crate) fn samples() -> Vec<Record> {
        let (entity, namespace) = (EntityId(7), NamespaceId(2));
        let topic = Box::new(TopicSettings {
            support_ordering: Some(true),
            partitioning: true,
            status: Status::SendDisabled,
            user_metadata: Some("m".into()),
            max_message_kilobytes: Some(2_048),
            ..TopicSettings::default()
        });
        let subscription = Box::new(SubscriptionSettings {
            forward_to: Some("q".into()),
            dead_letter_on_filter_exceptions: false,
            ..SubscriptionSettings::default()
        });
        let every_kind = [
            Kind::String,
            Kind::Int,
            Kind::Long,
            Kind::Boolean,
            Kind::Double,
            Kind::DateTime,
            Kind::Duration,
        ];
        let values: Vec<(Box<str>, Typed)> =
            every_kind.into_iter().map(|kind| ("n".into(), Typed { kind, text: "1".into() })).collect();
        let sql = Sql { expression: "a = @a".into(), parameters: values.clone() };
        let correlation = Correlation {
            label: Some("".into()),
            content_type: Some("c".into()),
            properties: values,
            ..Correlation::default()
        };
        let rule = |filter, action| Change::RulePut {
            subscription: entity,
            rule: Box::new(Rule { name: "r".into(), filter, action }),
        };
        let access = AccessRule {
            name: "a".into(),
            primary: Key::chosen("p"),
            secondary: Key::chosen("s"),
            listen: true,
            send: false,
            manage: false,
            created: LocalTime(1),
            modified: LocalTime(2),
        };
        let changes = vec![
            Change::QueueUpdated { entity, settings: Box::default() },
            Change::TopicCreated { entity, namespace, path: "t".into(), settings: topic.clone() },
            Change::TopicUpdated { entity, settings: topic },
            Change::SubscriptionCreated {
                entity,
                topic: EntityId(1),
                name: "s".into(),
                settings: subscription.clone(),
            },
            Change::SubscriptionUpdated { entity, settings: subscription },
            rule(Filter::True, None),
            rule(Filter::False, Some(sql.clone())),
            rule(Filter::Sql(sql), None),
            rule(Filter::Correlation(correlation), None),
            Change::RuleRemoved { subscription: entity, name: "r".into() },
            Change::AccessChanged { entity, rules: vec![access] },
            Change::NamespaceNamed { namespace, name: "n".into() },
            Change::ClockMoved { namespace, to: LocalTime(-5) },
        ];
        changes.into_iter().map(|change| Record::Managed(Box::new(change))).collect()
    }

    #[test]
    fn what_is_written_is_read_and_what_is_cut_is_refused() {
        for record in samples() {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            assert_eq!(Record::decode(&mut &bytes[..]), Ok(record));
            for cut in 0..bytes.len() {
                assert_eq!(Record::decode(&mut &bytes[..cut]), Err(Unreadable::Truncated));
            }
        }
    }
}
