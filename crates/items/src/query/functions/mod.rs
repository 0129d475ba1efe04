//! Built-in functions (13.3). An argument of a wrong type, or undefined, makes the result undefined unless a function says otherwise.

mod arrays;
mod dates;
mod integers;
mod math;
mod search;
mod spatial;
mod stop_words;
mod strings;

pub use search::{occurrences, telling_words};
pub use strings::Matcher;

use super::evaluate::{Env, Evaluated, Stop};
use super::value::Val;

/// Any number of arguments.
const MANY: usize = usize::MAX;

macro_rules! functions {
    ($($variant:ident $name:literal $least:literal $most:expr;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Function { $($variant),* }

        /// Name in capitals, function, fewest and most arguments.
        const TABLE: &[(&str, Function, usize, usize)] = &[$(($name, Function::$variant, $least, $most)),*];
    };
}

functions! {
    IsArray "IS_ARRAY" 1 1; IsBool "IS_BOOL" 1 1; IsDefined "IS_DEFINED" 1 1; IsFiniteNumber "IS_FINITE_NUMBER" 1 1;
    IsInteger "IS_INTEGER" 1 1; IsNull "IS_NULL" 1 1; IsNumber "IS_NUMBER" 1 1; IsObject "IS_OBJECT" 1 1;
    IsPrimitive "IS_PRIMITIVE" 1 1; IsString "IS_STRING" 1 1; IsDate "IS_DATETIME" 1 1;
    Concat "CONCAT" 2 MANY; Contains "CONTAINS" 2 3; EndsWith "ENDSWITH" 2 3; IndexOf "INDEX_OF" 2 3; Left "LEFT" 2 2;
    Length "LENGTH" 1 1; Lower "LOWER" 1 1; LTrim "LTRIM" 1 2; RegexMatch "REGEXMATCH" 2 3; Replace "REPLACE" 3 3;
    Replicate "REPLICATE" 2 2; Reverse "REVERSE" 1 1; Right "RIGHT" 2 2; RTrim "RTRIM" 1 2; StartsWith "STARTSWITH" 2 3;
    StringEquals "STRINGEQUALS" 2 3; StringEquals2 "STRING_EQUALS" 2 3; StringJoin "STRINGJOIN" 2 2; StringSplit "STRINGSPLIT" 2 2;
    StringToArray "STRINGTOARRAY" 1 1; StringToBoolean "STRINGTOBOOLEAN" 1 1; StringToNull "STRINGTONULL" 1 1;
    StringToNumber "STRINGTONUMBER" 1 1; StringToObject "STRINGTOOBJECT" 1 1; Substring "SUBSTRING" 3 3;
    ToString "TOSTRING" 1 1; Trim "TRIM" 1 2; Upper "UPPER" 1 1;
    Abs "ABS" 1 1; Acos "ACOS" 1 1; Asin "ASIN" 1 1; Atan "ATAN" 1 1; Atn2 "ATN2" 2 2; Ceiling "CEILING" 1 1; Cos "COS" 1 1;
    Cot "COT" 1 1; Degrees "DEGREES" 1 1; Exp "EXP" 1 1; Floor "FLOOR" 1 1; Log "LOG" 1 2; Log10 "LOG10" 1 1;
    NumberBin "NUMBERBIN" 1 2; Pi "PI" 0 0; Power "POWER" 2 2; Radians "RADIANS" 1 1; Rand "RAND" 0 0; Round "ROUND" 1 2;
    Sign "SIGN" 1 1; Sin "SIN" 1 1; Sqrt "SQRT" 1 1; Square "SQUARE" 1 1; Tan "TAN" 1 1; Trunc "TRUNC" 1 1;
    IntAdd "INTADD" 2 2; IntSub "INTSUB" 2 2; IntMul "INTMUL" 2 2; IntDiv "INTDIV" 2 2; IntMod "INTMOD" 2 2;
    IntBitAnd "INTBITAND" 2 2; IntBitOr "INTBITOR" 2 2; IntBitXor "INTBITXOR" 2 2; IntBitNot "INTBITNOT" 1 1;
    IntBitLeftShift "INTBITLEFTSHIFT" 2 2; IntBitRightShift "INTBITRIGHTSHIFT" 2 2;
    ArrayAvg "ARRAY_AVG" 1 1; ArrayConcat "ARRAY_CONCAT" 2 MANY; ArrayContains "ARRAY_CONTAINS" 2 3;
    ArrayContainsAll "ARRAY_CONTAINS_ALL" 2 MANY; ArrayContainsAny "ARRAY_CONTAINS_ANY" 2 MANY; ArrayLength "ARRAY_LENGTH" 1 1;
    ArrayMax "ARRAY_MAX" 1 1; ArrayMedian "ARRAY_MEDIAN" 1 1; ArrayMin "ARRAY_MIN" 1 1; ArraySlice "ARRAY_SLICE" 2 3;
    ArraySum "ARRAY_SUM" 1 1; Choose "CHOOSE" 2 MANY; ObjectToArray "OBJECTTOARRAY" 1 3; SetIntersect "SETINTERSECT" 2 2;
    SetUnion "SETUNION" 2 2; SetDifference "SETDIFFERENCE" 2 2; SetEqual "SETEQUAL" 2 2;
    DateTimeAdd "DATETIMEADD" 3 3; DateTimeBin "DATETIMEBIN" 2 4; DateTimeDiff "DATETIMEDIFF" 3 3;
    DateTimeFromParts "DATETIMEFROMPARTS" 3 7; DateTimePart "DATETIMEPART" 2 2;
    DateTimeToTicks "DATETIMETOTICKS" 1 1; DateTimeToTimestamp "DATETIMETOTIMESTAMP" 1 1; GetCurrentDateTime "GETCURRENTDATETIME" 0 0;
    GetCurrentDateTimeStatic "GETCURRENTDATETIMESTATIC" 0 0; GetCurrentTicks "GETCURRENTTICKS" 0 0;
    GetCurrentTicksStatic "GETCURRENTTICKSSTATIC" 0 0; GetCurrentTimestamp "GETCURRENTTIMESTAMP" 0 0;
    GetCurrentTimestampStatic "GETCURRENTTIMESTAMPSTATIC" 0 0; TicksToDateTime "TICKSTODATETIME" 1 1;
    TimestampToDateTime "TIMESTAMPTODATETIME" 1 1;
    Iif "IIF" 3 3; DocumentId "DOCUMENTID" 1 1;
    StArea "ST_AREA" 1 1; StDistance "ST_DISTANCE" 2 2; StIntersects "ST_INTERSECTS" 2 2; StIsValid "ST_ISVALID" 1 1;
    StIsValidDetailed "ST_ISVALIDDETAILED" 1 1; StWithin "ST_WITHIN" 2 2;
    VectorDistance "VECTORDISTANCE" 2 4; FullTextContains "FULLTEXTCONTAINS" 2 2; FullTextContainsAll "FULLTEXTCONTAINSALL" 2 MANY;
    FullTextContainsAny "FULLTEXTCONTAINSANY" 2 MANY;
}

impl Function {
    /// The function of that name, whatever its case, with its fewest and most arguments.
    pub fn by_name(name: &str) -> Option<(Function, usize, usize)> {
        let name = name.to_ascii_uppercase();
        let found = TABLE.iter().find(|(known, ..)| *known == name)?;
        Some((found.1, found.2, found.3))
    }

    /// Whether the result depends on the arguments alone.
    pub fn is_pure(self) -> bool {
        use Function as F;
        !matches!(
            self,
            F::Rand
                | F::GetCurrentDateTime
                | F::GetCurrentDateTimeStatic
                | F::GetCurrentTicks
                | F::GetCurrentTicksStatic
                | F::GetCurrentTimestamp
                | F::GetCurrentTimestampStatic
        )
    }
}

/// Calls a function. The number of arguments was checked when the query was read.
pub fn call<'a>(function: Function, arguments: &[Val<'a>], env: &mut Env<'a>) -> Evaluated<'a> {
    use Function as F;
    let first = arguments.first().unwrap_or(&Val::Undefined);
    Ok(match function {
        F::IsArray => Val::Bool(first.is_array()),
        F::IsBool => Val::Bool(first.as_bool().is_some()),
        F::IsDefined => Val::Bool(!first.is_undefined()),
        F::IsFiniteNumber => Val::Bool(first.as_number().is_some_and(f64::is_finite)),
        F::IsInteger => Val::Bool(first.as_integer().is_some()),
        F::IsNull => Val::Bool(matches!(first, Val::Null)),
        F::IsNumber => Val::Bool(first.as_number().is_some()),
        F::IsObject => Val::Bool(first.is_object()),
        F::IsPrimitive => {
            Val::Bool(matches!(first, Val::Null | Val::Bool(_) | Val::Number(_) | Val::Text(_)))
        }
        F::IsString => Val::Bool(first.as_text().is_some()),
        F::IsDate => Val::Bool(first.as_text().is_some_and(|text| dates::parse(text).is_some())),
        F::Iif => match first.as_bool() {
            Some(true) => arguments[1].clone(),
            _ => arguments[2].clone(),
        },
        F::DocumentId => document_id(first),
        F::Rand => {
            env.random = env.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            Val::number((mixed(env.random) >> 11) as f64 / (1_u64 << 53) as f64)
        }
        F::GetCurrentDateTime | F::GetCurrentDateTimeStatic => {
            Val::text(dates::format(dates::ticks_of_ms(env.now.0)))
        }
        F::GetCurrentTicks | F::GetCurrentTicksStatic => Val::integer(dates::ticks_of_ms(env.now.0)),
        F::GetCurrentTimestamp | F::GetCurrentTimestampStatic => Val::integer(env.now.0),
        _ => {
            let found = strings::call(function, arguments, env)?
                .or_else(|| math::call(function, arguments))
                .or_else(|| integers::call(function, arguments))
                .or_else(|| dates::call(function, arguments));
            if let Some(value) = found {
                return Ok(value);
            }
            if let Some(value) = spatial::call(function, arguments, env)? {
                return Ok(value);
            }
            match search::call(function, arguments, env)? {
                Some(value) => value,
                None => arrays::call(function, arguments, env)?,
            }
        }
    })
}

/// Every argument is going to be gone through, so many times.
fn look_through(arguments: &[Val<'_>], times: usize, env: &Env<'_>) -> Result<(), Stop> {
    arguments.iter().try_for_each(|argument| env.look(times * env.weigh(argument)?))
}

/// The number inside the item's `_rid`: its last eight bytes, of which the top nibble is the kind (P-27).
pub fn document_id<'a>(item: &Val<'a>) -> Val<'a> {
    use base64::Engine;
    let rid = item.member("_rid");
    let Some(text) = rid.as_text() else { return Val::Undefined };
    let decoded = base64::engine::general_purpose::STANDARD.decode(text.replace('-', "/"));
    match decoded.as_deref().map(<[u8]>::len) {
        Ok(16) => {}
        _ => return Val::Undefined,
    }
    let bytes = decoded.unwrap_or_default();
    let counter = bytes[8..].iter().rev().fold(0_i64, |number, byte| number << 8 | i64::from(*byte));
    Val::integer(counter & 0x0fff_ffff_ffff_ffff)
}

/// Spreads the bits of a counter: SplitMix64's last step.
pub fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}
