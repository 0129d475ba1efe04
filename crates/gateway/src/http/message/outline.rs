//! The front of a message that came over HTTP: what its sender said about it, and how that is written as AMQP (S-4).

use super::user_properties::UserProperties;
use crate::iso::WallTime;
use broker::{LocalTime, Span};
use message::codec::{
    begin_list, begin_map, code, end_compound, write_binary, write_descriptor, write_null, write_string,
    write_symbol, write_timestamp, write_uint,
};
use message::sections::section;

/// Everything but the body. What is not set is not written.
#[derive(Debug, Default)]
pub(super) struct Outline {
    pub(super) message_id: Option<String>,
    pub(super) to: Option<String>,
    pub(super) label: Option<String>,
    pub(super) reply_to: Option<String>,
    pub(super) correlation_id: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) session_id: Option<String>,
    pub(super) reply_to_session_id: Option<String>,
    pub(super) partition_key: Option<String>,
    pub(super) via_partition_key: Option<String>,
    pub(super) scheduled: Option<LocalTime>,
    pub(super) time_to_live: Option<Span>,
    pub(super) properties: UserProperties,
}

impl Outline {
    /// Appends all that comes before the body. `now` is the sender's time, of which only differences matter (S-67).
    pub(super) fn write(&self, out: &mut Vec<u8>, now: WallTime) {
        let life = self.time_to_live.filter(|span| *span != Span::MAX);
        if let Some(life) = life {
            write_descriptor(out, section::HEADER.into());
            let open = begin_list(out);
            write_null(out);
            write_null(out);
            write_uint(out, u32::try_from(life.0).unwrap_or(u32::MAX));
            end_compound(out, open, 3);
        }
        self.write_annotations(out);
        // A life that 32 bits of milliseconds do not hold is the difference of two times.
        self.write_properties(out, life.filter(|life| life.0 >= u32::MAX.into()).map(|life| (now, life)));
        self.properties.write(out);
    }

    fn write_annotations(&self, out: &mut Vec<u8>) {
        let texts = [
            ("x-opt-partition-key", &self.partition_key),
            ("x-opt-via-partition-key", &self.via_partition_key),
        ];
        let count =
            texts.iter().filter(|(_, text)| text.is_some()).count() + usize::from(self.scheduled.is_some());
        if count == 0 {
            return;
        }
        write_descriptor(out, section::MESSAGE_ANNOTATIONS.into());
        let open = begin_map(out);
        for (name, text) in texts {
            if let Some(text) = text {
                write_symbol(out, name);
                write_string(out, text);
            }
        }
        if let Some(scheduled) = self.scheduled {
            write_symbol(out, "x-opt-scheduled-enqueue-time");
            write_timestamp(out, scheduled.0);
        }
        end_compound(out, open, 2 * count as u32);
    }

    fn write_properties(&self, out: &mut Vec<u8>, lifetime: Option<(WallTime, Span)>) {
        let text = |out: &mut Vec<u8>, text: &Option<String>| match text {
            Some(text) => write_string(out, text),
            None => write_null(out),
        };
        write_descriptor(out, section::PROPERTIES.into());
        let open = begin_list(out);
        text(out, &self.message_id);
        write_null(out); // user-id
        text(out, &self.to);
        text(out, &self.label);
        text(out, &self.reply_to);
        text(out, &self.correlation_id);
        match &self.content_type {
            Some(content_type) => write_symbol(out, content_type),
            None => write_null(out),
        }
        write_null(out); // content-encoding
        match lifetime {
            Some((now, life)) => {
                let end = i64::try_from(life.0).map_or(i64::MAX, |life| now.0.saturating_add(life));
                write_timestamp(out, end.min(broker::limits::CALENDAR_END.0.max(now.0)));
                write_timestamp(out, now.0);
            }
            None => {
                write_null(out);
                write_null(out);
            }
        }
        text(out, &self.session_id);
        write_null(out); // group-sequence
        text(out, &self.reply_to_session_id);
        end_compound(out, open, 13);
    }
}

/// Begins a body of one data section with `length` bytes, which are to follow (H-98).
pub(super) fn begin_data(out: &mut Vec<u8>, length: u32) {
    write_descriptor(out, section::DATA.into());
    out.push(code::BINARY_32);
    out.extend_from_slice(&length.to_be_bytes());
}

/// A whole body.
pub(super) fn write_data(out: &mut Vec<u8>, body: &[u8]) {
    write_descriptor(out, section::DATA.into());
    write_binary(out, body);
}

#[cfg(test)]
mod tests {
    use super::*;
    use message::facts::{Facts, MessageId};
    use message::sections::Sections;
    use message::{SystemProperty, Value, View};

    const NOW: WallTime = WallTime(1_600_000_000_000);

    fn written(outline: &Outline) -> Vec<u8> {
        let mut out = Vec::new();
        outline.write(&mut out, NOW);
        write_data(&mut out, b"body");
        out
    }

    // S-4
    #[test]
    fn every_property_stands_in_its_place() {
        let text = |text: &str| Some(text.to_owned());
        let outline = Outline {
            message_id: text("id"),
            to: text("to"),
            label: text("label"),
            reply_to: text("reply"),
            correlation_id: text("correlation"),
            content_type: text("text/plain"),
            session_id: text("session"),
            reply_to_session_id: text("reply session"),
            partition_key: text("session"),
            via_partition_key: text("via"),
            scheduled: Some(LocalTime(7)),
            time_to_live: Some(Span(40_000)),
            properties: UserProperties::default(),
        };
        let bytes = written(&outline);
        let sections = Sections::scan(&bytes).unwrap();
        let facts = Facts::read(&bytes, &sections).unwrap();
        assert_eq!(facts.message_id, Some(MessageId::String("id")));
        assert_eq!((facts.ttl, facts.scheduled_enqueue_time), (Some(40_000), Some(7)));
        let view = View { stored: &bytes, sections: &sections, overlay: None };
        let found = |property| view.system(property).unwrap().map(|value| value.value().unwrap());
        for (property, expected) in [
            (SystemProperty::To, "to"),
            (SystemProperty::Label, "label"),
            (SystemProperty::ReplyTo, "reply"),
            (SystemProperty::CorrelationId, "correlation"),
            (SystemProperty::SessionId, "session"),
            (SystemProperty::ReplyToSessionId, "reply session"),
            (SystemProperty::PartitionKey, "session"),
            (SystemProperty::ViaPartitionKey, "via"),
        ] {
            assert_eq!(found(property), Some(expected.into()), "{property:?}");
        }
        assert_eq!(found(SystemProperty::ContentType), Some(Value::Symbol("text/plain".into())));
        assert_eq!(view.data().collect::<Result<Vec<_>, _>>(), Ok(vec![&b"body"[..]]));
    }

    #[test]
    fn what_is_not_said_is_not_written() {
        let bytes = written(&Outline::default());
        let sections = Sections::scan(&bytes).unwrap();
        assert!(!sections.header.is_present() && !sections.message_annotations.is_present());
        assert!(!sections.application_properties.is_present());
        assert_eq!(Facts::read(&bytes, &sections).unwrap().ttl, None);
    }

    // S-67
    #[test]
    fn a_long_life_is_written_as_two_times_and_an_endless_one_not_at_all() {
        let read = |life| {
            let bytes = written(&Outline { time_to_live: Some(life), ..Outline::default() });
            Facts::read(&bytes, &Sections::scan(&bytes).unwrap()).unwrap().ttl
        };
        for life in [0, 1, u64::from(u32::MAX) - 1, u32::MAX.into(), u64::from(u32::MAX) + 1, 100 << 32] {
            assert_eq!(read(Span(life)), Some(life));
        }
        assert_eq!(read(Span::MAX), None);
    }

    #[test]
    fn a_body_that_is_announced_is_a_body_that_is_written() {
        for length in [0, 1, 255, 256] {
            let mut announced = Vec::new();
            begin_data(&mut announced, length as u32);
            announced.resize(announced.len() + length, 7);
            let sections = Sections::scan(&announced).unwrap();
            let view = View { stored: &announced, sections: &sections, overlay: None };
            assert_eq!(view.data().next(), Some(Ok(&vec![7; length][..])));
        }
    }
}
