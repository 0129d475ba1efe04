//! Any bytes, read as the head of a request to the items: path, signature, date, headers.

pub fn run(bytes: &[u8]) {
    otobus_gateway::cosmos::fuzzing::head(bytes);
}
