//! Any bytes, read as AMQP values.
//!
//! Reading never panics. What is read can be written and read again to the same value; passing over a value ends where
//! reading it ends; and checking a value finds fault exactly where reading it does.

use otobus_message::{Reader, Value};

pub fn run(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let read = reader.value();
    let mut checked = Reader::new(bytes);
    assert_eq!(checked.check().err(), read.as_ref().err().copied(), "{read:?}");
    let mut passed = Reader::new(bytes);
    let is_passed = passed.skip();
    let Ok(value) = read else { return };
    assert_eq!(is_passed, Ok(()), "{value:?} was read but cannot be passed over");
    assert_eq!(passed.position(), reader.position(), "{value:?} ends in two places");
    assert_eq!(checked.position(), reader.position(), "{value:?} ends in two places");

    let mut written = Vec::new();
    value.encode(&mut written);
    assert_eq!(Value::decode(&written), Ok(value), "written as {written:02x?}");
}
