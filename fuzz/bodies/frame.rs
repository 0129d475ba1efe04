//! Any bytes, sent to a server that answers everything it is asked, by a stranger and by a friend.
//!
//! Nothing panics, output stays in proportion to input, and nothing comes after the end. Bytes that are a performative
//! are written back and read again to the same.

use otobus_amqp::limits::FRAME_NODES;
use otobus_amqp::performative::Performative;
use otobus_amqp::{AttachReply, Config, Connection, Error, Event, SaslCode, State};

/// More output than this from one input is a leak: the longest answer to a byte that came in is a few bytes.
const OUTPUT_PER_INPUT_BYTE: usize = 64;
const OUTPUT_BASE: usize = 4096;

pub fn run(data: &[u8]) {
    for has_claim in [false, true] {
        serve(data, has_claim);
    }
    let mut nodes = FRAME_NODES;
    if let Ok((performative, _)) = Performative::decode(data, &mut nodes) {
        reencodes(&performative);
    }
}

fn serve(data: &[u8], has_claim: bool) {
    let mut connection = Connection::new(Config::default(), 0);
    if has_claim {
        connection.authenticated();
    }
    let mut input = data;
    let mut written = 0;
    let mut now = 0;
    while let Some(event) = connection.next(&mut input, now) {
        now += 1;
        answer(&mut connection, event);
        connection.heartbeat(now);
        written += connection.output().len();
        connection.output().clear();
    }
    written += connection.output().len();
    let bound = OUTPUT_BASE + OUTPUT_PER_INPUT_BYTE * data.len();
    assert!(written <= bound, "{written} bytes of output for {} of input", data.len());
    if connection.is_closed() {
        assert_eq!(connection.next(&mut input, now), None, "nothing comes after the end");
    }
}

fn answer(connection: &mut Connection, event: Event<'_>) {
    match event {
        Event::SaslInit { .. } => connection.sasl_outcome(SaslCode::Ok),
        Event::Attach { link, attach, .. } if attach.name.len() % 3 == 2 => {
            connection.refuse(link, &Error::new("amqp:not-found", "no"));
        }
        Event::Attach { link, attach, .. } if attach.name.len() % 3 == 1 => {
            connection.accept(link, AttachReply { max_message_size: Some(100), ..AttachReply::default() });
            connection.grant(link, 10);
        }
        Event::Flow { link, drain, .. } => {
            for _ in 0..4 {
                let _ = connection.send(link, &[1; 16], false, 0, |out| out.extend_from_slice(b"message"));
            }
            if drain {
                connection.drained(link);
            }
        }
        Event::Transfer { link, delivery_id, more: false, settled: false, .. } => {
            connection.settle_incoming(link, delivery_id, delivery_id, &State::Accepted);
        }
        Event::Disposition { session, first, last, settled, .. } => {
            let mut found = Vec::new();
            connection.outstanding(session, first, last, settled, |link, id, _| found.push((link, id)));
            for (link, id) in found.into_iter().filter(|_| !settled) {
                connection.settle_outgoing(link, id, id, &State::Accepted);
            }
        }
        _ => {}
    }
}

/// What was read is written, and read again to the same.
fn reencodes(performative: &Performative<'_>) {
    let mut bytes = Vec::new();
    performative.encode(&mut bytes);
    let mut nodes = FRAME_NODES;
    let again = Performative::decode(&bytes, &mut nodes);
    assert_eq!(again.as_ref().map(|(read, _)| read), Ok(performative));
}
