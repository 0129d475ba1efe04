//! Error conditions of AMQP 1.0 that this crate sends by itself (part 2, 2.8.15 to 2.8.18).

pub const DECODE_ERROR: &str = "amqp:decode-error";
pub const FRAME_SIZE_TOO_SMALL: &str = "amqp:frame-size-too-small";
pub const ILLEGAL_STATE: &str = "amqp:illegal-state";
pub const INTERNAL_ERROR: &str = "amqp:internal-error";
pub const INVALID_FIELD: &str = "amqp:invalid-field";
pub const NOT_ALLOWED: &str = "amqp:not-allowed";
pub const RESOURCE_LIMIT_EXCEEDED: &str = "amqp:resource-limit-exceeded";
pub const CONNECTION_FORCED: &str = "amqp:connection:forced";
pub const FRAMING_ERROR: &str = "amqp:connection:framing-error";
pub const HANDLE_IN_USE: &str = "amqp:session:handle-in-use";
pub const UNATTACHED_HANDLE: &str = "amqp:session:unattached-handle";
pub const MESSAGE_SIZE_EXCEEDED: &str = "amqp:link:message-size-exceeded";
