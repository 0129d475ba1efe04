//! The log: one line for each event on standard error, as `key=value` or as JSON.
//!
//! Whatever an event carries, it stays on its line: control characters are written as escapes. Events name tracking ids,
//! entities and addresses; keys, tokens, signatures and bodies are never given to an event.

use gateway::iso;
use serde_json::{Map, Value};
use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<LogFormat, String> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err(format!("`{text}` is not a format of the log; use text or json")),
        }
    }
}

/// Logs to standard error from now on.
pub fn start(level: LevelFilter, format: LogFormat) {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(level)
        .event_format(Lines(format))
        .init();
}

struct Lines(LogFormat);

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
        let mut fields = Fields::default();
        fields.put("time", iso::date_in_milliseconds(now).into());
        fields.put("level", event.metadata().level().as_str().to_ascii_lowercase().into());
        fields.put("target", event.metadata().target().into());
        event.record(&mut fields);
        writeln!(writer, "{}", fields.line(self.0))
    }
}

/// What an event carries, in its order, the message behind what every event has.
#[derive(Default)]
struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    fn put(&mut self, name: &'static str, value: Value) {
        let at = if name == "message" { self.0.len().min(3) } else { self.0.len() };
        self.0.insert(at, (name, value));
    }

    fn line(self, format: LogFormat) -> String {
        escaped(self.written(format))
    }

    fn written(self, format: LogFormat) -> String {
        match format {
            LogFormat::Json => {
                let fields: Map<_, _> =
                    self.0.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
                Value::Object(fields).to_string()
            }
            LogFormat::Text => {
                let mut line = String::new();
                for (name, value) in self.0 {
                    let gap = if line.is_empty() { "" } else { " " };
                    // Writing to a text does not fail.
                    let _ = write!(line, "{gap}{name}={}", Shown(&value));
                }
                line
            }
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field.name(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field.name(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), value.into());
    }
}

/// The line with nothing in it that a terminal or an editor obeys: controls, and marks that turn the direction of a text or end
/// a line. JSON writes the lower controls as escapes; these stand only in texts too, and are escaped in the same way.
pub fn escaped(line: String) -> String {
    let is_obeyed = |c: char| {
        matches!(
            c,
            '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{61c}' | '\u{200e}' | '\u{200f}'
                | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
    };
    if !line.contains(is_obeyed) {
        return line;
    }
    let mut safe = String::with_capacity(line.len());
    for character in line.chars() {
        match is_obeyed(character) {
            true => {
                let _ = write!(safe, "\\u{:04x}", u32::from(character));
            }
            false => safe.push(character),
        }
    }
    safe
}

/// A value in a line of text: bare if it is one word, else as JSON writes it.
struct Shown<'a>(&'a Value);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '=' | '\\');
        match self.0 {
            Value::String(text) if !text.is_empty() && text.chars().all(is_plain) => f.write_str(text),
            other => write!(f, "{other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Fields {
        let mut fields = Fields::default();
        for name in ["time", "level", "target"] {
            fields.put(name, "x".into());
        }
        fields.put("tracking", "7a_n1".into());
        fields.put("path", "a \"b\"\ntime=never".into());
        fields.put("status", 401.into());
        fields.put("message", "refused: no token".into());
        fields
    }

    #[test]
    fn an_event_is_one_line_whatever_it_carries() {
        let expected = r#"time=x level=x target=x message="refused: no token" tracking=7a_n1 path="a \"b\"\ntime=never" status=401"#;
        assert_eq!(fields().line(LogFormat::Text), expected);
        let line = fields().line(LogFormat::Json);
        assert!(!line.contains('\n'));
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&read["path"], &read["status"]), (&"a \"b\"\ntime=never".into(), &401.into()));
    }

    #[test]
    fn what_a_terminal_obeys_is_escaped_in_either_format() {
        let obeyed = [
            '\u{7f}', '\u{80}', '\u{9b}', '\u{9f}', '\u{2028}', '\u{2029}', '\u{202a}', '\u{202e}',
            '\u{2066}', '\u{2069}', '\u{1b}', '\r',
        ];
        for character in obeyed {
            for format in [LogFormat::Text, LogFormat::Json] {
                let mut fields = Fields::default();
                let text = format!("a{character}b");
                fields.put("path", text.clone().into());
                let line = fields.line(format);
                assert!(line.is_ascii() && !line.contains(char::is_control), "{line}");
                if format == LogFormat::Json {
                    let read: Value = serde_json::from_str(&line).unwrap();
                    assert_eq!(read["path"], Value::from(text));
                }
            }
        }
        let mut fields = Fields::default();
        fields.put("path", "grüße, 世界".into());
        assert_eq!(fields.line(LogFormat::Text), "path=\"grüße, 世界\"");
    }

    #[test]
    fn only_known_formats_are_taken() {
        assert_eq!("json".parse(), Ok(LogFormat::Json));
        assert!("xml".parse::<LogFormat>().is_err());
    }
}
