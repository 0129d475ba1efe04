//! Distances of vectors, and words in text.

use super::Function as F;
use super::stop_words::is_stop_word;
use super::{Function, look_through};
use crate::limits::WORD_COST;
use crate::query::evaluate::{Env, Stop};
use crate::query::value::Val;

/// What finding and comparing words takes, in bytes for each of them.
const WORD_WORK: usize = 8;

pub fn call<'a>(function: Function, arguments: &[Val<'a>], env: &Env<'a>) -> Result<Option<Val<'a>>, Stop> {
    let result = match function {
        F::VectorDistance => {
            look_through(arguments, 8, env)?;
            distance(arguments).map(Val::number)
        }
        F::FullTextContains | F::FullTextContainsAll => full_text(&arguments[0], &arguments[1..], true, env)?,
        F::FullTextContainsAny => full_text(&arguments[0], &arguments[1..], false, env)?,
        _ => return Ok(None),
    };
    Ok(Some(result.unwrap_or(Val::Undefined)))
}

fn vector(value: &Val<'_>) -> Option<Vec<f64>> {
    value.elements()?.map(|element| element.as_number()).collect()
}

/// Cosine similarity, unless the fourth argument names another: `{"distanceFunction": "euclidean"}`.
fn distance(arguments: &[Val<'_>]) -> Option<f64> {
    let (left, right) = (vector(&arguments[0])?, vector(&arguments[1])?);
    if left.len() != right.len() || left.is_empty() {
        return None;
    }
    let options = arguments.get(3).map(|options| options.member("distanceFunction"));
    let name = options.as_ref().and_then(Val::as_text).unwrap_or("cosine").to_ascii_lowercase();
    let dot =
        |left: &[f64], right: &[f64]| left.iter().zip(right).map(|(left, right)| left * right).sum::<f64>();
    match name.as_str() {
        "cosine" => Some(dot(&left, &right) / (dot(&left, &left).sqrt() * dot(&right, &right).sqrt())),
        "dotproduct" => Some(dot(&left, &right)),
        "euclidean" => {
            let squares = left.iter().zip(&right).map(|(left, right)| (left - right) * (left - right));
            Some(squares.sum::<f64>().sqrt())
        }
        _ => None,
    }
}

/// Words without case and punctuation. Point and comma between two digits belong to the number (CX-13.9).
fn words(text: &str, env: &Env<'_>) -> Result<Vec<String>, Stop> {
    env.look(WORD_WORK * text.len())?;
    let words = split(text);
    env.charge(text.len() + words.len() * WORD_COST)?;
    Ok(words)
}

fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut start = None;
    let mut before = ' ';
    for (at, letter) in text.char_indices() {
        let is_in_number = || {
            let next = text[at + letter.len_utf8()..].chars().next();
            before.is_ascii_digit() && next.is_some_and(|next| next.is_ascii_digit())
        };
        if letter.is_alphanumeric() || (matches!(letter, '.' | ',') && is_in_number()) {
            start.get_or_insert(at);
        } else if let Some(start) = start.take() {
            words.push(text[start..at].to_lowercase());
        }
        before = letter;
    }
    words.extend(start.map(|start| text[start..].to_lowercase()));
    words
}

/// The words that count for a score: in English, not those that every text is full of.
pub fn telling_words(text: &str, is_english: bool, env: &Env<'_>) -> Result<Vec<String>, Stop> {
    let mut words = words(text, env)?;
    if is_english {
        words.retain(|word| !is_stop_word(word));
    }
    Ok(words)
}

/// How often a phrase is in a text, word by word, up to `most`. Takes time that grows with both: where a word does not fit, the longest beginning
/// of the phrase that ends there goes on, and no word is compared anew (Knuth, Morris and Pratt).
pub fn occurrences(there: &[String], phrase: &[String], most: usize, env: &Env<'_>) -> Result<usize, Stop> {
    env.look(WORD_WORK * (there.len() + 2 * phrase.len()))?;
    if phrase.is_empty() || phrase.len() > there.len() {
        return Ok(0);
    }
    env.charge(phrase.len() * size_of::<usize>())?;
    // The longest proper beginning of the phrase that is the end of its first so many words.
    let mut shorter = vec![0; phrase.len()];
    let mut begun = 0;
    for at in 1..phrase.len() {
        while begun > 0 && phrase[begun] != phrase[at] {
            begun = shorter[begun - 1];
        }
        begun += usize::from(phrase[begun] == phrase[at]);
        shorter[at] = begun;
    }
    let (mut count, mut begun) = (0, 0);
    for word in there {
        while begun > 0 && (begun == phrase.len() || phrase[begun] != *word) {
            begun = shorter[begun - 1];
        }
        begun += usize::from(phrase[begun] == *word);
        if begun == phrase.len() {
            count += 1;
            if count >= most {
                break;
            }
        }
    }
    Ok(count)
}

/// Whether all, or any, of the phrases occur, word by word.
fn full_text<'a>(
    value: &Val<'a>,
    wanted: &[Val<'a>],
    wants_all: bool,
    env: &Env<'a>,
) -> Result<Option<Val<'a>>, Stop> {
    let Some(text) = value.as_text() else { return Ok(None) };
    let before = env.meter.row_bytes();
    let there = words(text, env)?;
    let mut count = 0;
    for phrase in wanted {
        let Some(phrase) = phrase.as_text() else { return Ok(None) };
        let phrase = words(phrase, env)?;
        count += occurrences(&there, &phrase, 1, env)?;
    }
    env.meter.free_to(before);
    Ok(Some(Val::Bool(if wants_all { count == wanted.len() } else { count > 0 })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::meter::{Meter, Unwatched};
    use crate::time::Time;

    #[test]
    fn phrases_are_counted_as_trying_every_place_counts_them() {
        let meter = Meter::query(&Unwatched);
        let env = Env::new(Time(0), 0, &meter);
        let of = |bits: u32, length: u32| {
            (0..length).map(|nth| if bits >> nth & 1 == 0 { "a" } else { "b" }.to_owned()).collect::<Vec<_>>()
        };
        let there = of(0b1101_0110_0101_0010, 16);
        for length in 1..5 {
            for phrase in (0..1 << length).map(|bits| of(bits, length)) {
                let plain = there.windows(phrase.len()).filter(|part| *part == phrase).count();
                assert_eq!(occurrences(&there, &phrase, usize::MAX, &env).unwrap(), plain, "{phrase:?}");
                assert_eq!(occurrences(&there, &phrase, 1, &env).unwrap(), plain.min(1));
            }
        }
    }

    // CX-13.9
    #[test]
    fn a_number_is_one_word_and_punctuation_none() {
        assert_eq!(
            split("Was 1,977.5 (at the 2010. census), 3,x v1.2 ÄÖ."),
            ["was", "1,977.5", "at", "the", "2010", "census", "3", "x", "v1.2", "äö"]
        );
        assert_eq!(split(".,;"), [""; 0]);
    }

    // CX-13.9
    #[test]
    fn words_that_every_english_text_is_full_of_do_not_count() {
        let meter = Meter::query(&Unwatched);
        let env = Env::new(Time(0), 0, &meter);
        assert_eq!(telling_words("The state of the art", true, &env).unwrap(), ["state", "art"]);
        assert_eq!(telling_words("Was will me that", true, &env).unwrap(), [""; 0]);
        assert_eq!(telling_words("Was will das", false, &env).unwrap(), ["was", "will", "das"]);
    }
}
