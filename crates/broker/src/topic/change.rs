//! The records of management: what was created, changed or named, other than by messages. Their kinds begin at 32.

use super::rule::{Correlation, Filter, Kind, Rule, Sql, Typed};
use super::settings::{SubscriptionSettings, TopicSettings};
use crate::access::AccessRule;
use crate::ids::{EntityId, NamespaceId};
use crate::record::{
    Fields, Unreadable, framed, put_optional_text, put_settings, put_status, put_text, put_time, put_u32,
    put_u64,
};
use crate::settings::QueueSettings;
use crate::time::{LocalTime, Span};

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

mod kind {
    pub(super) const QUEUE_UPDATED: u8 = 32;
    pub(super) const TOPIC_CREATED: u8 = 33;
    pub(super) const TOPIC_UPDATED: u8 = 34;
    pub(super) const SUBSCRIPTION_CREATED: u8 = 35;
    pub(super) const SUBSCRIPTION_UPDATED: u8 = 36;
    pub(super) const RULE_PUT: u8 = 37;
    pub(super) const RULE_REMOVED: u8 = 38;
    pub(super) const ACCESS_CHANGED: u8 = 39;
    pub(super) const NAMESPACE_NAMED: u8 = 40;
    pub(super) const CLOCK_MOVED: u8 = 41;
}

impl Change {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Change::QueueUpdated { entity, settings } => framed(out, kind::QUEUE_UPDATED, |out| {
                put_u32(out, entity.0);
                put_settings(out, settings);
            }),
            Change::TopicCreated { entity, namespace, path, settings } => {
                framed(out, kind::TOPIC_CREATED, |out| {
                    put_u32(out, entity.0);
                    put_u32(out, namespace.0);
                    put_text(out, path);
                    put_topic(out, settings);
                });
            }
            Change::TopicUpdated { entity, settings } => framed(out, kind::TOPIC_UPDATED, |out| {
                put_u32(out, entity.0);
                put_topic(out, settings);
            }),
            Change::SubscriptionCreated { entity, topic, name, settings } => {
                framed(out, kind::SUBSCRIPTION_CREATED, |out| {
                    put_u32(out, entity.0);
                    put_u32(out, topic.0);
                    put_text(out, name);
                    put_subscription(out, settings);
                });
            }
            Change::SubscriptionUpdated { entity, settings } => {
                framed(out, kind::SUBSCRIPTION_UPDATED, |out| {
                    put_u32(out, entity.0);
                    put_subscription(out, settings);
                });
            }
            Change::RulePut { subscription, rule } => framed(out, kind::RULE_PUT, |out| {
                put_u32(out, subscription.0);
                put_rule(out, rule);
            }),
            Change::RuleRemoved { subscription, name } => framed(out, kind::RULE_REMOVED, |out| {
                put_u32(out, subscription.0);
                put_text(out, name);
            }),
            Change::AccessChanged { entity, rules } => framed(out, kind::ACCESS_CHANGED, |out| {
                put_u32(out, entity.0);
                put_u32(out, rules.len() as u32);
                rules.iter().for_each(|rule| rule.encode(out));
            }),
            Change::NamespaceNamed { namespace, name } => framed(out, kind::NAMESPACE_NAMED, |out| {
                put_u32(out, namespace.0);
                put_text(out, name);
            }),
            Change::ClockMoved { namespace, to } => framed(out, kind::CLOCK_MOVED, |out| {
                put_u32(out, namespace.0);
                put_time(out, *to);
            }),
        }
    }

    /// Reads the fields of a record of this kind; `None` if it is not one of ours.
    pub(crate) fn decode(kind: u8, fields: &mut Fields<'_>) -> Option<Result<Change, Unreadable>> {
        (kind::QUEUE_UPDATED..=kind::CLOCK_MOVED).contains(&kind).then(|| read(kind, fields))
    }
}

fn read(kind: u8, fields: &mut Fields<'_>) -> Result<Change, Unreadable> {
    let first = fields.u32()?;
    let entity = EntityId(first);
    Ok(match kind {
        kind::QUEUE_UPDATED => Change::QueueUpdated { entity, settings: Box::new(fields.settings()?) },
        kind::TOPIC_CREATED => Change::TopicCreated {
            entity,
            namespace: NamespaceId(fields.u32()?),
            path: fields.text()?,
            settings: Box::new(topic(fields)?),
        },
        kind::TOPIC_UPDATED => Change::TopicUpdated { entity, settings: Box::new(topic(fields)?) },
        kind::SUBSCRIPTION_CREATED => Change::SubscriptionCreated {
            entity,
            topic: EntityId(fields.u32()?),
            name: fields.text()?,
            settings: Box::new(subscription(fields)?),
        },
        kind::SUBSCRIPTION_UPDATED => {
            Change::SubscriptionUpdated { entity, settings: Box::new(subscription(fields)?) }
        }
        kind::RULE_PUT => Change::RulePut { subscription: entity, rule: Box::new(rule(fields)?) },
        kind::RULE_REMOVED => Change::RuleRemoved { subscription: entity, name: fields.text()? },
        kind::ACCESS_CHANGED => {
            let count = fields.u32()?;
            let rules = (0..count).map(|_| AccessRule::decode(fields)).collect::<Result<_, _>>()?;
            Change::AccessChanged { entity, rules }
        }
        kind::NAMESPACE_NAMED => {
            Change::NamespaceNamed { namespace: NamespaceId(first), name: fields.text()? }
        }
        kind::CLOCK_MOVED => Change::ClockMoved { namespace: NamespaceId(first), to: fields.time()? },
        unknown => return Err(Unreadable::UnknownKind(unknown)),
    })
}

fn put_flags(out: &mut Vec<u8>, flags: &[bool]) {
    out.push(flags.iter().enumerate().map(|(bit, set)| u8::from(*set) << bit).sum());
}

fn put_topic(out: &mut Vec<u8>, settings: &TopicSettings) {
    put_u64(out, settings.default_time_to_live.0);
    put_u64(out, settings.max_size_megabytes);
    put_u64(out, settings.duplicate_window.0);
    put_u64(out, settings.auto_delete_on_idle.0);
    put_u64(out, settings.max_message_kilobytes.unwrap_or(0));
    put_status(out, settings.status);
    put_flags(
        out,
        &[
            settings.requires_duplicate_detection,
            settings.batched_operations,
            settings.filtering_before_publishing,
            settings.partitioning,
            settings.subscription_partitioning,
            settings.express,
            settings.support_ordering.is_some(),
            settings.support_ordering == Some(true),
        ],
    );
    put_optional_text(out, settings.user_metadata.as_deref());
}

fn topic(fields: &mut Fields<'_>) -> Result<TopicSettings, Unreadable> {
    let default_time_to_live = Span(fields.u64()?);
    let max_size_megabytes = fields.u64()?;
    let duplicate_window = Span(fields.u64()?);
    let auto_delete_on_idle = Span(fields.u64()?);
    let max_message_kilobytes = Some(fields.u64()?).filter(|kilobytes| *kilobytes != 0);
    let status = fields.status()?;
    let flags = fields.u8()?;
    let flag = |bit: u8| flags & (1 << bit) != 0;
    Ok(TopicSettings {
        default_time_to_live,
        max_size_megabytes,
        requires_duplicate_detection: flag(0),
        duplicate_window,
        batched_operations: flag(1),
        filtering_before_publishing: flag(2),
        status,
        user_metadata: fields.optional_text()?,
        support_ordering: flag(6).then(|| flag(7)),
        auto_delete_on_idle,
        partitioning: flag(3),
        subscription_partitioning: flag(4),
        express: flag(5),
        max_message_kilobytes,
    })
}

fn put_subscription(out: &mut Vec<u8>, settings: &SubscriptionSettings) {
    put_u64(out, settings.lock_duration.0);
    put_u64(out, settings.default_time_to_live.0);
    put_u64(out, settings.auto_delete_on_idle.0);
    put_u32(out, settings.max_delivery_count);
    put_status(out, settings.status);
    put_flags(
        out,
        &[
            settings.requires_session,
            settings.dead_letter_on_expiration,
            settings.dead_letter_on_filter_exceptions,
            settings.batched_operations,
        ],
    );
    put_optional_text(out, settings.forward_to.as_deref());
    put_optional_text(out, settings.forward_dead_letters_to.as_deref());
    put_optional_text(out, settings.user_metadata.as_deref());
}

fn subscription(fields: &mut Fields<'_>) -> Result<SubscriptionSettings, Unreadable> {
    let lock_duration = Span(fields.u64()?);
    let default_time_to_live = Span(fields.u64()?);
    let auto_delete_on_idle = Span(fields.u64()?);
    let max_delivery_count = fields.u32()?;
    let status = fields.status()?;
    let flags = fields.u8()?;
    let flag = |bit: u8| flags & (1 << bit) != 0;
    Ok(SubscriptionSettings {
        lock_duration,
        requires_session: flag(0),
        default_time_to_live,
        dead_letter_on_expiration: flag(1),
        dead_letter_on_filter_exceptions: flag(2),
        max_delivery_count,
        batched_operations: flag(3),
        status,
        forward_to: fields.optional_text()?,
        forward_dead_letters_to: fields.optional_text()?,
        user_metadata: fields.optional_text()?,
        auto_delete_on_idle,
    })
}

fn put_rule(out: &mut Vec<u8>, rule: &Rule) {
    put_text(out, &rule.name);
    match &rule.filter {
        Filter::True => out.push(0),
        Filter::False => out.push(1),
        Filter::Sql(sql) => {
            out.push(2);
            put_sql(out, sql);
        }
        Filter::Correlation(correlation) => {
            out.push(3);
            correlation.system().into_iter().for_each(|value| put_optional_text(out, value.as_deref()));
            put_values(out, &correlation.properties);
        }
    }
    out.push(u8::from(rule.action.is_some()));
    if let Some(action) = &rule.action {
        put_sql(out, action);
    }
}

fn rule(fields: &mut Fields<'_>) -> Result<Rule, Unreadable> {
    let name = fields.text()?;
    let filter = match fields.u8()? {
        0 => Filter::True,
        1 => Filter::False,
        2 => Filter::Sql(sql(fields)?),
        3 => Filter::Correlation(Correlation {
            correlation_id: fields.optional_text()?,
            message_id: fields.optional_text()?,
            to: fields.optional_text()?,
            reply_to: fields.optional_text()?,
            label: fields.optional_text()?,
            session_id: fields.optional_text()?,
            reply_to_session_id: fields.optional_text()?,
            content_type: fields.optional_text()?,
            properties: values(fields)?,
        }),
        _ => return Err(Unreadable::BadField("kind of a filter")),
    };
    let action = match fields.u8()? {
        0 => None,
        1 => Some(sql(fields)?),
        _ => return Err(Unreadable::BadField("an action is neither there nor not")),
    };
    Ok(Rule { name, filter, action })
}

fn put_sql(out: &mut Vec<u8>, sql: &Sql) {
    put_text(out, &sql.expression);
    put_values(out, &sql.parameters);
}

fn sql(fields: &mut Fields<'_>) -> Result<Sql, Unreadable> {
    Ok(Sql { expression: fields.text()?, parameters: values(fields)? })
}

fn put_values(out: &mut Vec<u8>, values: &[(Box<str>, Typed)]) {
    put_u32(out, values.len() as u32);
    for (name, value) in values {
        put_text(out, name);
        out.push(match value.kind {
            Kind::String => 0,
            Kind::Int => 1,
            Kind::Long => 2,
            Kind::Boolean => 3,
            Kind::Double => 4,
            Kind::DateTime => 5,
            Kind::Duration => 6,
        });
        put_text(out, &value.text);
    }
}

fn values(fields: &mut Fields<'_>) -> Result<Vec<(Box<str>, Typed)>, Unreadable> {
    let count = fields.u32()?;
    let value = |_| {
        let name = fields.text()?;
        let kind = match fields.u8()? {
            0 => Kind::String,
            1 => Kind::Int,
            2 => Kind::Long,
            3 => Kind::Boolean,
            4 => Kind::Double,
            5 => Kind::DateTime,
            6 => Kind::Duration,
            _ => return Err(Unreadable::BadField("kind of a value")),
        };
        Ok((name, Typed { kind, text: fields.text()? }))
    };
    (0..count).map(value).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::access::Key;
    use crate::record::Record;
    use crate::settings::Status;
    use crate::time::LocalTime;

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
