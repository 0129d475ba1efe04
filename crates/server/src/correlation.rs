//! The correlation filter of a table, in whichever file it stands.

/// Fills a filter from a table that has the same fields, as texts that may be missing.
macro_rules! correlation_of {
    ($table:expr, $properties:expr) => {
        correlation_of!($table, $properties, correlation_id message_id to reply_to label session_id
            reply_to_session_id content_type)
    };
    ($table:expr, $properties:expr, $($field:ident)*) => {
        broker::topic::rule::Correlation {
            $($field: $table.$field.as_deref().map(Into::into),)*
            properties: $properties,
        }
    };
}

pub(crate) use correlation_of;
