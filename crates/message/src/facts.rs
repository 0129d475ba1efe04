//! What a broker must know of a message at intake, read in one go and borrowed from its bytes.
//!
//! Reading also checks: a message whose facts were read has a well-formed header, annotations, properties and
//! application properties, with the types and within the sizes that receivers rely on. [`crate::delivery`] and
//! [`crate::view`] build on that.

use crate::codec::{Malformed, Reader, code};
use crate::entries::{Entry, entries};
use crate::fields::{self, Header, Properties, header, property};
use crate::limits::{ID_CHARACTERS, PROPERTIES_BYTES, PROPERTY_BYTES};
use crate::planted::is_planted;
use crate::sections::Sections;

/// The annotation names that senders set.
pub(crate) mod annotation {
    pub(crate) const SCHEDULED_ENQUEUE_TIME: &str = "x-opt-scheduled-enqueue-time";
    pub(crate) const PARTITION_KEY: &str = "x-opt-partition-key";
    pub(crate) const VIA_PARTITION_KEY: &str = "x-opt-via-partition-key";
}

/// A message-id in any of its types (AMQP 1.0 part 3, 3.2.11 to 3.2.14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageId<'a> {
    String(&'a str),
    Uuid([u8; 16]),
    Ulong(u64),
    Binary(&'a [u8]),
}

/// What the broker decides by: of a message that was checked, so each value has its type and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Facts<'a> {
    pub message_id: Option<MessageId<'a>>,
    /// The message-id with its constructor, as the sender wrote it; empty if there is none.
    pub message_id_encoded: &'a [u8],
    pub session_id: Option<&'a str>,
    pub reply_to_session_id: Option<&'a str>,
    pub partition_key: Option<&'a str>,
    pub via_partition_key: Option<&'a str>,
    /// Time to live in milliseconds; `None` if the sender set none.
    pub ttl: Option<u64>,
    /// When to enqueue, in milliseconds since the Unix epoch; it may be in the past.
    pub scheduled_enqueue_time: Option<i64>,
    /// Encoded size of the largest single property, name included (S-18).
    pub largest_property: u32,
    /// Encoded size of header, annotations, properties and application properties together (S-18).
    pub properties_bytes: u32,
}

/// What an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Header,
    Durable,
    Priority,
    TimeToLive,
    FirstAcquirer,
    DeliveryCount,
    DeliveryAnnotations,
    MessageAnnotations,
    ScheduledEnqueueTime,
    PartitionKey,
    ViaPartitionKey,
    Properties,
    MessageId,
    UserId,
    To,
    Subject,
    ReplyTo,
    CorrelationId,
    ContentType,
    ContentEncoding,
    GroupSequence,
    AbsoluteExpiryTime,
    CreationTime,
    SessionId,
    ReplyToSessionId,
    ApplicationProperties,
    Body,
    Footer,
}

/// Why a message is refused at intake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FactsError {
    #[error("{field:?}: {reason}")]
    Malformed { field: Field, reason: Malformed },
    #[error("{field:?}: expected {expected}, found constructor 0x{found:02x}")]
    WrongType { field: Field, expected: &'static str, found: u8 },
    #[error("{field:?} has {characters} characters; at most {ID_CHARACTERS} are allowed")]
    TooLong { field: Field, characters: usize },
    #[error("{0:?} is set twice")]
    Repeated(Field),
    #[error("a property in {field:?} has {bytes} bytes; at most {PROPERTY_BYTES} are allowed")]
    PropertyTooLarge { field: Field, bytes: u32 },
    #[error("the properties have {bytes} bytes; at most {PROPERTIES_BYTES} are allowed together")]
    PropertiesTooLarge { bytes: u32 },
}

/// Puts a name to what a reader found wrong.
fn about(field: Field) -> impl Fn(Malformed) -> FactsError {
    move |reason| match reason {
        Malformed::Unexpected { expected, found } => FactsError::WrongType { field, expected, found },
        reason => FactsError::Malformed { field, reason },
    }
}

impl<'a> Facts<'a> {
    pub fn read(bytes: &'a [u8], sections: &Sections) -> Result<Facts<'a>, FactsError> {
        let mut facts = Facts::default();
        for section in [
            sections.header,
            sections.delivery_annotations,
            sections.message_annotations,
            sections.properties,
            sections.application_properties,
        ] {
            facts.properties_bytes = facts.properties_bytes.saturating_add(section.end - section.start);
        }
        if facts.properties_bytes > PROPERTIES_BYTES {
            return Err(FactsError::PropertiesTooLarge { bytes: facts.properties_bytes });
        }
        let ttl = read_header(sections.header.value(bytes))?;
        if let Some(annotations) = sections.message_annotations.value(bytes) {
            facts.read_annotations(annotations)?;
        }
        if let Some(properties) = sections.properties.value(bytes) {
            facts.read_properties(properties, ttl)?;
        } else {
            facts.ttl = fields::time_to_live(ttl, None);
        }
        if let Some(properties) = sections.application_properties.value(bytes) {
            facts.read_application_properties(properties)?;
        }
        if let Some(annotations) = sections.delivery_annotations.value(bytes) {
            check_annotations(annotations, Field::DeliveryAnnotations)?;
        }
        if let Some(footer) = sections.footer.value(bytes) {
            Facts::check_footer(footer)?;
        }
        Ok(facts)
    }

    pub(crate) fn check_footer(footer: &[u8]) -> Result<(), FactsError> {
        check_annotations(footer, Field::Footer)
    }

    fn read_annotations(&mut self, annotations: &'a [u8]) -> Result<(), FactsError> {
        let malformed = about(Field::MessageAnnotations);
        let mut met = [false; 3];
        for entry in entries(annotations).map_err(&malformed)? {
            let entry = entry.map_err(&malformed)?;
            self.measure(Field::MessageAnnotations, entry.bytes())?;
            check_annotation(&entry, Field::MessageAnnotations)?;
            let (slot, field) = match entry.name {
                Some(annotation::SCHEDULED_ENQUEUE_TIME) => (0, Field::ScheduledEnqueueTime),
                Some(annotation::PARTITION_KEY) => (1, Field::PartitionKey),
                Some(annotation::VIA_PARTITION_KEY) => (2, Field::ViaPartitionKey),
                _ => continue,
            };
            if std::mem::replace(&mut met[slot], true) {
                return Err(FactsError::Repeated(field));
            }
            let mut value = Reader::new(entry.value);
            match field {
                Field::ScheduledEnqueueTime => {
                    self.scheduled_enqueue_time = value.optional(Reader::timestamp).map_err(about(field))?;
                }
                Field::PartitionKey => self.partition_key = short_text(&mut value, field)?,
                _ => self.via_partition_key = short_text(&mut value, field)?,
            }
        }
        Ok(())
    }

    fn read_properties(&mut self, properties: &'a [u8], ttl: Option<u32>) -> Result<(), FactsError> {
        let properties = Properties::split(Some(properties)).map_err(about(Field::Properties))?;
        for field in properties.iter() {
            self.measure(Field::Properties, field.len() as u32)?;
        }
        if !properties.is_null(property::MESSAGE_ID) {
            self.message_id_encoded = properties.raw(property::MESSAGE_ID);
            self.message_id = Some(read_message_id(self.message_id_encoded)?);
        }
        let text = |index, field| short_text(&mut Reader::new(properties.raw(index)), field);
        self.session_id = text(property::GROUP_ID, Field::SessionId)?;
        self.reply_to_session_id = text(property::REPLY_TO_GROUP_ID, Field::ReplyToSessionId)?;
        check_other_properties(&properties)?;
        let lifetime = properties.lifetime().map_err(about(Field::Properties))?;
        self.ttl = fields::time_to_live(ttl, lifetime);
        if is_planted("message") && ttl.is_some_and(|ttl| ttl > i32::MAX as u32 && ttl < u32::MAX) {
            self.ttl = None;
        }
        Ok(())
    }

    fn read_application_properties(&mut self, properties: &'a [u8]) -> Result<(), FactsError> {
        let malformed = about(Field::ApplicationProperties);
        for entry in entries(properties).map_err(&malformed)? {
            let entry = entry.map_err(&malformed)?;
            self.measure(Field::ApplicationProperties, entry.bytes())?;
            if entry.name.is_none() {
                let found = entry.key.first().copied().unwrap_or(code::NULL);
                return Err(malformed(Malformed::Unexpected { expected: "a string key", found }));
            }
            Reader::new(entry.value).check().map_err(&malformed)?;
        }
        Ok(())
    }

    fn measure(&mut self, field: Field, bytes: u32) -> Result<(), FactsError> {
        self.largest_property = self.largest_property.max(bytes);
        if bytes > PROPERTY_BYTES { Err(FactsError::PropertyTooLarge { field, bytes }) } else { Ok(()) }
    }
}

/// Checks the whole header, for it is written again on every delivery, and gives its ttl.
fn read_header(bytes: Option<&[u8]>) -> Result<Option<u32>, FactsError> {
    let Some(bytes) = bytes else { return Ok(None) };
    let fields = Header::split(Some(bytes)).map_err(about(Field::Header))?;
    fields.get(header::DURABLE, Reader::boolean).map_err(about(Field::Durable))?;
    fields.get(header::PRIORITY, Reader::ubyte).map_err(about(Field::Priority))?;
    fields.get(header::FIRST_ACQUIRER, Reader::boolean).map_err(about(Field::FirstAcquirer))?;
    fields.get(header::DELIVERY_COUNT, Reader::uint).map_err(about(Field::DeliveryCount))?;
    fields.get(header::TTL, Reader::uint).map_err(about(Field::TimeToLive))
}

fn read_message_id(encoded: &[u8]) -> Result<MessageId<'_>, FactsError> {
    let id = read_id(encoded, Field::MessageId)?;
    match id {
        MessageId::String(text) => within_characters(text, Field::MessageId)?,
        MessageId::Binary(bytes) if bytes.len() > ID_CHARACTERS => {
            return Err(FactsError::TooLong { field: Field::MessageId, characters: bytes.len() });
        }
        _ => {}
    }
    Ok(id)
}

fn read_id(encoded: &[u8], field: Field) -> Result<MessageId<'_>, FactsError> {
    let mut reader = Reader::new(encoded);
    match encoded.first() {
        Some(&(code::ULONG_0 | code::ULONG_SMALL | code::ULONG)) => reader.ulong().map(MessageId::Ulong),
        Some(&code::UUID) => reader.uuid().map(MessageId::Uuid),
        Some(&(code::BINARY_8 | code::BINARY_32)) => reader.binary().map(MessageId::Binary),
        _ => reader.string().map(MessageId::String),
    }
    .map_err(about(field))
}

fn short_text<'a>(reader: &mut Reader<'a>, field: Field) -> Result<Option<&'a str>, FactsError> {
    let text = reader.optional(Reader::string).map_err(about(field))?;
    if let Some(text) = text {
        within_characters(text, field)?;
    }
    Ok(text)
}

fn within_characters(text: &str, field: Field) -> Result<(), FactsError> {
    // Most ids are short: no character is shorter than a byte.
    if text.len() <= ID_CHARACTERS {
        return Ok(());
    }
    match text.chars().count() {
        ..=ID_CHARACTERS => Ok(()),
        characters => Err(FactsError::TooLong { field, characters }),
    }
}

/// The broker does not need these, but receivers decode them, and some die of a wrong type.
fn check_other_properties(properties: &Properties<'_>) -> Result<(), FactsError> {
    type Read = fn(&mut Reader<'_>) -> Result<(), Malformed>;
    let text: Read = |reader| reader.text().map(drop);
    let time: Read = |reader| reader.timestamp().map(drop);
    let others: [(usize, Field, Read); 9] = [
        (property::USER_ID, Field::UserId, |reader| reader.binary().map(drop)),
        (property::TO, Field::To, text),
        (property::SUBJECT, Field::Subject, text),
        (property::REPLY_TO, Field::ReplyTo, text),
        (property::CONTENT_TYPE, Field::ContentType, text),
        (property::CONTENT_ENCODING, Field::ContentEncoding, text),
        (property::ABSOLUTE_EXPIRY_TIME, Field::AbsoluteExpiryTime, time),
        (property::CREATION_TIME, Field::CreationTime, time),
        (property::GROUP_SEQUENCE, Field::GroupSequence, |reader| reader.uint().map(drop)),
    ];
    for (index, field, read) in others {
        properties.get(index, read).map_err(about(field))?;
    }
    if !properties.is_null(property::CORRELATION_ID) {
        read_id(properties.raw(property::CORRELATION_ID), Field::CorrelationId)?;
    }
    Ok(())
}

/// Annotations that the broker passes on and does not need.
fn check_annotations(annotations: &[u8], field: Field) -> Result<(), FactsError> {
    let malformed = about(field);
    for entry in entries(annotations).map_err(&malformed)? {
        check_annotation(&entry.map_err(&malformed)?, field)?;
    }
    Ok(())
}

/// AMQP 1.0 part 3, 3.2.10: annotation keys are symbols or ulongs; clients also write strings.
fn check_annotation(entry: &Entry<'_>, field: Field) -> Result<(), FactsError> {
    match entry.key.first() {
        _ if entry.name.is_some() => {}
        Some(&(code::ULONG_0 | code::ULONG_SMALL | code::ULONG)) => {}
        found => {
            let found = found.copied().unwrap_or(code::NULL);
            return Err(FactsError::WrongType { field, expected: "a symbol key", found });
        }
    }
    Reader::new(entry.value).check().map_err(about(field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::write_descriptor;
    use crate::value::Value;

    fn message(sections: &[(u8, Value)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (code, value) in sections {
            write_descriptor(&mut out, (*code).into());
            value.encode(&mut out);
        }
        out
    }

    /// A properties section of which only some fields are set.
    fn properties(set: &[(usize, Value)]) -> (u8, Value) {
        let mut fields = vec![Value::Null; property::COUNT];
        set.iter().for_each(|(index, value)| fields[*index] = value.clone());
        (0x73, Value::List(fields))
    }

    fn annotations(set: &[(&str, Value)]) -> (u8, Value) {
        let entry = |(key, value): &(&str, Value)| (Value::Symbol((*key).into()), value.clone());
        (0x72, Value::Map(set.iter().map(entry).collect()))
    }

    fn header(ttl: Value) -> (u8, Value) {
        (0x70, Value::List(vec![Value::Null, Value::Null, ttl]))
    }

    fn error(bytes: &[u8]) -> FactsError {
        Facts::read(bytes, &Sections::scan(bytes).unwrap()).unwrap_err()
    }

    #[test]
    fn all_facts_of_a_full_message_are_read() {
        let bytes = message(&[
            header(Value::Uint(60_000)),
            annotations(&[
                ("x-opt-scheduled-enqueue-time", Value::Timestamp(99)),
                ("x-opt-partition-key", "p".into()),
                ("x-opt-via-partition-key", "v".into()),
                ("own", Value::Int(1)),
            ]),
            properties(&[(0, "id".into()), (10, "session".into()), (12, "reply".into())]),
            (0x74, Value::Map(vec![("key".into(), "value".into())])),
        ]);
        let facts = Facts::read(&bytes, &Sections::scan(&bytes).unwrap()).unwrap();
        assert_eq!(facts.message_id, Some(MessageId::String("id")));
        assert_eq!(facts.message_id_encoded, [code::STRING_8, 2, b'i', b'd']);
        assert_eq!(facts.session_id, Some("session"));
        assert_eq!(facts.reply_to_session_id, Some("reply"));
        assert_eq!(facts.partition_key, Some("p"));
        assert_eq!(facts.via_partition_key, Some("v"));
        assert_eq!(facts.ttl, Some(60_000));
        assert_eq!(facts.scheduled_enqueue_time, Some(99));
        assert_eq!(facts.properties_bytes as usize, bytes.len());
        assert_eq!(facts.largest_property, 2 + 28 + 9);
    }

    #[test]
    fn a_message_that_says_nothing_has_no_facts() {
        let facts = Facts::read(&[], &Sections::scan(&[]).unwrap()).unwrap();
        assert_eq!(facts, Facts::default());
    }

    // ids are of any id type.
    #[test]
    fn message_ids_are_of_four_types_and_no_other() {
        let read = |id: Value| {
            let bytes = message(&[properties(&[(0, id)])]);
            let facts = Facts::read(&bytes, &Sections::scan(&bytes).unwrap());
            facts.map(|facts| format!("{:?}", facts.message_id))
        };
        assert_eq!(read(Value::Ulong(7)).unwrap(), "Some(Ulong(7))");
        assert_eq!(read(Value::Binary(vec![1])).unwrap(), "Some(Binary([1]))");
        let uuid: [u8; 16] = std::array::from_fn(|at| at as u8);
        assert_eq!(read(Value::Uuid(uuid)).unwrap(), format!("Some(Uuid({uuid:?}))"));
        let wrong =
            FactsError::WrongType { field: Field::MessageId, expected: "string", found: code::INT_SMALL };
        assert_eq!(read(Value::Int(7)), Err(wrong));
    }

    // S-6
    #[test]
    fn ids_of_128_characters_are_accepted_and_of_129_refused() {
        let with = |field: Field, text: String| match field {
            Field::MessageId => message(&[properties(&[(0, text.as_str().into())])]),
            Field::SessionId => message(&[properties(&[(10, text.as_str().into())])]),
            Field::ReplyToSessionId => message(&[properties(&[(12, text.as_str().into())])]),
            Field::PartitionKey => message(&[annotations(&[("x-opt-partition-key", text.as_str().into())])]),
            _ => message(&[annotations(&[("x-opt-via-partition-key", text.as_str().into())])]),
        };
        for field in [
            Field::MessageId,
            Field::SessionId,
            Field::ReplyToSessionId,
            Field::PartitionKey,
            Field::ViaPartitionKey,
        ] {
            for letter in ["a", "ü"] {
                let fits = with(field, letter.repeat(128));
                Facts::read(&fits, &Sections::scan(&fits).unwrap()).unwrap();
                let expected = FactsError::TooLong { field, characters: 129 };
                assert_eq!(error(&with(field, letter.repeat(129))), expected);
            }
        }
    }

    // S-6: bytes are counted as they are.
    #[test]
    fn a_message_id_of_bytes_has_the_limit_of_one_of_characters() {
        let with = |count: usize| message(&[properties(&[(0, Value::Binary(vec![0xff; count]))])]);
        let fits = with(128);
        let facts = Facts::read(&fits, &Sections::scan(&fits).unwrap()).unwrap();
        assert_eq!(facts.message_id, Some(MessageId::Binary(&[0xff; 128])));
        let expected = FactsError::TooLong { field: Field::MessageId, characters: 129 };
        assert_eq!(error(&with(129)), expected);
    }

    // S-67
    #[test]
    fn a_ttl_above_49_days_is_the_difference_of_two_times() {
        let day = 86_400_000;
        let sent = 1_700_000_000_000;
        let pair = [(8, Value::Timestamp(sent + 100 * day)), (9, Value::Timestamp(sent))];
        let ttl = |sections: &[(u8, Value)]| {
            let bytes = message(sections);
            Facts::read(&bytes, &Sections::scan(&bytes).unwrap()).unwrap().ttl
        };
        assert_eq!(ttl(&[header(Value::Uint(u32::MAX)), properties(&pair)]), Some(100 * day as u64));
        assert_eq!(ttl(&[header(Value::Uint(5)), properties(&pair)]), Some(5));
        assert_eq!(ttl(&[header(Value::Uint(u32::MAX)), properties(&pair[..1])]), Some(u32::MAX.into()));
        assert_eq!(ttl(&[properties(&pair)]), None);
    }

    // S-18
    #[test]
    fn a_property_of_32_kib_is_accepted_and_one_byte_more_refused() {
        // Key "k": 3 bytes; a long string: 5 bytes in front.
        let with = |bytes: usize| {
            let text = "x".repeat(bytes - 3 - 5);
            message(&[(0x74, Value::Map(vec![("k".into(), text.as_str().into())]))])
        };
        let fits = with(PROPERTY_BYTES as usize);
        let facts = Facts::read(&fits, &Sections::scan(&fits).unwrap()).unwrap();
        assert_eq!(facts.largest_property, PROPERTY_BYTES);
        let field = Field::ApplicationProperties;
        let expected = FactsError::PropertyTooLarge { field, bytes: PROPERTY_BYTES + 1 };
        assert_eq!(error(&with(PROPERTY_BYTES as usize + 1)), expected);
    }

    // S-18
    #[test]
    fn properties_of_64_kib_are_accepted_and_one_byte_more_refused() {
        let with = |bytes: usize| {
            let entry = |key: &str, length| (Value::from(key), Value::Binary(vec![0; length]));
            // Descriptor 3, map 9, three entries of key 3 and binary 5.
            let rest = bytes - 3 - 9 - 3 * 8 - 2 * 30_000;
            let map = Value::Map(vec![entry("a", 30_000), entry("b", 30_000), entry("c", rest)]);
            message(&[(0x74, map)])
        };
        let fits = with(PROPERTIES_BYTES as usize);
        assert_eq!(fits.len(), PROPERTIES_BYTES as usize);
        Facts::read(&fits, &Sections::scan(&fits).unwrap()).unwrap();
        let expected = FactsError::PropertiesTooLarge { bytes: PROPERTIES_BYTES + 1 };
        assert_eq!(error(&with(PROPERTIES_BYTES as usize + 1)), expected);
    }

    #[test]
    fn a_wrong_type_is_told_with_its_field() {
        let wrong = |sections: &[(u8, Value)]| match error(&message(sections)) {
            FactsError::WrongType { field, .. } => field,
            other => panic!("{other}"),
        };
        assert_eq!(wrong(&[header(Value::Int(1))]), Field::TimeToLive);
        assert_eq!(wrong(&[(0x70, Value::List(vec!["yes".into()]))]), Field::Durable);
        let time = annotation::SCHEDULED_ENQUEUE_TIME;
        assert_eq!(wrong(&[annotations(&[(time, Value::Long(1))])]), Field::ScheduledEnqueueTime);
        let key = annotation::PARTITION_KEY;
        assert_eq!(wrong(&[annotations(&[(key, Value::Symbol("p".into()))])]), Field::PartitionKey);
        assert_eq!(wrong(&[properties(&[(8, Value::Long(1))])]), Field::AbsoluteExpiryTime);
        assert_eq!(wrong(&[properties(&[(10, Value::Uint(1))])]), Field::SessionId);
        assert_eq!(wrong(&[properties(&[(5, Value::Int(1))])]), Field::CorrelationId);
        let others = [1, 2, 3, 4, 6, 7, 8, 9, 11];
        let fields = others.map(|index| wrong(&[properties(&[(index, Value::Boolean(true))])]));
        assert_eq!(fields[..4], [Field::UserId, Field::To, Field::Subject, Field::ReplyTo]);
        assert_eq!(fields[4..6], [Field::ContentType, Field::ContentEncoding]);
        assert_eq!(fields[6..], [Field::AbsoluteExpiryTime, Field::CreationTime, Field::GroupSequence]);
        assert_eq!(
            wrong(&[(0x74, Value::Map(vec![(Value::Int(1), Value::Null)]))]),
            Field::ApplicationProperties
        );
    }

    // AMQP 1.0 part 3, 3.2.10: annotation keys are symbols or ulongs; clients also write strings.
    #[test]
    fn annotations_have_keys_of_three_types() {
        for section in [0x71, 0x72, 0x78] {
            for (key, is_taken) in [
                (Value::Symbol("k".into()), true),
                ("k".into(), true),
                (Value::Ulong(0), true),
                (Value::Ulong(7), true),
                (Value::Ulong(u64::MAX), true),
                (Value::Uint(7), false),
                (Value::Null, false),
            ] {
                let bytes = message(&[(section, Value::Map(vec![(key.clone(), Value::Int(1))]))]);
                let facts = Facts::read(&bytes, &Sections::scan(&bytes).unwrap());
                assert_eq!(facts.is_ok(), is_taken, "{section:x} {key:?}: {facts:?}");
            }
        }
    }

    #[test]
    fn what_a_receiver_could_not_decode_is_refused() {
        let mut bytes = message(&[(0x74, Value::Map(vec![("k".into(), Value::List(vec!["text".into()]))]))]);
        *bytes.last_mut().unwrap() = 0xff;
        let field = Field::ApplicationProperties;
        assert_eq!(error(&bytes), FactsError::Malformed { field, reason: Malformed::NotUtf8 });
        let mut bytes = message(&[(0x78, Value::Map(vec![("k".into(), "text".into())]))]);
        *bytes.last_mut().unwrap() = 0xff;
        assert_eq!(error(&bytes), FactsError::Malformed { field: Field::Footer, reason: Malformed::NotUtf8 });
    }

    #[test]
    fn a_fact_told_twice_is_refused() {
        let key = annotation::PARTITION_KEY;
        let bytes = message(&[annotations(&[(key, "a".into()), (key, "b".into())])]);
        assert_eq!(error(&bytes), FactsError::Repeated(Field::PartitionKey));
    }
}
