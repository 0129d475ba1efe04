//! String functions. Places and lengths count characters.

use super::Function as F;
use super::Function;
use crate::json::{self, Value};
use crate::limits;
use crate::query::evaluate::{Env, Stop};
use crate::query::value::{Val, tree_bytes_of_text};
use regex::{Regex, RegexBuilder};

pub fn call<'a>(
    function: Function,
    arguments: &[Val<'a>],
    env: &mut Env<'a>,
) -> Result<Option<Val<'a>>, Stop> {
    let text = |at: usize| arguments.get(at).and_then(Val::as_text);
    let result = match function {
        F::Concat => concat(arguments, env)?,
        F::Contains => compare_text(arguments, env, |text, part| text.contains(part))?,
        F::EndsWith => compare_text(arguments, env, |text, part| text.ends_with(part))?,
        F::StartsWith => compare_text(arguments, env, |text, part| text.starts_with(part))?,
        F::StringEquals | F::StringEquals2 => compare_text(arguments, env, |text, part| text == part)?,
        F::IndexOf => {
            look_at_texts(arguments, env)?;
            index_of(arguments)
        }
        F::Left => match (text(0), arguments[1].as_integer()) {
            (Some(text), Some(length)) => Some(slice(text, 0, length, env)?),
            _ => None,
        },
        F::Right => match (text(0), arguments[1].as_integer()) {
            (Some(text), Some(length)) => {
                env.look(text.len())?;
                let all = text.chars().count() as i64;
                Some(slice(text, all.saturating_sub(length.max(0)).max(0), length, env)?)
            }
            _ => None,
        },
        F::Substring => match (text(0), arguments[1].as_integer(), arguments[2].as_integer()) {
            (Some(text), Some(start), Some(length)) => Some(slice(text, start, length, env)?),
            _ => None,
        },
        F::Length => {
            look_at_texts(arguments, env)?;
            text(0).map(|text| Val::integer(text.chars().count() as i64))
        }
        F::Lower => changed(text(0), env, str::to_lowercase)?,
        F::Upper => changed(text(0), env, str::to_uppercase)?,
        F::LTrim => trim(arguments, true, false, env)?,
        F::RTrim => trim(arguments, false, true, env)?,
        F::Trim => trim(arguments, true, true, env)?,
        F::RegexMatch => regex_match(arguments, env)?,
        F::Replace => replace(arguments, env)?,
        F::Replicate => replicate(arguments, env)?,
        F::Reverse => changed(text(0), env, |text| text.chars().rev().collect())?,
        F::StringJoin => join(arguments, env)?,
        F::StringSplit => split(arguments, env)?,
        F::StringToArray => {
            json_text(arguments, env)?.filter(|value| value.as_array().is_some()).map(Val::of_owned)
        }
        F::StringToObject => {
            json_text(arguments, env)?.filter(|value| value.as_object().is_some()).map(Val::of_owned)
        }
        F::StringToBoolean => match text(0).map(str::trim) {
            Some("true") => Some(Val::Bool(true)),
            Some("false") => Some(Val::Bool(false)),
            _ => None,
        },
        F::StringToNull => text(0).filter(|text| text.trim() == "null").map(|_| Val::Null),
        F::StringToNumber => json_text(arguments, env)?.and_then(|value| value.as_number()).map(Val::Number),
        F::ToString => to_string(&arguments[0], env)?,
        _ => return Ok(None),
    };
    Ok(Some(result.unwrap_or(Val::Undefined)))
}

/// Every text among the arguments is going to be looked at.
fn look_at_texts(arguments: &[Val<'_>], env: &Env<'_>) -> Result<(), Stop> {
    env.look(arguments.iter().filter_map(Val::as_text).map(str::len).sum())
}

/// A text that is made of another one, letter by letter. A letter may become longer.
fn changed<'a>(
    text: Option<&str>,
    env: &Env<'a>,
    change: impl Fn(&str) -> String,
) -> Result<Option<Val<'a>>, Stop> {
    let Some(text) = text else { return Ok(None) };
    env.look(4 * text.len())?;
    env.charge(2 * text.len())?;
    Ok(Some(Val::text(change(text))))
}

fn concat<'a>(arguments: &[Val<'a>], env: &mut Env<'a>) -> Result<Option<Val<'a>>, Stop> {
    let Some(texts) = arguments.iter().map(Val::as_text).collect::<Option<Vec<&str>>>() else {
        return Ok(None);
    };
    env.make(texts.iter().map(|text| text.len()).sum())?;
    Ok(Some(Val::text(texts.concat())))
}

/// CONTAINS and the like: a third argument says whether case is ignored.
fn compare_text<'a>(
    arguments: &[Val<'a>],
    env: &Env<'a>,
    test: fn(&str, &str) -> bool,
) -> Result<Option<Val<'a>>, Stop> {
    let (Some(text), Some(part)) = (arguments[0].as_text(), arguments[1].as_text()) else { return Ok(None) };
    let ignores_case = match arguments.get(2).map(Val::as_bool) {
        Some(Some(flag)) => flag,
        Some(None) => return Ok(None),
        None => false,
    };
    if !ignores_case {
        look_at_texts(arguments, env)?;
        return Ok(Some(Val::Bool(test(text, part))));
    }
    let (before, bytes) = (env.meter.row_bytes(), text.len() + part.len());
    env.look(4 * bytes)?;
    env.charge(2 * bytes)?;
    let fact = test(&text.to_lowercase(), &part.to_lowercase());
    env.meter.free_to(before);
    Ok(Some(Val::Bool(fact)))
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
fn slice<'a>(text: &str, start: i64, length: i64, env: &Env<'a>) -> Result<Val<'a>, Stop> {
    let (Ok(start), Ok(length)) = (usize::try_from(start), usize::try_from(length)) else {
        return Ok(Val::text(""));
    };
    env.look(text.len())?;
    // A letter has up to four bytes; a text of them grows by doubling.
    env.make(text.len().min(length.saturating_mul(4)))?;
    Ok(Val::text(text.chars().skip(start).take(length).collect::<String>()))
}

/// Without a second argument white space goes, else every leading or trailing piece equal to it.
fn trim<'a>(
    arguments: &[Val<'a>],
    at_start: bool,
    at_end: bool,
    env: &Env<'a>,
) -> Result<Option<Val<'a>>, Stop> {
    let Some(mut text) = arguments[0].as_text() else { return Ok(None) };
    look_at_texts(arguments, env)?;
    match arguments.get(1).map(Val::as_text) {
        None => {
            text = if at_start { text.trim_start() } else { text };
            text = if at_end { text.trim_end() } else { text };
        }
        Some(None) => return Ok(None),
        Some(Some(piece)) => {
            text = if at_start && !piece.is_empty() { text.trim_start_matches(piece) } else { text };
            text = if at_end && !piece.is_empty() { text.trim_end_matches(piece) } else { text };
        }
    }
    env.make(text.len())?;
    Ok(Some(Val::text(text)))
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
    env.look(text.len() + part.len())?;
    env.make(text.len() + text.matches(part).count() * with.len())?;
    Ok(Some(Val::text(text.replace(part, with))))
}

fn replicate<'a>(arguments: &[Val<'a>], env: &Env<'a>) -> Result<Option<Val<'a>>, Stop> {
    let (Some(text), Some(count)) = (arguments[0].as_text(), arguments[1].as_integer()) else {
        return Ok(None);
    };
    let Ok(count) = usize::try_from(count) else { return Ok(None) };
    env.look(text.len())?;
    if text.chars().count().checked_mul(count).is_none_or(|letters| letters > limits::REPLICATE_LETTERS) {
        return Ok(None);
    }
    if text.is_empty() {
        return Ok(Some(Val::text("")));
    }
    env.make(text.len() * count)?;
    Ok(Some(Val::text(text.repeat(count))))
}

fn join<'a>(arguments: &[Val<'a>], env: &mut Env<'a>) -> Result<Option<Val<'a>>, Stop> {
    let (Some(elements), Some(between)) = (arguments[0].elements(), arguments[1].as_text()) else {
        return Ok(None);
    };
    let mut joined = String::new();
    for (index, element) in elements.enumerate() {
        let Some(text) = element.as_text() else { return Ok(None) };
        env.step()?;
        env.charge(2 * (text.len() + between.len()))?;
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
        env.make(text.len())?;
        return Ok(Some(Val::array(vec![Val::text(text)])));
    }
    env.look(text.len() + between.len())?;
    let parts = text.matches(between).count() + 1;
    env.look(parts * limits::STEP_BYTES as usize)?;
    env.make(parts * limits::PART_COST + text.len())?;
    Ok(Some(Val::array(text.split(between).map(Val::text).collect())))
}

fn json_text(arguments: &[Val<'_>], env: &Env<'_>) -> Result<Option<Value>, Stop> {
    let Some(text) = arguments[0].as_text() else { return Ok(None) };
    env.look(limits::TREE_WORK * text.len())?;
    // As a tree and as the value that is made of it, for a moment both.
    env.charge(2 * tree_bytes_of_text(text.as_bytes()))?;
    Ok(json::parse(text.as_bytes()).ok())
}

fn to_string<'a>(value: &Val<'a>, env: &Env<'a>) -> Result<Option<Val<'a>>, Stop> {
    if value.as_text().is_some() {
        return Ok(Some(value.clone()));
    }
    env.look(limits::TREE_WORK * env.weigh(value)?)?;
    let before = env.meter.row_bytes();
    env.charge(value.tree_bytes())?;
    let mut text = Vec::new();
    // Through a tree: white space of the item's text goes.
    let Some(tree) = value.tree() else { return Ok(None) };
    json::write(&tree, &mut text);
    env.meter.free_to(before);
    env.charge(2 * text.len())?;
    Ok(String::from_utf8(text).ok().map(Val::text))
}

/// A pattern of REGEXMATCH.
#[derive(Debug, Clone)]
pub struct Matcher {
    regex: Regex,
    /// Bytes that it may take.
    pub held_bytes: usize,
    /// What matching takes for each byte of a text, at worst: a pattern that is large when it is compiled may be followed in many places at once.
    work: usize,
}

impl Matcher {
    /// Compiles a pattern with the letters of REGEXMATCH's third argument; `None` when it is no pattern.
    pub fn new(text: &str, modifiers: &str) -> Option<Matcher> {
        let compiled = |bytes: usize| {
            let mut builder = RegexBuilder::new(text);
            builder.size_limit(bytes).dfa_size_limit(bytes);
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
        };
        let (small, large) = (limits::SMALL_PATTERN_BYTES, limits::PATTERN_BYTES);
        if let Some(regex) = compiled(small) {
            return Some(Matcher { regex, held_bytes: 2 * small, work: SMALL_PATTERN_WORK });
        }
        compiled(large).map(|regex| Matcher { regex, held_bytes: 2 * large, work: PATTERN_WORK })
    }

    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// What matching a text takes at most, in bytes.
    pub fn work(&self, text: &str) -> usize {
        self.work.saturating_mul(text.len())
    }
}

const SMALL_PATTERN_WORK: usize = 8;
const PATTERN_WORK: usize = 128;

fn regex_match<'a>(arguments: &[Val<'a>], env: &mut Env<'a>) -> Result<Option<Val<'a>>, Stop> {
    let (Some(text), Some(wanted)) = (arguments[0].as_text(), arguments[1].as_text()) else {
        return Ok(None);
    };
    let modifiers = match arguments.get(2).map(Val::as_text) {
        Some(Some(modifiers)) => modifiers,
        Some(None) => return Ok(None),
        None => "",
    };
    env.look(wanted.len() + modifiers.len())?;
    if wanted.len() + modifiers.len() > limits::PATTERN_TEXT_BYTES {
        return Ok(None);
    }
    let name = format!("{modifiers}/{wanted}");
    if env.pattern.as_ref().is_none_or(|(known, _)| *known != name) {
        // What compiling takes grows with what is compiled.
        env.look(limits::SMALL_PATTERN_BYTES)?;
        let matcher = Matcher::new(wanted, modifiers);
        if let Some(matcher) = &matcher {
            env.look(4 * matcher.held_bytes)?;
        }
        env.pattern = Some((name, matcher));
    }
    let Some((_, Some(matcher))) = &env.pattern else { return Ok(None) };
    env.look(matcher.work(text))?;
    Ok(Some(Val::Bool(matcher.is_match(text))))
}
