//! String functions. Places and lengths count characters.

use super::Function as F;
use super::Function;
use crate::json::{self, Value};
use crate::limits;
use crate::query::evaluate::{Env, Stop};
use crate::query::value::Val;
use regex::{Regex, RegexBuilder};

pub fn call<'a>(
    function: Function,
    arguments: &[Val<'a>],
    env: &mut Env<'a>,
) -> Result<Option<Val<'a>>, Stop> {
    let text = |at: usize| arguments.get(at).and_then(Val::as_text);
    let result = match function {
        F::Concat => concat(arguments, env)?,
        F::Contains => compare_text(arguments, |text, part| text.contains(part)),
        F::EndsWith => compare_text(arguments, |text, part| text.ends_with(part)),
        F::StartsWith => compare_text(arguments, |text, part| text.starts_with(part)),
        F::StringEquals | F::StringEquals2 => compare_text(arguments, |text, part| text == part),
        F::IndexOf => index_of(arguments),
        F::Left => text(0).zip(arguments[1].as_integer()).map(|(text, length)| slice(text, 0, length)),
        F::Right => text(0).zip(arguments[1].as_integer()).map(|(text, length)| {
            let all = text.chars().count() as i64;
            slice(text, all.saturating_sub(length.max(0)).max(0), length)
        }),
        F::Substring => match (text(0), arguments[1].as_integer(), arguments[2].as_integer()) {
            (Some(text), Some(start), Some(length)) => Some(slice(text, start, length)),
            _ => None,
        },
        F::Length => text(0).map(|text| Val::integer(text.chars().count() as i64)),
        F::Lower => text(0).map(|text| Val::text(text.to_lowercase())),
        F::Upper => text(0).map(|text| Val::text(text.to_uppercase())),
        F::LTrim => trim(arguments, true, false),
        F::RTrim => trim(arguments, false, true),
        F::Trim => trim(arguments, true, true),
        F::RegexMatch => regex_match(arguments, env),
        F::Replace => replace(arguments, env)?,
        F::Replicate => replicate(arguments),
        F::Reverse => text(0).map(|text| Val::text(text.chars().rev().collect::<String>())),
        F::StringJoin => join(arguments, env)?,
        F::StringSplit => split(arguments, env)?,
        F::StringToArray => {
            json_text(arguments).filter(|value| value.as_array().is_some()).map(Val::of_owned)
        }
        F::StringToObject => {
            json_text(arguments).filter(|value| value.as_object().is_some()).map(Val::of_owned)
        }
        F::StringToBoolean => match text(0).map(str::trim) {
            Some("true") => Some(Val::Bool(true)),
            Some("false") => Some(Val::Bool(false)),
            _ => None,
        },
        F::StringToNull => text(0).filter(|text| text.trim() == "null").map(|_| Val::Null),
        F::StringToNumber => json_text(arguments).and_then(|value| value.as_number()).map(Val::Number),
        F::ToString => to_string(&arguments[0], env)?,
        _ => return Ok(None),
    };
    Ok(Some(result.unwrap_or(Val::Undefined)))
}

fn concat<'a>(arguments: &[Val<'a>], env: &mut Env<'a>) -> Result<Option<Val<'a>>, Stop> {
    let Some(texts) = arguments.iter().map(Val::as_text).collect::<Option<Vec<&str>>>() else {
        return Ok(None);
    };
    env.charge(texts.iter().map(|text| text.len()).sum())?;
    Ok(Some(Val::text(texts.concat())))
}

/// CONTAINS and the like: a third argument says whether case is ignored.
fn compare_text<'a>(arguments: &[Val<'a>], test: fn(&str, &str) -> bool) -> Option<Val<'a>> {
    let (text, part) = (arguments[0].as_text()?, arguments[1].as_text()?);
    let ignores_case = match arguments.get(2) {
        Some(flag) => flag.as_bool()?,
        None => false,
    };
    Some(Val::Bool(if ignores_case {
        test(&text.to_lowercase(), &part.to_lowercase())
    } else {
        test(text, part)
    }))
}

/// The place of a part, from a place on; -1 without.
fn index_of<'a>(arguments: &[Val<'a>]) -> Option<Val<'a>> {
    let (text, part) = (arguments[0].as_text()?, arguments[1].as_text()?);
    let start = match arguments.get(2) {
        Some(start) => usize::try_from(start.as_integer()?).ok()?,
        None => 0,
    };
    let skipped: usize = text.chars().take(start).map(char::len_utf8).sum();
    if start > text.chars().count() {
        return Some(Val::integer(-1));
    }
    Some(match text[skipped..].find(part) {
        Some(at) => Val::integer((start + text[skipped..skipped + at].chars().count()) as i64),
        None => Val::integer(-1),
    })
}

/// Characters from a place on; empty where there are none.
fn slice<'a>(text: &str, start: i64, length: i64) -> Val<'a> {
    let (Ok(start), Ok(length)) = (usize::try_from(start), usize::try_from(length)) else {
        return Val::text("");
    };
    Val::text(text.chars().skip(start).take(length).collect::<String>())
}

/// Without a second argument white space goes, else every leading or trailing piece equal to it.
fn trim<'a>(arguments: &[Val<'a>], at_start: bool, at_end: bool) -> Option<Val<'a>> {
    let mut text = arguments[0].as_text()?;
    match arguments.get(1) {
        None => {
            text = if at_start { text.trim_start() } else { text };
            text = if at_end { text.trim_end() } else { text };
        }
        Some(piece) => {
            let piece = piece.as_text()?;
            text = if at_start && !piece.is_empty() { text.trim_start_matches(piece) } else { text };
            text = if at_end && !piece.is_empty() { text.trim_end_matches(piece) } else { text };
        }
    }
    Some(Val::text(text))
}

fn replace<'a>(arguments: &[Val<'a>], env: &mut Env<'a>) -> Result<Option<Val<'a>>, Stop> {
    let (Some(text), Some(part), Some(with)) =
        (arguments[0].as_text(), arguments[1].as_text(), arguments[2].as_text())
    else {
        return Ok(None);
    };
    if part.is_empty() {
        return Ok(None);
    }
    env.charge(text.len() + text.matches(part).count() * with.len())?;
    Ok(Some(Val::text(text.replace(part, with))))
}

fn replicate<'a>(arguments: &[Val<'a>]) -> Option<Val<'a>> {
    let (text, count) = (arguments[0].as_text()?, usize::try_from(arguments[1].as_integer()?).ok()?);
    let letters = text.chars().count().checked_mul(count)?;
    if letters > limits::REPLICATE_LETTERS {
        return None;
    }
    Some(Val::text(if text.is_empty() { String::new() } else { text.repeat(count) }))
}

fn join<'a>(arguments: &[Val<'a>], env: &mut Env<'a>) -> Result<Option<Val<'a>>, Stop> {
    let (Some(elements), Some(between)) = (arguments[0].elements(), arguments[1].as_text()) else {
        return Ok(None);
    };
    let mut joined = String::new();
    for (index, element) in elements.enumerate() {
        let Some(text) = element.as_text() else { return Ok(None) };
        env.charge(text.len() + between.len())?;
        if index > 0 {
            joined.push_str(between);
        }
        joined.push_str(text);
    }
    Ok(Some(Val::text(joined)))
}

fn split<'a>(arguments: &[Val<'a>], env: &mut Env<'a>) -> Result<Option<Val<'a>>, Stop> {
    let (Some(text), Some(between)) = (arguments[0].as_text(), arguments[1].as_text()) else {
        return Ok(None);
    };
    if between.is_empty() {
        return Ok(Some(Val::array(vec![Val::text(text)])));
    }
    env.charge((text.matches(between).count() + 1) * size_of::<Val<'_>>() + text.len())?;
    Ok(Some(Val::array(text.split(between).map(Val::text).collect())))
}

fn json_text(arguments: &[Val<'_>]) -> Option<Value> {
    json::parse(arguments[0].as_text()?.as_bytes()).ok()
}

fn to_string<'a>(value: &Val<'a>, env: &mut Env<'a>) -> Result<Option<Val<'a>>, Stop> {
    if value.as_text().is_some() {
        return Ok(Some(value.clone()));
    }
    let mut text = Vec::new();
    // Through a tree: white space of the item's text goes.
    let Some(tree) = value.tree() else { return Ok(None) };
    json::write(&tree, &mut text);
    env.charge(text.len())?;
    Ok(String::from_utf8(text).ok().map(Val::text))
}

/// Compiles a pattern with the letters of REGEXMATCH's third argument; `None` when it is no pattern.
pub fn pattern(text: &str, modifiers: &str) -> Option<Regex> {
    let mut builder = RegexBuilder::new(text);
    builder.size_limit(limits::PATTERN_BYTES).dfa_size_limit(limits::PATTERN_BYTES);
    for modifier in modifiers.chars() {
        match modifier {
            'm' => builder.multi_line(true),
            's' => builder.dot_matches_new_line(true),
            'i' => builder.case_insensitive(true),
            'x' => builder.ignore_whitespace(true),
            _ => return None,
        };
    }
    builder.build().ok()
}

fn regex_match<'a>(arguments: &[Val<'a>], env: &mut Env<'a>) -> Option<Val<'a>> {
    let (text, wanted) = (arguments[0].as_text()?, arguments[1].as_text()?);
    let modifiers = match arguments.get(2) {
        Some(modifiers) => modifiers.as_text()?,
        None => "",
    };
    let name = format!("{modifiers}/{wanted}");
    if env.pattern.as_ref().is_none_or(|(known, _)| *known != name) {
        env.pattern = Some((name, pattern(wanted, modifiers)));
    }
    let (_, compiled) = env.pattern.as_ref()?;
    Some(Val::Bool(compiled.as_ref()?.is_match(text)))
}
