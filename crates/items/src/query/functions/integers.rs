//! Integer functions: of whole numbers of 64 bits, exact; they wrap as two's complement does.

use super::Function as F;
use super::Function;
use crate::query::value::Val;

pub fn call<'a>(function: Function, arguments: &[Val<'a>]) -> Option<Val<'a>> {
    let is_ours = matches!(
        function,
        F::IntAdd
            | F::IntSub
            | F::IntMul
            | F::IntDiv
            | F::IntMod
            | F::IntBitAnd
            | F::IntBitOr
            | F::IntBitXor
            | F::IntBitNot
            | F::IntBitLeftShift
            | F::IntBitRightShift
    );
    if !is_ours {
        return None;
    }
    let left = arguments.first().and_then(Val::as_integer);
    // IntBitNot has one argument.
    let right = arguments.get(1).map_or(Some(0), Val::as_integer);
    let result = match (left, right) {
        (Some(left), Some(right)) => compute(function, left, right),
        _ => None,
    };
    Some(result.map_or(Val::Undefined, Val::integer))
}

fn compute(function: Function, left: i64, right: i64) -> Option<i64> {
    Some(match function {
        F::IntAdd => left.wrapping_add(right),
        F::IntSub => left.wrapping_sub(right),
        F::IntMul => left.wrapping_mul(right),
        // By zero is undefined, and so is the one quotient that does not fit.
        F::IntDiv => left.checked_div(right)?,
        F::IntMod => left.checked_rem(right)?,
        F::IntBitAnd => left & right,
        F::IntBitOr => left | right,
        F::IntBitXor => left ^ right,
        F::IntBitNot => !left,
        F::IntBitLeftShift => match u32::try_from(right).ok()? {
            by @ 0..64 => left << by,
            _ => 0,
        },
        F::IntBitRightShift => left >> u32::try_from(right).ok()?.min(63),
        _ => return None,
    })
}
