//! Throughput that is provisioned (section 15).

use crate::json::{self, Value};
use crate::{Refusal, Throughput, limits};

/// P-77
pub fn check(throughput: Throughput) -> Result<(), Refusal> {
    let (name, units, least, step) = match throughput {
        Throughput::Fixed(units) => ("throughput", units, limits::THROUGHPUT_LEAST, limits::THROUGHPUT_STEP),
        Throughput::Autoscale { most, .. } => (
            "maximum throughput of an autoscale offer",
            most,
            limits::AUTOSCALE_LEAST,
            limits::AUTOSCALE_STEP,
        ),
    };
    if (least..=limits::THROUGHPUT_MOST).contains(&units) && units % step == 0 {
        return Ok(());
    }
    if units < least {
        return Err(too_little(i64::from(units), least));
    }
    Err(Refusal::bad(format!(
        "The {name} {units} is invalid: it is from {least} to {} in steps of {step}.",
        limits::THROUGHPUT_MOST
    )))
}

/// Less than the least.
pub fn too_little(units: i64, least: u32) -> Refusal {
    Refusal::bad(format!("Requested throughput {units} is less than required minimum throughput {least}."))
}

/// An autoscale offer, from its settings as clients write them in a header or in an offer.
pub fn autoscale(settings: &Value) -> Result<Throughput, Refusal> {
    let number = |value: Option<&Value>| value.and_then(Value::as_number).and_then(|number| number.as_i64());
    let most = number(settings.get("maxThroughput"));
    let most = most.ok_or_else(|| Refusal::bad("The settings of an autoscale offer need maxThroughput."))?;
    let most = u32::try_from(most).map_err(|_| too_little(most, limits::AUTOSCALE_LEAST))?;
    let policy = settings.get("autoUpgradePolicy").and_then(|policy| policy.get("throughputPolicy"));
    let percent = number(policy.and_then(|policy| policy.get("incrementPercent"))).unwrap_or(0);
    let increment_percent = u32::try_from(percent)
        .map_err(|_| Refusal::bad(format!("An offer cannot grow by {percent} percent.")))?;
    Ok(Throughput::Autoscale { most, increment_percent })
}

/// What the header of a new database or container asks for (P-77).
pub fn of_header(settings: &str) -> Result<Throughput, Refusal> {
    let settings = json::parse(settings.as_bytes());
    autoscale(
        &settings.map_err(|error| Refusal::bad(format!("The settings of an autoscale offer: {error}.")))?,
    )
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
        Some(settings) => Some(autoscale(settings)?),
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
        Throughput::Fixed(units) | Throughput::Autoscale { most: units, .. } => units,
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
            (Throughput::Autoscale { most: 900, increment_percent: 0 }, false),
            (Throughput::Autoscale { most: 1000, increment_percent: 20 }, true),
            (Throughput::Autoscale { most: 1500, increment_percent: 0 }, false),
        ] {
            assert_eq!(check(throughput).is_ok(), is_right, "{throughput:?}");
        }
    }

    #[test]
    fn a_replaced_offer_says_its_throughput() {
        assert_eq!(read(br#"{"content":{"offerThroughput":500}}"#), Ok(Throughput::Fixed(500)));
        assert_eq!(
            read(br#"{"content":{"offerThroughput":400,"offerAutopilotSettings":{"maxThroughput":4000}}}"#),
            Ok(Throughput::Autoscale { most: 4000, increment_percent: 0 })
        );
        let grows = br#"{"content":{"offerAutopilotSettings":{"maxThroughput":7000,"autoUpgradePolicy":{"throughputPolicy":{"incrementPercent":20}}}}}"#;
        assert_eq!(read(grows), Ok(Throughput::Autoscale { most: 7000, increment_percent: 20 }));
        let none = read(br#"{"content":{"offerAutopilotSettings":{"maxThroughput":-200}}}"#);
        assert!(none.unwrap_err().to_string().contains("Requested throughput -200 is less than"));
        for bad in ["", "{}", r#"{"content":{}}"#, r#"{"content":{"offerThroughput":"400"}}"#] {
            assert!(read(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
