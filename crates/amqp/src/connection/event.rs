//! What a connection tells its door, and what the door gives with its answers.

use crate::limits::{FRAME_BYTES, IDLE_TIME_OUT_MS, LINKS_PER_SESSION, SESSIONS};
use crate::performative::{Attach, Error};
use crate::state::State;
use message::Value;

/// Names one link in the life of its connection; never used twice. A call with the key of a link that is gone does
/// nothing, so answers that come late are harmless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkKey(pub u32);

/// Names one session in the life of its connection; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey(pub u32);

/// How the server presents itself.
#[derive(Debug, Clone)]
pub struct Config {
    pub container_id: String,
    /// At least 512, whatever is asked for.
    pub max_frame_size: u32,
    /// Within the limit of sessions, whatever is asked for; so is `handle_max` within that of links.
    pub channel_max: u16,
    /// Advertised, in milliseconds; a peer is given up after twice that.
    pub idle_time_out: u32,
    pub handle_max: u32,
    pub mechanisms: &'static [&'static str],
    /// Properties of our open, a map or null.
    pub properties: Value,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            container_id: "otobus".into(),
            max_frame_size: FRAME_BYTES,
            channel_max: SESSIONS - 1,
            idle_time_out: IDLE_TIME_OUT_MS,
            handle_max: LINKS_PER_SESSION - 1,
            mechanisms: &["MSSBCBS", "ANONYMOUS", "PLAIN", "EXTERNAL"],
            properties: Value::Null,
        }
    }
}

/// What an attach reply says beyond the echo of the client's attach.
#[derive(Debug, Clone, Default)]
pub struct AttachReply {
    /// Required on links that the client sends on (Go takes it as its batch limit), where it is also enforced.
    pub max_message_size: Option<u64>,
    pub properties: Value,
    /// Replaces the filter of the echoed source.
    pub filter: Option<Value>,
    /// Deliveries that are sent unsettled on this link are not remembered: management and CBS replies, which Python
    /// never settles.
    pub untracked: bool,
}

/// What became of a message given to `send`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a message that was not sent must be kept"]
pub enum Sent {
    /// Written, with this delivery id.
    Delivery(u32),
    /// The client allows no more on this link; a `Flow` event will come.
    NoCredit,
    /// The client's window, or our table of unsettled deliveries, is full; a `Window` or `Disposition` event will come.
    NoWindow,
    /// The link is undecided, detached, gone, or one that we receive on.
    NotAttached,
}

/// Something the client did that the door must know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<'a> {
    /// To be answered by `sasl_outcome`; until then nothing more is taken from the input.
    SaslInit { mechanism: &'a str, initial_response: Option<&'a [u8]>, hostname: Option<&'a str> },
    /// Our open was written.
    Open { container_id: String, hostname: Option<String>, properties: Value },
    /// Undecided until `accept` or `refuse`. Flows and transfers that the client sends meanwhile are given in order.
    Attach {
        link: LinkKey,
        session: SessionKey,
        attach: Box<Attach>,
        /// A link that was leaving had the handle or the room. It is gone; our detach was written.
        replaced: Option<LinkKey>,
    },
    /// On a link that we send on: how many deliveries the client now waits for. An echo was answered; a drain is
    /// answered by `drained`.
    Flow {
        link: LinkKey,
        credit: u32,
        drain: bool,
        /// A map, as it is encoded.
        properties: Option<&'a [u8]>,
    },
    /// The client's window was closed and is open again: links of this session may send.
    Window { session: SessionKey },
    /// One frame of a delivery. `aborted`: forget what came of it before.
    Transfer {
        link: LinkKey,
        delivery_id: u32,
        /// Empty on later frames.
        tag: &'a [u8],
        format: u32,
        settled: bool,
        /// As this frame has it; clients put it into the first.
        state: Option<State>,
        payload: &'a [u8],
        first: bool,
        more: bool,
        aborted: bool,
    },
    /// A delivery was larger than its link allows. It has ended; forget what came of it before, and reject it unless
    /// it was settled.
    TooLarge { link: LinkKey, delivery_id: u32, settled: bool, state: Option<State> },
    /// A frame of a delivery came on a link that is on its way out, and said this of itself. Nothing answers it.
    Unheard { link: LinkKey, state: State },
    /// From a client that receives; `outstanding` says what it is about. Unless settled, it waits for
    /// `settle_outgoing`.
    Disposition { session: SessionKey, first: u32, last: u32, settled: bool, state: Option<State> },
    /// The client detached a link without closing it, and has yet to settle deliveries of it. What it says of them is heard as
    /// before; nothing more can be sent. Its detach is answered by `end_leaving`.
    Leaving { link: LinkKey },
    /// The link is gone, by the client's will or because it broke a limit; our detach was written.
    Detach { link: LinkKey, closed: bool, error: Option<Error> },
    /// The session is gone with these links; our end was written.
    End { session: SessionKey, links: Vec<LinkKey>, error: Option<Error> },
    /// The client closed the connection, and so did we.
    Close { error: Option<Error> },
    /// We closed the connection, for this reason: a violation of the protocol or a silent peer.
    Closed { reason: Error },
}
