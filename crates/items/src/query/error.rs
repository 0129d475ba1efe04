//! What is wrong with a query's text, in the form that clients show: code, message, and the place in the text.

use crate::json::write_text;
use crate::refusal::Refusal;
use std::io::Write;

/// Bytes of the text, the end exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    pub start: usize,
    pub end: usize,
}

impl Span {
    pub fn to(self, end: Span) -> Span {
        Span { start: self.start, end: end.end.max(self.start) }
    }
}

/// Names that the service gives to errors.
pub mod code {
    pub const SYNTAX: &str = "SC1001";
    pub const UNRESOLVED: &str = "SC2001";
    pub const NO_SUCH_FUNCTION: &str = "SC2005";
    pub const STAR_NEEDS_ONE_SOURCE: &str = "SC2040";
    pub const STAR_WITH_GROUP: &str = "SC2041";
    pub const WRONG_COUNT_OF_ARGUMENTS: &str = "SC2050";
    pub const WRONG_COUNT: &str = "SC2060";
    pub const AGGREGATE_OF_AGGREGATE: &str = "SC2101";
    pub const NOT_GROUPED: &str = "SC2102";
    pub const NOT_SUPPORTED: &str = "SC2990";
    /// Ours: the query is larger than a limit.
    pub const TOO_LARGE: &str = "SC3001";
}

/// A refusal that names the place.
pub fn error(code: &str, span: Span, message: &str) -> Refusal {
    let mut text = Vec::new();
    write!(
        text,
        "{{\"errors\":[{{\"severity\":\"Error\",\"location\":{{\"start\":{},\"end\":{}}},\"code\":\"{code}\",\"message\":",
        span.start, span.end
    )
    .expect("writing into memory cannot fail");
    write_text(message, &mut text);
    text.extend_from_slice(b"}]}");
    Refusal::Query { errors: String::from_utf8(text).expect("only text was written") }
}
