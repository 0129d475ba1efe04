//! Throughput that is provisioned (section 15).

use crate::json::{self, Value};
use crate::{Refusal, Throughput, limits};

/// P-77
pub fn check(throughput: Throughput) -> Result<(), Refusal> {
    let (name, units, least, step) = match throughput {
        Throughput::Fixed(units) => ("throughput", units, limits::THROUGHPUT_LEAST, limits::THROUGHPUT_STEP),
        Throughput::Autoscale(units) => (
            "maximum throughput of an autoscale offer",
            units,
            limits::AUTOSCALE_LEAST,
            limits::AUTOSCALE_STEP,
        ),
    };
    if (least..=limits::THROUGHPUT_MOST).contains(&units) && units % step == 0 {
        return Ok(());
    }
    Err(Refusal::bad(format!(
        "The {name} {units} is invalid: it is from {least} to {} in steps of {step}.",
        limits::THROUGHPUT_MOST
    )))
}

/// What the body of a replaced offer asks for.
pub fn read(body: &[u8]) -> Result<Throughput, Refusal> {
    if body.len() > limits::DEFINITION_BYTES {
        return Err(Refusal::TooLarge { bytes: body.len(), limit: limits::DEFINITION_BYTES });
    }
    let offer = json::parse(body).map_err(|error| Refusal::bad(error.to_string()))?;
    let content = offer.get("content").ok_or_else(|| Refusal::bad("The offer has no content."))?;
    let units = |value: Option<&Value>| {
        let number = value.and_then(Value::as_number).and_then(|number| number.as_i64());
        number.and_then(|number| u32::try_from(number).ok())
    };
    let settings = content.get("offerAutopilotSettings").filter(|settings| **settings != Value::Null);
    let throughput = match settings {
        Some(settings) => units(settings.get("maxThroughput")).map(Throughput::Autoscale),
        None => units(content.get("offerThroughput")).map(Throughput::Fixed),
    };
    let throughput =
        throughput.ok_or_else(|| Refusal::bad("The offer does not say how much throughput it is."))?;
    check(throughput)?;
    Ok(throughput)
}

/// Request units per second.
pub fn units(throughput: Throughput) -> u32 {
    match throughput {
        Throughput::Fixed(units) | Throughput::Autoscale(units) => units,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // P-77
    #[test]
    fn throughput_is_checked_at_its_bounds() {
        for (throughput, is_right) in [
            (Throughput::Fixed(399), false),
            (Throughput::Fixed(400), true),
            (Throughput::Fixed(450), false),
            (Throughput::Fixed(500), true),
            (Throughput::Fixed(limits::THROUGHPUT_MOST), true),
            (Throughput::Fixed(limits::THROUGHPUT_MOST + 100), false),
            (Throughput::Autoscale(900), false),
            (Throughput::Autoscale(1000), true),
            (Throughput::Autoscale(1500), false),
        ] {
            assert_eq!(check(throughput).is_ok(), is_right, "{throughput:?}");
        }
    }

    #[test]
    fn a_replaced_offer_says_its_throughput() {
        assert_eq!(read(br#"{"content":{"offerThroughput":500}}"#), Ok(Throughput::Fixed(500)));
        assert_eq!(
            read(br#"{"content":{"offerThroughput":400,"offerAutopilotSettings":{"maxThroughput":4000}}}"#),
            Ok(Throughput::Autoscale(4000))
        );
        for bad in ["", "{}", r#"{"content":{}}"#, r#"{"content":{"offerThroughput":"400"}}"#] {
            assert!(read(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
