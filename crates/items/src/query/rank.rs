//! ORDER BY RANK: by how well the words of a text fit, or by several such orders at once (13.3, Search).
//!
//! A score depends on all rows (how rare is a word?), so every candidate is seen before the first row is given. What is held of
//! each is its row and a few numbers. The statistics are those of the rows that pass WHERE.

use super::compile::Compiler;
use super::error::{Span, code, error};
use super::evaluate::{Env, Stop};
use super::functions::{Function, occurrences, telling_words};
use super::plan::Expr;
use super::syntax::{self, ExprKind};
use crate::json::Value;
use crate::limits;
use crate::order::ordered_bits;
use crate::refusal::Refusal;
use std::cmp::Ordering;

/// How soon more of the same word counts for little, and how much a long text counts for less: the usual numbers of BM25.
const SATURATION: f64 = 1.2;
const LENGTH: f64 = 0.75;
/// What reciprocal rank fusion adds to a rank, so that the first places do not count for everything.
const FUSION: f64 = 60.0;

#[derive(Debug, Clone)]
pub struct Rank {
    parts: Vec<Part>,
    /// Several orders are made one by the places that a row has in each.
    is_fused: bool,
}

#[derive(Debug, Clone)]
struct Part {
    score: Score,
    weight: f64,
}

#[derive(Debug, Clone)]
enum Score {
    /// How often each phrase, word by word, is in a text.
    Words { text: Expr, phrases: Vec<Vec<String>>, is_english: bool },
    /// A distance of vectors. The nearest is the best, which is the largest number unless it is Euclidean.
    Nearness { distance: Expr, is_rising: bool },
}

/// What one row has of a part.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    Words { hits: Vec<u32>, length: u32 },
    Number(Option<f64>),
}

impl Rank {
    pub(super) fn compile(compiler: &mut Compiler<'_>, sort: &syntax::Sort) -> Result<Rank, Refusal> {
        if sort.has_direction {
            let message = "Specifying a sort order (ASC or DESC) in the ORDER BY RANK clause is not allowed.";
            return Err(error(code::NOT_SUPPORTED, sort.value.span, message));
        }
        let ExprKind::Call(name, arguments) = &sort.value.kind else { return Err(no_score(sort.value.span)) };
        if !name.eq_ignore_ascii_case("RRF") {
            return Ok(Rank { parts: vec![Part::compile(compiler, &sort.value)?], is_fused: false });
        }
        let is_score = |argument: &&syntax::Expr| matches!(argument.kind, ExprKind::Call(..));
        let count = arguments.iter().take_while(is_score).count();
        let (scores, weights) = arguments.split_at(count);
        let mut parts = Vec::new();
        for score in scores {
            parts.push(Part::compile(compiler, score)?);
        }
        match weights {
            [] => {}
            [weights] => weigh(&mut parts, compiler.expr(weights)?.as_constant().as_deref(), weights.span)?,
            [_, other, ..] => return Err(no_score(other.span)),
        }
        if parts.len() < 2 {
            let message = "The RRF function requires at least 2 score functions.";
            return Err(error(code::WRONG_COUNT_OF_ARGUMENTS, sort.value.span, message));
        }
        Ok(Rank { parts, is_fused: true })
    }

    /// What the row that is bound has of each part.
    pub fn facts<'a>(&'a self, env: &mut Env<'a>) -> Result<Vec<Fact>, Stop> {
        self.parts.iter().map(|part| part.score.fact(env)).collect()
    }

    /// What the facts of a row take, and what is made of them for its key.
    pub fn held_bytes(facts: &[Fact]) -> usize {
        let hits = facts.iter().map(|fact| match fact {
            Fact::Words { hits, .. } => size_of_val(&hits[..]),
            Fact::Number(_) => 0,
        });
        limits::RANKED_ROW_COST + facts.len() * limits::RANKED_FACT_COST + hits.sum::<usize>()
    }

    /// A key for each row, the best first: eight bytes in the order of its score.
    pub fn keys(&self, rows: &[Vec<Fact>]) -> Vec<[u8; 8]> {
        let scores = self.parts.iter().enumerate().map(|(at, part)| {
            let facts: Vec<&Fact> = rows.iter().map(|row| &row[at]).collect();
            (part.weight, part.score.scores(&facts))
        });
        let mut sums = vec![0.0; rows.len()];
        for (weight, scores) in scores {
            let values = if self.is_fused { reciprocal_ranks(&scores) } else { scores };
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * value);
        }
        // Adding zero makes one zero of the two there are.
        sums.into_iter().map(|sum| ordered_bits(-sum + 0.0).to_be_bytes()).collect()
    }
}

fn no_score(span: Span) -> Refusal {
    let message =
        "The ORDER BY RANK clause must be followed by a VectorDistance, FullTextScore or RRF function call.";
    error(code::NOT_SUPPORTED, span, message)
}

/// `[2, 1]` behind the scores of RRF: how much each counts.
fn weigh(parts: &mut [Part], weights: Option<&Value>, span: Span) -> Result<(), Refusal> {
    let numbers = weights.and_then(Value::as_array).map(|weights| {
        weights
            .iter()
            .map(|weight| weight.as_number().map(|number| number.as_f64()))
            .collect::<Option<Vec<f64>>>()
    });
    match numbers.flatten() {
        Some(numbers) if numbers.len() == parts.len() => {
            parts.iter_mut().zip(numbers).for_each(|(part, weight)| part.weight = weight);
            Ok(())
        }
        _ => {
            let message =
                "The weights of the RRF function must be an array of one number for each score function.";
            Err(error(code::NOT_SUPPORTED, span, message))
        }
    }
}

impl Part {
    fn compile(compiler: &mut Compiler<'_>, value: &syntax::Expr) -> Result<Part, Refusal> {
        let score = match &value.kind {
            ExprKind::Call(name, arguments) if name.eq_ignore_ascii_case("FULLTEXTSCORE") => {
                let [text, wanted @ ..] = &arguments[..] else { return Err(no_score(value.span)) };
                let text = compiler.expr(text)?;
                let is_english = compiler.is_english(&text);
                let mut phrases = Vec::new();
                for phrase in wanted {
                    let plan = compiler.expr(phrase)?;
                    let known = compiler.known_constant(&plan).ok_or_else(|| no_phrase(phrase.span))?;
                    for text in phrases_of(&known).ok_or_else(|| no_phrase(phrase.span))? {
                        phrases.push(compiler.telling_words(text, is_english)?);
                    }
                }
                if phrases.is_empty() {
                    return Err(no_phrase(value.span));
                }
                Score::Words { text, phrases, is_english }
            }
            ExprKind::Call(..) => match compiler.expr(value)? {
                Expr::Call(Function::VectorDistance, arguments) => {
                    let is_rising = is_euclidean(&arguments);
                    Score::Nearness { distance: Expr::Call(Function::VectorDistance, arguments), is_rising }
                }
                _ => return Err(no_score(value.span)),
            },
            _ => return Err(no_score(value.span)),
        };
        Ok(Part { score, weight: 1.0 })
    }
}

fn no_phrase(span: Span) -> Refusal {
    let message =
        "The FullTextScore function takes a text of the item and one or more constant words or phrases.";
    error(code::NOT_SUPPORTED, span, message)
}

/// One phrase, or an array of them as clients of an earlier version write it.
fn phrases_of(value: &Value) -> Option<Vec<&str>> {
    match value {
        Value::String(text) => Some(vec![text]),
        Value::Array(values) => values.iter().map(Value::as_str).collect(),
        _ => None,
    }
}

/// Whether a distance rises with how far the vectors are apart, instead of falling with it.
pub fn is_euclidean(arguments: &[Expr]) -> bool {
    let options = arguments.get(3).and_then(Expr::as_constant);
    let name = options.as_ref().and_then(|options| options.get("distanceFunction")?.as_str());
    name.is_some_and(|name| name.eq_ignore_ascii_case("euclidean"))
}

impl Score {
    fn fact<'a>(&'a self, env: &mut Env<'a>) -> Result<Fact, Stop> {
        Ok(match self {
            Score::Words { text, phrases, is_english } => {
                let value = text.evaluate(env)?;
                let before = env.meter.row_bytes();
                let there = telling_words(value.as_text().unwrap_or_default(), *is_english, env)?;
                let mut hits = Vec::with_capacity(phrases.len());
                for phrase in phrases {
                    hits.push(occurrences(&there, phrase, usize::MAX, env)? as u32);
                }
                env.meter.free_to(before);
                Fact::Words { hits, length: there.len() as u32 }
            }
            Score::Nearness { distance, .. } => Fact::Number(distance.evaluate(env)?.as_number()),
        })
    }

    /// The larger the better.
    fn scores(&self, facts: &[&Fact]) -> Vec<f64> {
        match self {
            Score::Words { phrases, .. } => fits(phrases.len(), facts),
            Score::Nearness { is_rising, .. } => {
                let near = |fact: &&Fact| match fact {
                    Fact::Number(Some(number)) if *is_rising => -number,
                    Fact::Number(Some(number)) => *number,
                    _ => f64::NEG_INFINITY,
                };
                facts.iter().map(near).collect()
            }
        }
    }
}

/// BM25: a phrase counts for more the rarer it is, and for less in a longer text.
fn fits(phrases: usize, facts: &[&Fact]) -> Vec<f64> {
    let of = |fact: &Fact, phrase: usize| match fact {
        Fact::Words { hits, length } => (f64::from(hits[phrase]), f64::from(*length)),
        Fact::Number(_) => (0.0, 0.0),
    };
    let count = facts.len() as f64;
    let mut scores = vec![0.0; facts.len()];
    for phrase in 0..phrases {
        let all: f64 = facts.iter().map(|fact| of(fact, phrase).1).sum();
        let mean = (all / count).max(1.0);
        let with = facts.iter().filter(|fact| of(fact, phrase).0 > 0.0).count() as f64;
        let rarity = ((count - with + 0.5) / (with + 0.5)).ln_1p();
        for (score, fact) in scores.iter_mut().zip(facts) {
            let (hits, length) = of(fact, phrase);
            let room = SATURATION * (1.0 - LENGTH + LENGTH * length / mean);
            *score += rarity * hits * (SATURATION + 1.0) / (hits + room);
        }
    }
    scores
}

/// One over the place of each among all; equal scores have one place.
fn reciprocal_ranks(scores: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|left, right| scores[*right].partial_cmp(&scores[*left]).unwrap_or(Ordering::Equal));
    let mut values = vec![0.0; scores.len()];
    let mut rank = 0.0;
    let mut before = None;
    for at in order {
        if before != Some(scores[at]) {
            rank += 1.0;
            before = Some(scores[at]);
        }
        values[at] = 1.0 / (FUSION + rank);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(hits: u32, length: u32) -> Fact {
        Fact::Words { hits: vec![hits], length }
    }

    #[test]
    fn a_text_fits_better_with_more_hits_and_fewer_other_words() {
        let facts = [text(0, 10), text(1, 10), text(2, 10), text(1, 40), text(0, 0)];
        let scores = fits(1, &facts.iter().collect::<Vec<_>>());
        assert_eq!((scores[0], scores[4]), (0.0, 0.0));
        assert!(scores[2] > scores[1] && scores[1] > scores[3] && scores[3] > 0.0, "{scores:?}");
    }

    #[test]
    fn equal_scores_share_a_place_and_the_next_one_follows() {
        let ranks = reciprocal_ranks(&[0.5, 2.0, 0.5, f64::NEG_INFINITY, 2.0]);
        let places: Vec<f64> = ranks.iter().map(|value| (1.0 / value - FUSION).round()).collect();
        assert_eq!(places, [2.0, 1.0, 2.0, 3.0, 1.0]);
    }
}
