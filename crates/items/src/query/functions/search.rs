//! Distances of vectors, and words in text.

use super::Function as F;
use super::Function;
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

/// Words without case and punctuation.
pub fn words(text: &str) -> Vec<String> {
    let is_break = |letter: char| !letter.is_alphanumeric();
    text.split(is_break).filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
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
