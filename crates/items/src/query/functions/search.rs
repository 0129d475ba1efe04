//! Distances of vectors, and words in text.

use super::Function as F;
use super::Function;
use super::stop_words::is_stop_word;
use crate::query::value::Val;

pub fn call<'a>(function: Function, arguments: &[Val<'a>]) -> Option<Val<'a>> {
    let result = match function {
        F::VectorDistance => distance(arguments).map(Val::number),
        F::FullTextContains => full_text(&arguments[0], &arguments[1..], true),
        F::FullTextContainsAll => full_text(&arguments[0], &arguments[1..], true),
        F::FullTextContainsAny => full_text(&arguments[0], &arguments[1..], false),
        _ => return None,
    };
    Some(result.unwrap_or(Val::Undefined))
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
fn words(text: &str) -> Vec<String> {
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
pub fn telling_words(text: &str, is_english: bool) -> Vec<String> {
    let mut words = words(text);
    if is_english {
        words.retain(|word| !is_stop_word(word));
    }
    words
}

/// Whether all, or any, of the phrases occur, word by word.
fn full_text<'a>(value: &Val<'a>, wanted: &[Val<'a>], wants_all: bool) -> Option<Val<'a>> {
    let there = words(value.as_text()?);
    let mut count = 0;
    for phrase in wanted {
        let phrase = words(phrase.as_text()?);
        let is_there = !phrase.is_empty() && there.windows(phrase.len()).any(|window| window == phrase);
        count += usize::from(is_there);
    }
    Some(Val::Bool(if wants_all { count == wanted.len() } else { count > 0 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    // CX-13.9
    #[test]
    fn a_number_is_one_word_and_punctuation_none() {
        assert_eq!(
            words("Was 1,977.5 (at the 2010. census), 3,x v1.2 ÄÖ."),
            ["was", "1,977.5", "at", "the", "2010", "census", "3", "x", "v1.2", "äö"]
        );
        assert_eq!(words(".,;"), [""; 0]);
    }

    // CX-13.9
    #[test]
    fn words_that_every_english_text_is_full_of_do_not_count() {
        assert_eq!(telling_words("The state of the art", true), ["state", "art"]);
        assert_eq!(telling_words("Was will me that", true), [""; 0]);
        assert_eq!(telling_words("Was will das", false), ["was", "will", "das"]);
    }
}
