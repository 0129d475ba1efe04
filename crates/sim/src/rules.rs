//! Rules as the workload gives them to subscriptions, each said twice: as the text that the broker reads, and as what it
//! means. The oracle judges by the meaning (S-182 to S-205).

use crate::random::Random;
use broker::topic::rule::{Correlation, Filter, Kind, Rule, Sql, Typed};
use message::system::SystemProperty;
use message::{Overlay, Value};

/// Labels that messages have, and how many weights there are.
const LABELS: [u8; 4] = *b"abcd";
const WEIGHTS: u8 = 8;

/// What [`Deed::Load`] sets.
const LOAD_BYTES: usize = 1_500;

/// What a rule can see of a message: its label, and the number that it has for a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traits {
    pub label: u8,
    pub weight: Option<u8>,
}

/// Traits of messages as they are sent: one bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TraitSet(u32);

impl Traits {
    /// Those of a message of that number.
    pub fn of(number: usize) -> Traits {
        Traits::nth(number % (LABELS.len() * usize::from(WEIGHTS)))
    }

    fn nth(nth: usize) -> Traits {
        let weight = (nth / LABELS.len()) as u8;
        Traits { label: LABELS[nth % LABELS.len()], weight: Some(weight) }
    }

    fn has_label(self, label: u8) -> bool {
        self.label == label
    }
}

impl TraitSet {
    /// All for which `is_in` holds.
    pub fn of(is_in: impl Fn(Traits) -> bool) -> TraitSet {
        let all = LABELS.len() * usize::from(WEIGHTS);
        TraitSet((0..all).filter(|nth| is_in(Traits::nth(*nth))).map(|nth| 1 << nth).sum())
    }

    /// Whether the message of that number, as it was sent, is among them.
    pub fn has(self, number: usize) -> bool {
        self.0 >> (number % (LABELS.len() * usize::from(WEIGHTS))) & 1 == 1
    }
}

/// Whom a rule takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    All,
    Nobody,
    /// By a correlation filter on a system property, on a user property, or on both.
    Label(u8),
    Weight(u8),
    Both(u8, u8),
    /// By a SQL filter: of a label, heavier than, with an even weight and another label, with a property that is missing.
    SqlLabel(u8),
    Heavier(u8),
    Even(u8),
    Missing,
    /// The heavy ones, at the price of dividing by zero for one weight.
    Broken(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Yes,
    No,
    /// It cannot be told (S-200).
    Fails,
}

/// What a rule does to its copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    Mark,
    Relabel(u8),
    AddWeight,
    DropWeight,
    /// Sets a property that is too large to be held in memory.
    Load,
}

/// A rule, by its meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meaning {
    pub choice: Choice,
    pub deed: Option<Deed>,
}

fn sql(expression: String) -> Sql {
    Sql { expression: expression.into(), parameters: Vec::new() }
}

fn text(label: u8) -> String {
    char::from(label).to_string()
}

impl Choice {
    pub fn draw(random: &mut Random) -> Choice {
        let label = *random.pick(&LABELS);
        let weight = random.below(u64::from(WEIGHTS)) as u8;
        match random.below(14) {
            0..3 => Choice::All,
            3 => Choice::Nobody,
            4 | 5 => Choice::Label(label),
            6 => Choice::Weight(weight),
            7 => Choice::Both(label, weight),
            8 => Choice::SqlLabel(label),
            9 | 10 => Choice::Heavier(weight),
            11 => Choice::Even(label),
            12 => Choice::Missing,
            _ => Choice::Broken(weight),
        }
    }

    pub fn filter(self) -> Filter {
        let weighs = |weight: u8| Typed { kind: Kind::Int, text: weight.to_string().into() };
        match self {
            Choice::All => Filter::True,
            Choice::Nobody => Filter::False,
            Choice::Label(label) => {
                Filter::Correlation(Correlation { label: Some(text(label).into()), ..Correlation::default() })
            }
            Choice::Weight(weight) => Filter::Correlation(Correlation {
                properties: vec![("weight".into(), weighs(weight))],
                ..Correlation::default()
            }),
            Choice::Both(label, weight) => Filter::Correlation(Correlation {
                label: Some(text(label).into()),
                properties: vec![("weight".into(), weighs(weight))],
                ..Correlation::default()
            }),
            Choice::SqlLabel(label) => Filter::Sql(sql(format!("sys.Label = '{}'", text(label)))),
            Choice::Heavier(weight) => Filter::Sql(Sql {
                expression: "Weight > @least".into(),
                parameters: vec![("@least".into(), weighs(weight))],
            }),
            Choice::Even(label) => {
                Filter::Sql(sql(format!("weight % 2 = 0 AND NOT sys.label = '{}'", text(label))))
            }
            Choice::Missing => Filter::Sql(sql("nobody = 1 OR EXISTS(nobody)".into())),
            Choice::Broken(weight) => Filter::Sql(sql(format!("weight / (weight - {weight}) > 0"))),
        }
    }

    pub fn judge(self, traits: Traits) -> Verdict {
        let Traits { label, weight } = traits;
        let is_taken = match self {
            Choice::All => true,
            Choice::Nobody | Choice::Missing => false,
            Choice::Label(wanted) | Choice::SqlLabel(wanted) => traits.has_label(wanted),
            Choice::Weight(wanted) => weight == Some(wanted),
            Choice::Both(wanted, heavy) => traits.has_label(wanted) && weight == Some(heavy),
            Choice::Heavier(least) => weight.is_some_and(|weight| weight > least),
            Choice::Even(unwanted) => label != unwanted && weight.is_some_and(|weight| weight % 2 == 0),
            Choice::Broken(zero) => match weight {
                Some(weight) if weight == zero => return Verdict::Fails,
                Some(weight) => i32::from(weight) / (i32::from(weight) - i32::from(zero)) > 0,
                None => false,
            },
        };
        if is_taken { Verdict::Yes } else { Verdict::No }
    }
}

impl Deed {
    pub fn draw(random: &mut Random) -> Option<Deed> {
        match random.below(12) {
            0 => Some(Deed::Mark),
            1 => Some(Deed::Relabel(*random.pick(&LABELS))),
            2 => Some(Deed::AddWeight),
            3 => Some(Deed::DropWeight),
            4 => Some(Deed::Load),
            _ => None,
        }
    }

    fn action(self) -> Sql {
        sql(match self {
            Deed::Mark => "SET mark = 'seen'".into(),
            Deed::Relabel(label) => format!("SET sys.Label = '{}'", text(label)),
            Deed::AddWeight => "SET weight = weight + 1".into(),
            Deed::DropWeight => "REMOVE weight".into(),
            Deed::Load => {
                format!("SET load = '{}'; SET load = load + load + load", "x".repeat(LOAD_BYTES / 3))
            }
        })
    }

    /// What becomes of a copy, and what it then shows as changed, on top of what it showed before.
    pub fn done(self, rule: &str, mut traits: Traits, before: &Overlay) -> (Traits, Overlay) {
        let mut overlay = before.clone();
        let set = match (self, traits.weight) {
            (Deed::Mark, _) => overlay.set("mark", &Value::String("seen".into())),
            (Deed::Relabel(label), _) => {
                traits.label = label;
                overlay.set_system(SystemProperty::Label, &Value::String(text(label)))
            }
            (Deed::AddWeight, Some(weight)) => {
                traits.weight = Some(weight + 1);
                overlay.set("weight", &Value::Int(i32::from(weight) + 1))
            }
            (Deed::DropWeight, Some(_)) => {
                traits.weight = None;
                overlay.remove("weight")
            }
            (Deed::AddWeight | Deed::DropWeight, None) => Ok(()),
            (Deed::Load, _) => overlay.set("load", &Value::String("x".repeat(LOAD_BYTES))),
        };
        set.and_then(|()| overlay.set_rule_name(rule)).expect("a few more bytes fit");
        (traits, overlay)
    }
}

impl Meaning {
    /// What a subscription has that is given no rule (S-181).
    pub const DEFAULT: Meaning = Meaning { choice: Choice::All, deed: None };

    pub fn draw(random: &mut Random) -> Meaning {
        Meaning { choice: Choice::draw(random), deed: Deed::draw(random) }
    }

    /// The rule that says so.
    pub fn rule(&self, name: &str) -> Rule {
        Rule { name: name.into(), filter: self.choice.filter(), action: self.deed.map(Deed::action) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_has_traits_and_is_in_the_set_of_them() {
        for number in 0..64 {
            let set = TraitSet::of(|traits| traits == Traits::of(number));
            assert!(set.has(number) && !set.has(number + 1), "{number}");
        }
    }

    #[test]
    fn a_rule_that_divides_takes_the_heavy_and_fails_for_one() {
        let weighs = |weight| Traits { label: b'a', weight };
        let judge = |weight| Choice::Broken(3).judge(weighs(weight));
        assert_eq!(judge(Some(3)), Verdict::Fails);
        assert_eq!((judge(Some(4)), judge(Some(2)), judge(None)), (Verdict::Yes, Verdict::No, Verdict::No));
    }

    #[test]
    fn what_a_rule_does_shows() {
        let before = Traits { label: b'a', weight: Some(7) };
        let (after, overlay) = Deed::AddWeight.done("r", before, &Overlay::default());
        assert_eq!(after.weight, Some(8));
        assert!(overlay.application("weight").is_some() && overlay.application("RuleName").is_some());
    }
}
