//! Every number that bounds what a peer may make the doors hold, do or wait for, with its reason.

use std::time::Duration;

/// How far a client's clock may be behind ours before its fresh token counts as expired.
pub const CLOCK_SKEW_SECONDS: u64 = 300;

/// Longest token read. The longest an SDK makes signs a whole request address and stays under 2 KiB.
pub const TOKEN_BYTES: usize = 8 * 1_024;

/// Connections of strangers. Each may cost up to 128 KiB, so they hold 128 MiB at most.
/// Fewer where few files may be open.
pub const STRANGER_CONNECTIONS: usize = 1_024;

/// Links of a connection that are ended or refused because too much is held; the next one ends the connection. Each is remembered until
/// its client says that it is gone too.
pub const GREEDY_LINKS: usize = 64;

/// What all connections may hold together on behalf of their peers, beyond what each may always hold: unfinished requests and
/// messages, answers that are not taken, output that is not read, links and claims. `[memory] connections_megabytes` sets it.
pub const CONNECTIONS_BYTES: usize = 128 * 1_024 * 1_024;

/// What a connection may hold apart from that: the buffers of a peer that says little, and a large request. All connections together may
/// take as much of it as of the other, and then each has only the least; and there are no more places than that is enough for.
pub const CONNECTION_FREE_BYTES: usize = 96 * 1_024;
pub const CONNECTION_LEAST_BYTES: usize = 16 * 1_024;

/// What one connection may hold: as many unfinished messages as it may have, in vectors that grow by doubling, or an answer
/// with the most messages, in the output and waiting for a window.
pub const CONNECTION_BYTES: usize = 24 * 1_024 * 1_024;

/// The connections of one policy together may take one of so many shares of what all may hold.
pub const POLICY_SHARE: usize = 2;

/// A claim, a question and an effect that waits are counted as this, besides the text that they have.
pub const CLAIM_COST: usize = 512;
pub const QUESTION_COST: usize = 512;
pub const EFFECT_COST: usize = 256;

/// Commands that are handed over at once: a read full of small frames must not become a batch of megabytes.
pub const COMMANDS_AT_ONCE: usize = 1_024;

/// Longest message id of a request to a node of ours, which its answer repeats, in bytes: as long as that of a message (S-6), in
/// characters of four bytes. And the longest tracking id, which is repeated too.
pub const REQUEST_ID_BYTES: usize = 4 * 128;
pub const TRACKING_BYTES: usize = 256;

/// Values in a request to `$cbs`: the clients' have some twenty.
pub const CBS_REQUEST_VALUES: u32 = 128;

/// Questions of a stranger that the broker has not answered, and answers that it has not taken, in bytes. The clients put one
/// token at a time before the first was accepted.
pub const STRANGER_QUESTIONS_BYTES: usize = 12 * 1_024;
pub const STRANGER_REPLIES_BYTES: usize = 8 * 1_024;

/// Of the places for connections, one of so many is kept for those who have not proved anything, one more for those who may
/// manage, and one more for the root key.
pub const KEPT_PLACES: usize = 16;

/// Of the others, what all connections of one policy, and all from one address, may have at the most, in percent. Who may manage is
/// held to its policy's share alone, and the root key to none.
pub const POLICY_PLACES: usize = 75;
pub const ADDRESS_PLACES: usize = 90;

/// Longest request to declare or discharge a transaction; the clients' have some forty bytes.
pub const COORDINATOR_REQUEST_BYTES: u64 = 4 * 1_024;

/// Transactions that a connection may declare before a claim is accepted: .NET declares one before it puts a token.
pub const STRANGER_TRANSACTIONS: usize = 8;

/// Wrong keys that an address may show before it has to wait: typing errors, and a fleet that starts with an old key.
pub const FREE_FAILURES: u32 = 10;

/// One wrong key is forgiven after this time.
pub const FAILURE_FORGIVENESS: Duration = Duration::from_secs(6);

/// How long the answer to the first wrong key beyond those waits; doubled with each one after it.
pub const FAILURE_DELAY: Duration = Duration::from_millis(100);

/// The longest that one answer waits: less than any client's patience with a link.
pub const FAILURE_DELAY_MOST: Duration = Duration::from_secs(5);

/// The longest that a connection waits, however many wrong keys it has shown in one write.
pub const FAILURE_SILENCE_MOST: Duration = Duration::from_secs(20);

/// Addresses whose wrong keys are counted, 64 bytes each.
pub const FAILURE_ADDRESSES: usize = 4_096;

/// A peer that connects must send its first bytes within this time, for itself and again inside TLS.
pub const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(10);

/// A TLS handshake takes two round trips; the rest is patience with slow machines.
pub const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// What TLS holds of output that a stranger has not read. A record has 16 KiB.
pub const STRANGER_TLS_BYTES: usize = 4 * 1_024;

/// Pause after `accept` fails for want of file handles or memory, so that the loop does not spin until some come back.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bytes of an HTTP request's line and headers together. Also the size of the connection's read buffer.
pub const HTTP_HEAD_BYTES: usize = 32 * 1_024;

/// Of a line of a head so many bytes are looked at: the names that tell how long a body is, and their values.
pub const HEAD_LINE_KEPT: usize = 64;

/// Path of a request's address. The longest honest one, a rule of a subscription of a topic whose names are all escaped,
/// has 3.3 KiB.
pub const HTTP_PATH_BYTES: usize = 4 * 1_024;

/// Query of a request's address.
pub const HTTP_QUERY_BYTES: usize = 4 * 1_024;

/// Names and values in a query that are looked at. The clients send five at the most.
pub const HTTP_QUERY_PAIRS: usize = 32;

/// Headers of one HTTP request.
pub const HTTP_HEADERS: usize = 64;

/// From the first byte of a request, or from the end of the one before, to the end of its headers.
pub const HTTP_HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Body of a management request. The largest honest one, a queue with twelve authorization rules, has 10 KiB.
pub const HTTP_BODY_BYTES: usize = 1_024 * 1_024;

/// From the end of the headers to the end of the body.
pub const HTTP_BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a message that is sent over HTTP may keep us waiting for its bytes, and how many of them buy another second:
/// a sender that is faster may send as long as the message is. What we make the sender wait is not counted.
pub const MESSAGE_PATIENCE: Duration = Duration::from_secs(30);
pub const MESSAGE_BYTES_PER_SECOND: u64 = 64 * 1_024;

/// Of a message that is refused, what is read and forgotten before the answer, and for how long: many clients hear nothing
/// until they have sent everything.
pub const REFUSED_MESSAGE_BYTES: usize = 4 * 1_024 * 1_024;
pub const REFUSED_MESSAGE_PATIENCE: Duration = Duration::from_secs(5);

/// Longest message sent over HTTP that does not tell its length in front: it is held until it is whole, for its length
/// stands before its bytes (H-98).
pub const UNMEASURED_BYTES: usize = BATCH_BYTES;

/// How long a receive over HTTP waits for a message unless it says otherwise (HX-2.3), and at the most: longer than
/// proxies keep a silent connection.
pub const RECEIVE_WAIT: Duration = Duration::from_secs(60);
pub const RECEIVE_WAIT_MOST: Duration = Duration::from_secs(300);

/// How far the date of a signature at the items' port may be off, unless it is configured (P-19: the lenient reading).
pub const ITEMS_CLOCK_SKEW: Duration = Duration::from_secs(15 * 60);

/// Body of a request to the items: the largest item or batch (P-36, P-59), and what is around it.
pub const ITEMS_BODY_BYTES: usize = 2 * 1_024 * 1_024 + 64 * 1_024;

/// What is taken and thrown away of a body that is too long, from somebody who has proved to have a key: so much that a client which
/// sends it all before it reads gets the answer.
pub const ITEMS_DISCARDED_BYTES: usize = 8 * 1_024 * 1_024;

/// Pieces in which a large answer is handed to a connection, as its peer takes it.
pub const ITEMS_ANSWER_PIECE: usize = 64 * 1_024;

/// After how long a request to the items that found no room for itself or its answer is told to come back.
pub const ITEMS_RETRY_MS: u64 = 1_000;

/// Bodies that are arriving at the items' port, of all connections together, in KiB. Beyond it they wait for each other.
pub const ITEMS_BODIES_KIBIBYTES: usize = 128 * 1_024;

/// Bytes of the headers of an HTTP/2 request, 32 more for each header: a header of one byte on the wire takes a hundred in memory.
pub const HTTP2_HEAD_BYTES: u32 = 16 * 1_024;

/// Bytes that are read at a time from an HTTP/2 peer none of whose requests was authorized, while none of them is being answered: too few for
/// two requests with as many headers as there may be.
pub const HTTP2_STRANGER_READ: usize = 256;

/// Requests of such a peer. Each may leave an answer that the peer does not read.
pub const HTTP2_STRANGER_REQUESTS: usize = 8;

/// Requests that one HTTP/2 connection may have open at once, each with an answer of up to 4 MiB.
pub const HTTP2_STREAMS: u32 = 64;

/// Bytes of a body that a peer may send before we ask for more: of one request, and of a connection. Before a request is
/// authorized nothing of its body is read, so this is what a stranger can make us hold.
pub const HTTP2_STREAM_WINDOW: u32 = 64 * 1_024;
pub const HTTP2_CONNECTION_WINDOW: u32 = 128 * 1_024;

/// Bytes of one answer that wait in an HTTP/2 connection for a peer that reads slowly.
pub const HTTP2_SEND_BYTES: usize = 256 * 1_024;

/// How often a silent HTTP/2 peer is asked whether it is still there, and how long it may think about it.
pub const HTTP2_PING: Duration = Duration::from_secs(20);

/// Nesting of elements in a request's XML. The deepest honest one, a rule's typed values, has 8.
pub const XML_DEPTH: usize = 32;

/// Elements in a request's XML, so that a body of nothing but `<a/>` cannot grow a hundredfold in memory.
pub const XML_ELEMENTS: usize = 4_096;

/// Entries in one page of a feed (H-27).
pub const FEED_ENTRIES: usize = 100;

/// Room for the first read of a connection: an AMQP client's headers and its pipelined `open` fit.
pub const FIRST_READ_BYTES: usize = 4 * 1_024;

/// How long the certificates made at first start are good. Their CA's key is thrown away, so they cannot be renewed,
/// only made anew.
pub const CERTIFICATE_YEARS: i32 = 10;

/// From a connection's start to its first accepted claim. Azure allows the same.
pub const CLAIM_TIMEOUT: Duration = Duration::from_secs(20);

/// How long the answer to a detach that does not close waits for the client to settle what it has from the link, which is
/// forgotten with it. Python settles right behind its detach and would wait for ever for what became of that: long
/// enough for two frames that leave one after the other, and too short for anybody to mind who waits for the answer.
pub const LEAVING_GRACE: Duration = Duration::from_millis(200);

/// How long a receiver waits for any session to be free, unless it says itself, and at the longest.
pub const SESSION_WAIT: Duration = Duration::from_secs(60);
pub const SESSION_WAIT_MOST: Duration = Duration::from_secs(3_600);

/// How often the claims of a connection are looked at again: that soon does a link end whose policy is gone.
pub const CLAIM_REVIEW: Duration = Duration::from_secs(2);

/// Bytes of one WebSocket frame that we send, and of what may wait to be sent.
pub const WEBSOCKET_FRAME_BYTES: usize = 32 * 1_024;

/// What one read takes from a WebSocket: it is on the stack.
pub const WEBSOCKET_READ_BYTES: usize = 8 * 1_024;

/// Largest request to `$cbs`: a token and its names. A token of an identity provider may have 16 KiB.
pub const CBS_REQUEST_BYTES: u64 = 20 * 1_024;

/// Largest batch of messages in one delivery, whatever the entity takes as one message: a batch is stored in one append
/// and is held in memory until then (S-16).
pub const BATCH_BYTES: usize = 1_024 * 1_024;

/// Unfinished messages of all connections together. Beyond it, large messages are passed on in smaller parts, and large
/// batches are refused.
pub const UNFINISHED_TOTAL_BYTES: usize = 64 * 1_024 * 1_024;

/// A part when memory is short. Above the largest front of a message (S-18), which must be whole in the first part.
pub const HURRIED_PART_BYTES: usize = 96 * 1_024;

/// Parts of large messages that one connection may have on their way to the journal; its socket is not read beyond.
/// Two parts: one is written while the next arrives.
pub const UNSTORED_BYTES: usize = 1_024 * 1_024;

/// Effects that may wait for a peer which does not read them while it goes on asking; its socket is not read beyond.
/// A few megabytes.
pub const UNREAD_EFFECTS: usize = 16_384;

/// From a connection's close to the end of its socket, for a peer that does not read what it was told last.
pub const LAST_OUTPUT_TIMEOUT: Duration = Duration::from_secs(5);

/// What the property changes that one disposition asks for may take in memory, over all messages that it settles, and after how much of
/// it commands are handed over. The official clients settle messages one by one.
pub const DISPOSITION_CHANGE_BYTES: usize = 4 * 1_024 * 1_024;

/// Largest request to a management node: as many messages to be scheduled as one batch may have, and what is around each.
pub const MANAGEMENT_REQUEST_BYTES: u64 = BATCH_BYTES as u64 + 512 * 1_024;

/// Questions of one connection that the broker has not answered, and bytes of what the answers may hold; its socket is not read
/// beyond. An answer may name a thousand messages at some 200 bytes each.
pub const OPEN_QUESTIONS: usize = 128;
pub const QUESTIONS_BYTES: usize = 1_024 * 1_024;

/// What a message counts for in an answer, before its bytes are read: what the broker tells of it and where its body is.
pub const ANSWERED_MESSAGE_COST: usize = 256;

/// What the id of a session counts for in an answer, at the most; and a list of rules, which may have large values.
pub const SESSION_ID_COST: usize = 512 + 32;
pub const RULES_ANSWER_BYTES: usize = 512 * 1_024;

/// Replies of nodes of ours that the links of one connection may leave untaken, in bytes. The link whose reply goes beyond it
/// is ended.
pub const REPLIES_WAITING_BYTES: usize = 4 * 1_024 * 1_024;

/// A reply above this holds messages of more than the usual size, which come whole or not at all.
pub const LARGE_REPLY_BYTES: usize = 2 * 1_024 * 1_024;

/// A reply up to this is put together whatever others hold.
pub const SMALL_REPLY_BYTES: usize = 32 * 1_024;

/// Bytes of such replies that all connections may put together at once. One always may: a message has 100 MiB at most.
pub const LARGE_REPLIES_BYTES: usize = 64 * 1_024 * 1_024;

/// Encoded bytes in the output beyond which no run or part is added to it.
pub const OUTPUT_BYTES: usize = 256 * 1_024;

/// The same while memory is short, of a known peer and of a stranger.
pub const LOW_MEMORY_OUTPUT_BYTES: usize = 32 * 1_024;

/// Room that the output keeps when all of it was written: enough for what comes next of a peer that is sent little, and while one is
/// sent much for all that may come at once.
pub const KEPT_OUTPUT_BYTES: usize = 2 * OUTPUT_BYTES;
pub const KEPT_BUSY_OUTPUT_BYTES: usize = 4 * OUTPUT_BYTES;

/// A connection on which nothing is due looks around nevertheless after this time.
pub const IDLE_LOOK: Duration = Duration::from_secs(3_600);

/// A message above this is sent part by part as the client's window allows, and never waits encoded.
pub const WHOLE_MESSAGE_BYTES: u32 = engine::limits::CACHED_BODY_BYTES;

/// Room for waiting messages that a link keeps when none wait: enough for what a busy client is given at a time.
pub const WAITING_KEPT: usize = 256;

/// Credit for a client that sends: enough that it never waits for more, renewed at half.
pub const SENDER_CREDIT: u32 = 1_000;

/// Requests that a client may have open at a node of ours.
pub const REQUEST_CREDIT: u32 = 100;

/// Messages that may be on their way from the broker to one link. A client may grant two billion; its outbox may not
/// grow to that.
pub const DELIVERIES_AHEAD: u64 = 2_000;

/// The same for all links of a connection together, which share it: a message that waits takes about 200 bytes.
pub const CONNECTION_DELIVERIES_AHEAD: u64 = 8_000;

/// The same while memory is short: of all links of a connection together.
pub const LOW_MEMORY_DELIVERIES_AHEAD: u64 = 64;

/// Room for a stranger's frames in the input: one of the largest size that it may send.
pub const STRANGER_INPUT_BYTES: usize = amqp::limits::FRAME_BYTES_BEFORE_CLAIM as usize;

/// Room for a known peer's frames when memory is short: one of the largest size that we announce fits.
pub const LOW_MEMORY_INPUT_BYTES: usize = 72 * 1_024;

/// What one read takes from a known peer: some two hundred messages of a kilobyte.
pub const INPUT_BYTES: usize = 256 * 1_024;

/// What the input of a connection starts with.
pub const FIRST_INPUT_BYTES: usize = 4 * 1_024;

/// Bodies handed over at once at the most: with what one delivery may add, far below the largest append.
pub const SUBMIT_BYTES: usize = 1_024 * 1_024;

/// Claims that one connection may hold. JavaScript puts two for each entity it uses.
pub const CONNECTION_CLAIMS: usize = 1_024;

/// As much is told of a property's name as a name that somebody chose may have.
pub const TOLD_NAME_CHARACTERS: usize = 128;

/// What TLS holds of output for a known peer: four records, which go out in one write.
pub const TLS_OUTPUT_BYTES: usize = 64 * 1_024;

/// Keys of an issuer: it has a handful, those of now, and those before and after.
pub const ISSUER_KEYS: usize = 64;

/// How long tokens of the development issuer are good. Clients ask again some minutes before.
pub const DEVELOPMENT_TOKEN_SECONDS: u64 = 3_600;

/// Bytes of a bound of effective keys: three levels of 32 digits, or a key of version 1 with its end.
pub const KEY_BOUND_BYTES: usize = 512;

/// Segments of the longest address of the items, a permission of a user, and one more to tell that it is too long.
pub const ADDRESS_SEGMENTS: usize = 8;

/// Characters of a request's path that a failure repeats: a stranger's longest path would be copied several times.
pub const SHOWN_PATH_CHARACTERS: usize = 512;

/// Longest activity id that is repeated. A UUID has 36 bytes.
pub const ACTIVITY_ID_BYTES: usize = 64;

/// Room for a head over HTTP at first: most are shorter.
pub const USUAL_HEAD_BYTES: usize = 4 * 1_024;

/// Room at first for what the headers of an answer about an item say, and for how long an answer took, in milliseconds.
pub const ANSWER_TEXT_BYTES: usize = 160;
pub const DURATION_TEXT_BYTES: usize = 16;
