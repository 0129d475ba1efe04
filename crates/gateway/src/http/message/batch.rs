//! A batch: a JSON array of messages, stored whole or not at all (H-96, S-16).
//!
//! Messages are read one by one and written as AMQP at once, so that memory holds the text and the messages,
//! and of all objects in between one.

use super::super::failure::Failure;
use super::outline::{Outline, write_data};
use super::user_properties::UserProperties;
use crate::amqp::add_message;
use crate::iso::WallTime;
use broker::limits::BATCH_MESSAGES;
use engine::Batch;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Adds every message of the batch.
pub(super) fn add(batch: &mut Batch, json: &[u8], wants_ids: bool, now: WallTime) -> Result<(), Failure> {
    let bad = |error: serde_json::Error| Failure::Bad(format!("The batch cannot be read: {error}."));
    let mut reader = serde_json::Deserializer::from_slice(json);
    Messages { batch, wants_ids, now }.deserialize(&mut reader).map_err(bad)?;
    reader.end().map_err(bad)
}

/// The array.
struct Messages<'a> {
    batch: &'a mut Batch,
    wants_ids: bool,
    now: WallTime,
}

impl<'de> DeserializeSeed<'de> for Messages<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Messages<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an array of messages")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut sequence: S) -> Result<(), S::Error> {
        let mut bytes = Vec::new();
        let mut count = 0;
        while let Some(()) = sequence.next_element_seed(Message { out: &mut bytes, now: self.now })? {
            count += 1;
            if count > BATCH_MESSAGES {
                return Err(S::Error::custom(format!("it has more than {BATCH_MESSAGES} messages")));
            }
            add_message(self.batch, &bytes, self.wants_ids).map_err(S::Error::custom)?;
        }
        if count == 0 { Err(S::Error::custom("it has no message")) } else { Ok(()) }
    }
}

/// One message, which is written to `out`.
struct Message<'a> {
    out: &'a mut Vec<u8>,
    now: WallTime,
}

impl<'de> DeserializeSeed<'de> for Message<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Message<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object with Body, BrokerProperties and UserProperties")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let (mut body, mut outline, mut properties) =
            (None::<String>, None::<Outline>, None::<UserProperties>);
        while let Some(name) = map.next_key::<String>()? {
            match &*name.to_ascii_lowercase() {
                "body" => body = map.next_value()?,
                "brokerproperties" => outline = map.next_value()?,
                "userproperties" => properties = map.next_value()?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        let mut outline = outline.unwrap_or_default();
        outline.properties = properties.unwrap_or_default();
        self.out.clear();
        outline.write(self.out, self.now);
        write_data(self.out, body.unwrap_or_default().as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::{Incoming, Span};
    use journal::BODY_PREFIX_BYTES;
    use message::sections::Sections;
    use message::{SystemProperty, Value, View};

    fn read(json: &str) -> Result<Batch, String> {
        let mut batch = Batch::default();
        add(&mut batch, json.as_bytes(), true, WallTime(0))
            .map(|()| batch)
            .map_err(|failure| failure.to_string())
    }

    type Shown = (String, Option<String>, Vec<(String, Value)>);

    /// Body, label and properties of a message that was added.
    fn shown(batch: &Batch, message: &Incoming) -> Shown {
        let start = message.body.offset as usize + BODY_PREFIX_BYTES;
        let stored = &batch.bodies[start..start + message.body.length as usize];
        let sections = Sections::scan(stored).unwrap();
        let view = View { stored, sections: &sections, overlay: None };
        let label = view.system(SystemProperty::Label).unwrap().and_then(|label| label.as_str());
        let properties = view.applications().unwrap().map(Result::unwrap);
        let properties = properties.map(|(name, value)| (name.to_owned(), value.value().unwrap())).collect();
        let body = view.data().next().unwrap().unwrap();
        (String::from_utf8(body.to_vec()).unwrap(), label.map(str::to_owned), properties)
    }

    // H-96
    #[test]
    fn every_message_has_its_body_and_its_properties() {
        let batch = read(
            r#"[{"Body":"first","BrokerProperties":{"Label":"M1","TimeToLiveTimeSpan":"0.00:00:40"}},
                {"Body":"zweite ü","UserProperties":{"Priority":"Low","Count":3,"Share":0.5,"Is":true,"No":null}},
                {"Other":[{}],"Body":null}]"#,
        )
        .unwrap();
        let lives: Vec<_> = batch.messages.iter().map(|message| message.time_to_live).collect();
        assert_eq!(lives, [Span(40_000), Span::MAX, Span::MAX]);
        let messages: Vec<_> = batch.messages.iter().map(|message| shown(&batch, message)).collect();
        let properties = vec![
            ("Priority", Value::from("Low")),
            ("Count", Value::Long(3)),
            ("Share", Value::Double(0.5_f64.to_bits())),
            ("Is", Value::Boolean(true)),
            ("No", Value::Null),
        ];
        let message = |body: &str, label: Option<&str>, properties: Vec<(&str, Value)>| {
            let named = properties.into_iter().map(|(name, value)| (name.to_owned(), value));
            (body.to_owned(), label.map(str::to_owned), named.collect())
        };
        let expected = [
            message("first", Some("M1"), vec![]),
            message("zweite ü", None, properties),
            message("", None, vec![]),
        ];
        assert_eq!(messages, expected);
    }

    // S-16
    #[test]
    fn a_batch_with_a_mistake_is_none() {
        for (json, words) in [
            ("", "EOF"),
            ("{}", "an array of messages"),
            ("[]", "no message"),
            ("[1]", "an object with Body"),
            (r#"[{"Body":{}}]"#, "a string"),
            (r#"[{"Body":"a"},{"BrokerProperties":[]}]"#, "an object of broker properties"),
            (r#"[{"Body":"a"},{"UserProperties":{"a":[]}}]"#, "a text, a number"),
            (r#"[{"Body":"a"}] x"#, "trailing"),
            (r#"[{"Body":"a"}"#, "EOF"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(words), "{json}: {error}");
        }
        let long = format!(r#"[{{"BrokerProperties":{{"MessageId":"{}"}}}}]"#, "x".repeat(129));
        assert!(read(&long).unwrap_err().contains("at most 128"));
    }

    #[test]
    fn a_batch_has_as_many_messages_as_it_may_and_no_more() {
        let batch = |count: usize| format!("[{}]", vec!["{}"; count].join(","));
        assert_eq!(read(&batch(BATCH_MESSAGES)).unwrap().messages.len(), BATCH_MESSAGES);
        assert!(read(&batch(BATCH_MESSAGES + 1)).unwrap_err().contains("more than 4500"));
    }
}
