//! Mathematical functions: of numbers only; what is no number in the end is undefined.

use super::Function as F;
use super::Function;
use crate::query::value::Val;

pub fn call<'a>(function: Function, arguments: &[Val<'a>]) -> Option<Val<'a>> {
    let number = |at: usize| arguments.get(at).and_then(Val::as_number);
    let one = |compute: fn(f64) -> f64| number(0).map(compute);
    let result = match function {
        F::Abs => one(f64::abs),
        F::Acos => one(f64::acos),
        F::Asin => one(f64::asin),
        F::Atan => one(f64::atan),
        F::Atn2 => number(0).zip(number(1)).map(|(y, x)| y.atan2(x)),
        F::Ceiling => one(f64::ceil),
        F::Cos => one(f64::cos),
        F::Cot => one(|angle| 1.0 / angle.tan()),
        F::Degrees => one(f64::to_degrees),
        F::Exp => one(f64::exp),
        F::Floor => one(f64::floor),
        F::Log => match arguments.get(1) {
            Some(base) => number(0).zip(base.as_number()).map(|(number, base)| number.ln() / base.ln()),
            None => one(f64::ln),
        },
        F::Log10 => one(f64::log10),
        F::NumberBin => number_bin(arguments),
        F::Pi => Some(std::f64::consts::PI),
        F::Power => number(0).zip(number(1)).map(|(base, exponent)| base.powf(exponent)),
        F::Radians => one(f64::to_radians),
        F::Round => round(arguments),
        F::Sign => one(|number| if number == 0.0 { 0.0 } else { number.signum() }),
        F::Sin => one(f64::sin),
        F::Sqrt => one(f64::sqrt),
        F::Square => one(|number| number * number),
        F::Tan => one(f64::tan),
        F::Trunc => one(f64::trunc),
        _ => return None,
    };
    Some(result.map_or(Val::Undefined, Val::number))
}

/// Halves go away from zero. A second argument is the number of decimal places.
fn round(arguments: &[Val<'_>]) -> Option<f64> {
    let number = arguments[0].as_number()?;
    let Some(places) = arguments.get(1) else { return Some(number.round()) };
    let places = i32::try_from(places.as_integer()?).ok().filter(|places| (-15..=15).contains(places))?;
    let scale = 10_f64.powi(places);
    Some((number * scale).round() / scale)
}

/// Down to a multiple of the bin size, 1 without one.
fn number_bin(arguments: &[Val<'_>]) -> Option<f64> {
    let number = arguments[0].as_number()?;
    let size = match arguments.get(1) {
        Some(size) => size.as_number()?,
        None => 1.0,
    };
    if size == 0.0 {
        return None;
    }
    Some((number / size).floor() * size)
}
