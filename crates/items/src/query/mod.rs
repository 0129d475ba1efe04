//! The query language (sections 12 and 13): from text to rows.
//!
//! [`prepare`] reads and checks a query once. [`Prepared::wants`] tells a planner which candidates are worth reading;
//! [`Prepared::run`] checks every candidate and makes a page of rows. Items are read as text: what a query does not touch is
//! stepped over. The same evaluator decides the conditions of patches and serves queries over definitions.
//!
//! What must always hold: no text and no item makes it panic, hang or hold more than its limits; a page and its continuation
//! are a function of candidates, query and time; following continuations gives each row of an unchanged container once.

mod aggregate;
mod compile;
mod continuation;
mod error;
mod evaluate;
mod functions;
mod lex;
mod like;
mod meter;
mod parse;
mod plan;
mod rank;
mod rows;
mod run;
mod syntax;
mod value;
mod wants;

pub use meter::{Unwatched, Watch};
pub use wants::{Conjunct, Path, SortPath, Step, Test, Wants};

use crate::answer::Metrics;
use crate::json;
use crate::limits;
use crate::refusal::Refusal;
use crate::time::Time;
use bytes::Bytes;
use continuation::{Hash, Token};
use meter::Meter;
use std::collections::HashMap;
use std::sync::Arc;

/// A query that was read and checked, with its parameters filled in.
#[derive(Debug, Clone)]
pub struct Prepared {
    plan: Arc<plan::Select>,
    fingerprint: u64,
}

/// An item that may be part of the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Names the place of this candidate in the source, for continuations: the same item has the same position as long as it is not
    /// written. A continuation has room for about 600 bytes of it.
    pub position: Bytes,
    /// Names the item whatever source it comes from: breaks ties where rows are sorted, because the next page may come from another.
    pub place: Bytes,
    /// The item's text with its system properties, checked when it was stored (`json::without_duplicates`).
    pub body: Bytes,
}

/// Candidates in the planner's order, the same one for every page of a query.
pub trait Source {
    fn next(&mut self) -> Result<Option<Candidate>, Refusal>;
}

#[derive(Debug, Clone, Default)]
pub struct PageRequest {
    /// Rows in the page at most.
    pub max_items: usize,
    /// From the continuation that the client sent.
    pub resume: Option<Resume>,
    /// A digest of what is queried (the container's rid): a continuation is good for the same binding only (P-52).
    pub binding: u64,
    /// The source is in the order of `Wants::order`.
    pub is_ordered: bool,
}

/// Where the page before ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    token: Token,
}

impl Resume {
    /// Where the source begins: at the candidate with this position if it is still there, else at the first behind it. `None`: at
    /// the first of all, because the page needs to see every candidate.
    pub fn start(&self) -> Option<&Bytes> {
        (!self.token.is_sorted).then_some(&self.token.position)
    }

    /// Whether the page before came from a source in the order of `Wants::order`; this one has to, too.
    pub fn is_ordered(&self) -> bool {
        self.token.is_ordered
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rows {
    /// JSON values.
    pub values: Vec<Bytes>,
    /// Only when more may follow (P-51).
    pub continuation: Option<String>,
    /// `used_index` is left to the planner, but for a count that the keys answer.
    pub metrics: Metrics,
    /// What the page cost: candidates, rows of joins and elements looked at.
    pub steps: u64,
}

/// The value of a parameter. A long list is not made a tree on the way, which may take thirty times as much.
fn parameter(text: &Bytes) -> Result<plan::Expr, json::Error> {
    if value::tree_bytes_of_text(text) > limits::QUERY_TEXT_BYTES / 2 {
        let text = json::without_duplicates(text)?;
        return Ok(plan::Expr::ConstantText(text.trim_ascii().into()));
    }
    json::parse(text).map(compile::constant)
}

/// Reads and checks a query. Parameters are named with `@`, their values are JSON text.
pub fn prepare(text: &str, parameters: &[(String, Bytes)]) -> Result<Prepared, Refusal> {
    prepare_with(text, parameters, Known::default())
}

/// What a container's definition says of its items' members.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known<'a> {
    /// Computed properties: name and query (5.2).
    pub computed: &'a [(String, String)],
    /// Members that hold vectors, and how their distance is measured.
    pub distances: &'a [(Vec<String>, String)],
    /// Members that hold text, and in what language.
    pub languages: &'a [(Vec<String>, String)],
}

/// As [`prepare`], for the items of a container.
pub fn prepare_with(
    text: &str,
    parameters: &[(String, Bytes)],
    known: Known<'_>,
) -> Result<Prepared, Refusal> {
    let tree = parse::query(text)?;
    let mut fingerprint = Hash::new().part(text.as_bytes());
    if parameters.len() > limits::QUERY_PARAMETERS {
        return Err(Refusal::bad(format!(
            "The query has more than {} parameters.",
            limits::QUERY_PARAMETERS
        )));
    }
    let mut values = HashMap::new();
    for (name, value) in parameters {
        fingerprint = fingerprint.part(name.as_bytes()).part(value);
        let value = parameter(value).map_err(|error| {
            Refusal::bad(format!("The value of the parameter '{name}' is not JSON: {error}."))
        })?;
        values.insert(name.as_str(), value);
    }
    let plan = compile::top(&tree, &values, known)?;
    Ok(Prepared { plan: Arc::new(plan), fingerprint: fingerprint.narrow() })
}

impl Prepared {
    /// A digest of text and parameters (P-52).
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    pub fn wants(&self) -> Wants {
        wants::of(&self.plan)
    }

    /// Reads a continuation that a page of this query ended with. Anything else is refused.
    pub fn resume(&self, continuation: &str, binding: u64) -> Result<Resume, Refusal> {
        Token::decode(continuation, self.fingerprint, binding).map(|token| Resume { token })
    }

    /// A page of rows.
    pub fn run(&self, source: &mut dyn Source, page: PageRequest, now: Time) -> Result<Rows, Refusal> {
        self.run_watched(source, page, now, &Unwatched)
    }

    /// The same for somebody who may go before it ends, beside others.
    pub fn run_watched(
        &self,
        source: &mut dyn Source,
        page: PageRequest,
        now: Time,
        watch: &dyn Watch,
    ) -> Result<Rows, Refusal> {
        run::run(&self.plan, self.fingerprint, source, page, now, &Meter::query(watch))
    }
}

/// The condition of a patch: `from c where ...` (P-55).
#[derive(Debug, Clone)]
pub struct Condition {
    plan: Arc<plan::Select>,
}

pub fn prepare_condition(text: &str) -> Result<Condition, Refusal> {
    let plan = compile::top(&parse::condition(text)?, &HashMap::new(), Known::default())?;
    Ok(Condition { plan: Arc::new(plan) })
}

impl Condition {
    /// Whether the condition is exactly true for this item. `steps` are those that the request has left; what this one takes goes.
    pub fn holds(&self, body: &[u8], now: Time, steps: &mut u64) -> Result<bool, Refusal> {
        let meter = Meter::condition(*steps);
        let holds = self.is_met(body, now, &meter);
        *steps = steps.saturating_sub(meter.steps());
        holds
    }

    fn is_met(&self, body: &[u8], now: Time, meter: &Meter<'_>) -> Result<bool, Refusal> {
        let mut env = evaluate::Env::new(now, 0, meter);
        let item = value::Val::of_text(body.trim_ascii());
        let mut holds = false;
        rows::each_row(&self.plan, Some(&item), &mut env, &mut |_| {
            holds = true;
            Ok(rows::Flow::Enough)
        })
        .map_err(|stop| *stop)?;
        Ok(holds)
    }
}
