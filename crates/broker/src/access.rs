//! Authorization rules of an entity: a name, two keys and rights. The broker keeps them with the entity; who checks keys
//! are the doors. A key appears in no `Debug` text.

use crate::Broker;
use crate::decision::LocalDecision;
use crate::ids::{EntityId, NamespaceId};
use crate::limits::{ACCESS_RULES, KEY_CHARACTERS, KEY_NAME_CHARACTERS, PATH_CHARACTERS};
use crate::record::{Field, Fields, Record, Unreadable, structure};
use crate::refusal::Refusal;
use crate::time::LocalTime;
use crate::topic::change::Change;
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AccessRule {
    pub name: Box<str>,
    pub primary: Key,
    pub secondary: Key,
    pub listen: bool,
    pub send: bool,
    pub manage: bool,
    /// Set by the broker.
    pub created: LocalTime,
    pub modified: LocalTime,
}

/// The rules of an entity, of which there are some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    pub entity: Box<str>,
    pub rules: Vec<AccessRule>,
}

/// A key's text. A fresh one was made up for want of a given one, and gives way to the one that is stored.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    text: Box<str>,
    is_fresh: bool,
}

impl Key {
    pub fn chosen(text: &str) -> Key {
        Key { text: text.into(), is_fresh: false }
    }

    pub fn fresh(text: &str) -> Key {
        Key { text: text.into(), is_fresh: true }
    }

    pub fn expose(&self) -> &str {
        &self.text
    }

    fn or_stored(&self, stored: Option<&Key>) -> Key {
        match stored {
            Some(stored) if self.is_fresh => stored.clone(),
            _ => Key { is_fresh: false, ..self.clone() },
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

structure! { AccessRule { name, primary, secondary; flags listen, send, manage; created, modified } }

/// A key that is stored was chosen once, or has been taken as if it were.
impl Field for Key {
    fn put(&self, out: &mut Vec<u8>) {
        self.text.put(out);
    }

    fn get(fields: &mut Fields<'_>) -> Result<Key, Unreadable> {
        Ok(Key { text: Field::get(fields)?, is_fresh: false })
    }
}

/// Refuses a set of rules that cannot be (HX-1.8.2).
pub(crate) fn check(rules: &[AccessRule]) -> Result<(), Refusal> {
    let refuse =
        |why: String| Err(Refusal::InvalidSetting { property: "AuthorizationRules", why: why.into() });
    if rules.len() > ACCESS_RULES {
        return refuse(format!("there are {} of them; the limit is {ACCESS_RULES}", rules.len()));
    }
    for (at, rule) in rules.iter().enumerate() {
        let length = rule.name.chars().count();
        let is_safe = |c: char| c.is_ascii_alphanumeric() || "-._~$!*'(),".contains(c);
        if length == 0 || length > KEY_NAME_CHARACTERS || !rule.name.chars().all(is_safe) {
            return refuse(format!("'{}' is not a key name", rule.name));
        }
        if rules[..at].iter().any(|other| other.name == rule.name) {
            return refuse(format!("'{}' is there twice", rule.name));
        }
        if !(rule.listen || rule.send || rule.manage) {
            return refuse(format!("'{}' has no rights", rule.name));
        }
        if rule.manage && !(rule.listen && rule.send) {
            return refuse(format!("'{}' has Manage and must have Send and Listen too", rule.name));
        }
        for key in [&rule.primary, &rule.secondary] {
            if key.text.is_empty() || key.text.chars().count() > KEY_CHARACTERS {
                return refuse(format!("a key of '{}' is empty or too long", rule.name));
            }
        }
    }
    Ok(())
}

impl Broker {
    /// Replaces the rules of an entity. A rule that is as it was keeps its dates, a key that is not given keeps its value
    /// (HX-1.8.3).
    pub(crate) fn set_access(
        &mut self,
        entity: EntityId,
        rules: &[AccessRule],
        decision: &mut LocalDecision<'_>,
    ) {
        let before = self.durable.access(entity);
        let merged: Vec<AccessRule> = rules
            .iter()
            .map(|rule| {
                let stored = before.iter().find(|stored| stored.name == rule.name);
                let mut rule = AccessRule {
                    primary: rule.primary.or_stored(stored.map(|stored| &stored.primary)),
                    secondary: rule.secondary.or_stored(stored.map(|stored| &stored.secondary)),
                    created: stored.map_or(decision.now, |stored| stored.created),
                    modified: stored.map_or(decision.now, |stored| stored.modified),
                    ..rule.clone()
                };
                if stored.is_some_and(|stored| *stored != rule) {
                    rule.modified = decision.now;
                }
                rule
            })
            .collect();
        if merged != before {
            let change = Change::AccessChanged { entity, rules: merged };
            self.write(Record::Managed(Box::new(change)), decision);
        }
    }

    /// The rules that count at `path` (H-102): of the entity that it names, then of each that it is below.
    pub(crate) fn access_at(&self, namespace: NamespaceId, path: &str) -> Vec<Access> {
        std::iter::successors(Some(path), |front| front.rsplit_once('/').map(|(shorter, _)| shorter))
            // A stranger may ask with a long path. No entity has one, so looking for it would be work for nothing.
            .filter(|front| front.len() <= PATH_CHARACTERS * char::MAX.len_utf8())
            .filter_map(|front| {
                let rules = self.durable.access(self.durable.find(namespace, front)?);
                (!rules.is_empty()).then(|| Access { entity: front.into(), rules: rules.to_vec() })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Answer;
    use crate::manage::Task;
    use crate::settings::QueueSettings;
    use crate::testing::World;

    fn rule(name: &str, primary: Key) -> AccessRule {
        AccessRule {
            name: name.into(),
            primary,
            secondary: Key::fresh("made"),
            listen: true,
            send: false,
            manage: false,
            created: LocalTime(0),
            modified: LocalTime(0),
        }
    }

    fn task(is_update: bool, access: Vec<AccessRule>) -> Task {
        let (path, settings) = ("q".into(), QueueSettings::default());
        if is_update {
            Task::UpdateQueue { path, settings, access }
        } else {
            Task::CreateQueue { path, settings, access }
        }
    }

    fn rules(answer: Result<Answer, Refusal>) -> Vec<AccessRule> {
        match answer {
            Ok(Answer::Queue(queue)) => queue.access,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_key_that_is_not_given_stays_and_one_that_is_changes() {
        // HX-1.8.3
        let mut world = World::new();
        let first = rules(world.manage(task(false, vec![rule("a", Key::chosen("one"))])));
        assert_eq!((first[0].primary.expose(), first[0].secondary.expose()), ("one", "made"));
        assert_eq!((first[0].created, first[0].modified), (world.local(), world.local()));
        world.now.0 += 1_000;
        let other = AccessRule { secondary: Key::fresh("again"), ..rule("a", Key::fresh("other")) };
        let kept = rules(world.manage(task(true, vec![other])));
        assert_eq!(kept, first);
        let rotated = rules(world.manage(task(true, vec![rule("a", Key::chosen("two"))])));
        assert_eq!(rotated[0].primary.expose(), "two");
        assert_eq!((rotated[0].created, rotated[0].modified), (first[0].created, world.local()));
        assert_eq!(rules(world.manage(task(true, Vec::new()))), []);
        world.check_whole_replay();
    }

    #[test]
    fn rules_are_checked() {
        // HX-1.8.2
        let named = |name: &str| rule(name, Key::chosen("k"));
        let many = |count: usize| (0..count).map(|number| named(&format!("r{number}"))).collect::<Vec<_>>();
        assert_eq!(check(&many(ACCESS_RULES)), Ok(()));
        assert_eq!(check(&[AccessRule { listen: false, send: true, ..named("a") }]), Ok(()));
        for bad in [
            many(ACCESS_RULES + 1),
            vec![named("")],
            vec![named("a b")],
            vec![named("a"), named("a")],
            vec![AccessRule { listen: false, ..named("a") }],
            vec![AccessRule { manage: true, ..named("a") }],
            vec![AccessRule { primary: Key::chosen(""), ..named("a") }],
        ] {
            assert!(check(&bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn rules_are_found_from_below_and_go_with_their_entity() {
        let mut world = World::new();
        world.manage(task(false, vec![rule("a", Key::chosen("one"))])).unwrap();
        let found = |world: &World, path: &str| world.broker.access_at(NamespaceId(0), path).len();
        assert_eq!(found(&world, "Q/$DeadLetterQueue"), 1);
        assert_eq!(found(&world, "q2"), 0);
        assert_eq!(found(&world, &format!("q{}", "/x".repeat(2_000))), 1);
        world.delete("q");
        assert_eq!(found(&world, "q"), 0);
        world.check_whole_replay();
    }

    #[test]
    fn rules_of_all_entities_that_a_path_lies_below_count() {
        // H-102
        let mut world = World::new();
        let settings = QueueSettings::default();
        for (path, access) in [
            ("a", vec![rule("outer", Key::chosen("one"))]),
            ("a/b", Vec::new()),
            ("a/b/c", vec![rule("inner", Key::chosen("two"))]),
        ] {
            let (path, settings) = (path.into(), settings.clone());
            world.manage(Task::CreateQueue { path, settings, access }).unwrap();
        }
        let found = |path: &str| -> Vec<(String, String)> {
            let found = world.broker.access_at(NamespaceId(0), path);
            found.iter().map(|each| (each.entity.to_string(), each.rules[0].name.to_string())).collect()
        };
        let (outer, inner) = (("a".into(), "outer".into()), ("A/b/c".into(), "inner".into()));
        assert_eq!(found("A/b/c/$DeadLetterQueue"), [inner, ("A".into(), "outer".into())]);
        assert_eq!(found("a/b"), [outer]);
        assert_eq!(found("ab"), []);
    }

    #[test]
    fn a_rule_printed_for_debugging_shows_no_key() {
        let text = format!("{:?}", rule("a", Key::chosen("hush")));
        assert!(!text.contains("hush") && text.contains("Key(…)"), "{text}");
    }
}
