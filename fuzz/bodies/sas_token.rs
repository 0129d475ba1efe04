//! Any token, key set or header: nobody is let in who has no key, and a spoilt token is worth nothing else.
//!
//! The body lives in the crate, because it needs its insides.

pub fn run(bytes: &[u8]) {
    otobus_gateway::fuzzing::sas_token(bytes);
}
