//! Any bytes, read as AMQP values.
//!
//! Reading never panics. What is read can be written and read again to the same value, and passing over a value ends
//! where reading it ends.

use otobus_message::{Reader, Value};

pub fn run(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let Ok(value) = reader.value() else {
        let _ = Reader::new(bytes).skip();
        return;
    };
    let mut passed = Reader::new(bytes);
    assert_eq!(passed.skip(), Ok(()), "{value:?} was read but cannot be passed over");
    assert_eq!(passed.position(), reader.position(), "{value:?} ends in two places");

    let mut written = Vec::new();
    value.encode(&mut written);
    assert_eq!(Value::decode(&written), Ok(value), "written as {written:02x?}");
}
