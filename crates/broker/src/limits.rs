//! Every number that bounds what the broker will hold or do, with its source.

use crate::time::{LocalTime, Span};

/// Longest path of a queue or topic, in characters (S-250).
pub const PATH_CHARACTERS: usize = 260;

/// Longest user metadata of an entity, in characters (S-237).
pub const USER_METADATA_CHARACTERS: usize = 1_024;

/// Range of an entity's lock duration (docs/compatibility/broker.md, 20).
pub const LOCK_DURATION_LEAST: Span = Span::seconds(5);
pub const LOCK_DURATION_MOST: Span = Span::minutes(5);
pub const LOCK_DURATION_DEFAULT: Span = Span::minutes(1);

/// How long after the end of its lock the link of a session is told that deletes what it receives. Clients wait for messages
/// for as long as the lock lasts (the Python SDK's tests do, with the shortest one), and leave by themselves when none came: an error
/// at that very moment is one that the service does not give. Longer than a client takes to close a link, and shorter than
/// the second after which clients believe that a lock has ended.
pub const SESSION_END_DELAY: Span = Span(500);

/// Range of a duplicate detection window (S-161).
pub const DUPLICATE_WINDOW_LEAST: Span = Span::seconds(20);
pub const DUPLICATE_WINDOW_MOST: Span = Span::minutes(7 * 24 * 60);
pub const DUPLICATE_WINDOW_DEFAULT: Span = Span::minutes(10);

/// Least default time to live of an entity (S-66).
pub const TIME_TO_LIVE_LEAST: Span = Span(1_000);

/// Least time an entity must be idle before it deletes itself (S-70).
pub const AUTO_DELETE_LEAST: Span = Span::minutes(5);

/// Deliveries of a message before it is dead-lettered, unless the entity says otherwise (docs/compatibility/broker.md, 20).
pub const MAX_DELIVERY_COUNT_DEFAULT: u32 = 10;
pub const MAX_DELIVERY_COUNT_MOST: u32 = i32::MAX as u32;

/// Size of an entity unless it says otherwise, in megabytes (docs/compatibility/broker.md, 20).
pub const MAX_SIZE_MEGABYTES_DEFAULT: u64 = 1_024;

/// Range of an entity's largest message, in kilobytes, and what applies when it does not say (S-17).
pub const MESSAGE_KILOBYTES_LEAST: u64 = 1_024;
pub const MESSAGE_KILOBYTES_MOST: u64 = 102_400;
pub const MESSAGE_KILOBYTES_DEFAULT: u64 = 1_024;

/// A body above this is stored in parts as its frames arrive, so that it is never whole in memory (design 0004).
pub const BODY_PART_BYTES: u32 = 512 * 1_024;

/// All properties of one message together (S-18).
pub const PROPERTIES_BYTES: usize = message::limits::PROPERTIES_BYTES as usize;

/// Most messages in one batch send, unless a tier says otherwise (S-16).
pub const BATCH_MESSAGES: usize = 4_500;

/// Most lock tokens or sequence numbers in one request: as many as one batch has messages.
pub const REQUEST_MESSAGES: usize = 4_500;

/// Messages that are sent or scheduled in one transaction (S-214).
pub const TRANSACTION_MESSAGES: usize = 100;

/// Messages that are settled in one transaction: as many as one request may name.
pub const TRANSACTION_SETTLEMENTS: usize = REQUEST_MESSAGES;

/// How long a transaction may take, from its first operation on (S-213).
pub const TRANSACTION_TIME: Span = Span::minutes(2);

/// Transactions that a connection may have open. Each takes some two hundred bytes.
pub const CONNECTION_TRANSACTIONS: usize = 1_000;

/// Bytes of messages that the open transactions of a connection have stored: two full ones of messages of a megabyte. They
/// are on disk, and garbage unless they are committed.
pub const STAGED_BYTES: u64 = 256 * 1_024 * 1_024;

/// Bytes of messages that they hold in memory, for the rules of topics and changed properties: of a full transaction the
/// largest that there may be (S-18), and a little more. And those of all connections together.
pub const STAGED_HELD_BYTES: u64 = 8 * 1_024 * 1_024;
pub const STAGED_HELD_TOTAL: u64 = 64 * 1_024 * 1_024;

/// What a message and a settlement of a transaction count for there, besides what they hold.
pub const STAGED_MESSAGE_COST: u64 = 512;
pub const STAGED_SETTLEMENT_COST: u64 = 192;

/// Longest name of a subscription, a rule or a namespace, in characters (S-251).
pub const NAME_CHARACTERS: usize = 50;

/// Most subscriptions of a topic and most filters of each kind over all of them (docs/compatibility/broker.md, 21).
pub const SUBSCRIPTIONS_PER_TOPIC: usize = 2_000;
pub const SQL_FILTERS_PER_TOPIC: usize = 2_000;
pub const CORRELATION_FILTERS_PER_TOPIC: usize = 100_000;

/// Longest text of a SQL filter or action, in characters (S-201, S-205).
pub const SQL_CHARACTERS: usize = 1_024;

/// Parentheses and the like within each other in a SQL text: each costs some stack of the thread that decides.
pub const SQL_DEPTH: usize = 64;

/// Statements of a SQL action (S-205).
pub const SQL_STATEMENTS: usize = 32;

/// Properties that a correlation filter compares, or parameters of a SQL filter. Nobody says how many are allowed; each
/// costs a look-up for each message.
pub const FILTER_VALUES: usize = 128;

/// Bytes of all names and values of a correlation filter, or of the parameters of a SQL filter, together: a message has no more
/// properties than that (S-18).
pub const FILTER_BYTES: usize = PROPERTIES_BYTES;

/// Longest text that a filter or an action makes out of others: as long as a property may be (S-18).
pub const FILTER_TEXT_BYTES: usize = 32 * 1_024;

/// What the filter and the action of one rule, and all rules of a topic together, may cost for one message, in steps: a look at
/// a node of an expression, at a property, or at eight bytes of a text. The rules of a full topic (2,000) take some tens each. A
/// million is a few milliseconds.
pub const RULE_STEPS: usize = 256 * 1_024;
pub const MESSAGE_STEPS: usize = 1_024 * 1_024;

/// What a record, a body, an effect or a copy of a published message counts for, which take a tenth of a microsecond or two.
pub const RESULT_STEPS: usize = 64;

/// Steps after which the messages that are left of a delivery, or of a transaction, are stored and published later, in slices of
/// their own: a batch of 16,000 copies is published at once.
pub const PUBLISH_STEPS: usize = MESSAGE_STEPS;

/// What one call of the broker may cost: the messages that are published at once, the last of them with all that one may take, and
/// what else came of the command. About ten milliseconds, and the longest that anybody waits for anybody.
pub const SLICE_STEPS: usize = 4 * MESSAGE_STEPS;

/// What a copy takes at the most in the record of a published message, without what an action has changed; and what all copies
/// of one message may take that actions have changed, which is one append of the journal: a quarter of its largest.
pub const COPY_BYTES: usize = 16;
/// What the records take by which a copy is in a session (the id not counted), is forwarded at once or dead-lettered without a
/// session.
pub const MOVE_BYTES: usize = 96;
pub const FAN_OUT_BYTES: usize = 4 * 1_024 * 1_024;

/// Bytes of records, or steps, after which a slice ends, whatever its messages are: what clients have changed of one may take 64 KiB.
pub const SLICE_BYTES: usize = 1_024 * 1_024;

/// Changed properties of a message up to this size are held in memory with it. Those above it lie in a body of their own, and a
/// reference is held: so much text says why a message failed, and what is longer is seldom read and may be read from the disk.
pub const SMALL_OVERLAY_BYTES: usize = 1_024;

/// An entity takes changed properties that are not small until it holds so many times its size: dead-lettering goes on in a full
/// one, and a receiver that changes everything still cannot fill the disk.
pub const CHANGED_SIZE_TIMES: u64 = 2;

/// What lives long in memory, in all, unless it is configured: the index of messages, changed properties, sessions, ids of messages, locks
/// and definitions. Beyond it nothing that adds to it is taken.
pub const STATE_BYTES: usize = 2 * 1_024 * 1_024 * 1_024;

/// It is counted again after so many records: a few megabytes at the most.
pub const STATE_LOOK_RECORDS: usize = 4_096;
/// ... and after so many while nothing is taken because of it.
pub const FULL_STATE_LOOK_RECORDS: usize = 64;

/// How long a topic that has no memory for copies waits before it tries again.
pub const STATE_RETRY: Span = Span::seconds(1);

/// What things are counted for, besides the texts that they have: an entity with its settings, in both halves of the state; the place of
/// one that was deleted; a rule, and how many times its text it takes once it was read; a value of it; what few messages have; a
/// session and each of its messages; an id in which duplicates are looked for; a lock; a message that is scheduled, or a dead letter.
pub const ENTITY_COST: usize = 4 * 1_024;
pub const DELETED_COST: usize = 32;
pub const RULE_COST: usize = 1_024;
pub const TEXT_FACTOR: usize = 12;
pub const VALUE_COST: usize = 128;
pub const EXTRA_COST: usize = 192;
pub const SESSION_COST: usize = 512;
pub const MEMBER_COST: usize = 48;
pub const HISTORY_ID_COST: usize = 80;
pub const LOCK_COST: usize = 128;
pub const SCHEDULED_COST: usize = 32;
pub const DEAD_LETTER_COST: usize = 16;

/// Stored bodies that one request may ask to have read, or to be told the places of: parts of half a megabyte, where messages are large. So
/// what is held for it while they are read has a limit, and so has the time that others wait for the disk.
pub const REQUEST_BODIES: usize = 16 * 1_024;

/// Bytes of the messages that one request for deferred ones takes, unless it takes one alone: they leave as one answer, which is held whole.
pub const REQUEST_DELIVERED_BYTES: u64 = 16 * 1_024 * 1_024;

/// Bytes of property changes that one request may ask for, over all messages that it settles, with what was changed of them before
/// and is read and written again: they are one append.
pub const REQUEST_CHANGE_BYTES: usize = 4 * 1_024 * 1_024;

/// What a record takes without anything that has no fixed size, about.
pub const RECORD_BYTES: usize = 48;

/// Authorization rules of one entity (docs/compatibility/broker.md, 21), the length of their names (HX-1.8.2) and of their keys, which
/// are 44 characters where the service makes them.
pub const ACCESS_RULES: usize = 12;
pub const KEY_NAME_CHARACTERS: usize = 256;
pub const KEY_CHARACTERS: usize = 256;

/// Longest session id, in characters (S-6).
pub const SESSION_ID_CHARACTERS: usize = 128;

/// Sessions in one answer to a listing: more than the clients ask for at a time.
pub const SESSIONS_PAGE: usize = 1_000;

/// Namespaces of one server. Each costs a name.
pub const NAMESPACES: usize = 1_000;

/// Sizes that an entity may have, in megabytes, and those in every tier (docs/compatibility/broker.md, 20).
pub const MAX_SIZE_MEGABYTES: [u64; 9] = [1_024, 2_048, 3_072, 4_096, 5_120, 10_240, 20_480, 40_960, 81_920];
pub const COMMON_SIZE_MEGABYTES: [u64; 5] = [1_024, 2_048, 3_072, 4_096, 5_120];

/// Most messages in one answer to a browser, and the bytes after which it gets no more of them: fewer than asked for
/// is no sign of the end (S-133), and an answer is in memory whole.
pub const BROWSE_MESSAGES: usize = 1_000;
pub const BROWSE_BYTES: u64 = 1_024 * 1_024;

/// What is due (locks that end, messages that expire or whose time has come) and done in one go, so that no other
/// command waits behind more than this.
pub const TIMER_SLICE: usize = 1_000;

/// How far the time of a namespace moves at once: ten years, leap days included. An entity that is never idle is visited
/// every five minutes of it.
pub const ADVANCE_MOST: Span = Span::minutes(3_653 * 24 * 60);

/// The last millisecond of the year 9999: later instants cannot be told to clients.
pub const CALENDAR_END: LocalTime = LocalTime(253_402_300_799_999);

/// Of what happened during an advance, so much is told in its order; of the rest only how much it was.
pub const ADVANCE_EVENTS: usize = 1_000;

/// Messages handed out in one go, for the same reason.
pub const DISPATCH_SLICE: usize = 4_096;

/// Timers of locks that are gone may wait in the heap until they outnumber the living by this.
pub const IDLE_TIMERS: usize = 1_024;

/// Entities in one answer to a listing: a page of 100 (H-27) and one more, which tells that there is a next page.
pub const LIST_PAGE: usize = 101;

/// Longest frame of a snapshot: a chunk of messages takes some ten kilobytes, a message's changed properties 64, and
/// what claims to be far longer was never written.
pub const SNAPSHOT_FRAME_BYTES: usize = 16 * 1_024 * 1_024;

/// Message ids that a queue remembers for duplicate detection, whatever its window: with what finds them, about 80 MiB.
/// Beyond it the oldest are forgotten before their window ends.
pub const HISTORY_IDS: usize = 1_024 * 1_024;

/// Ids that are kept, copied and forgotten together.
pub const HISTORY_CHUNK: usize = 256;

/// How often a message is forwarded (S-173), and how often with the forwarding of dead letters, which must end too.
pub const TRANSFER_HOPS: u8 = 4;
pub const DEAD_LETTER_HOPS: u8 = 16;

/// How long dead letters wait before their destination, which is full, disabled or gone, is tried again.
pub const FORWARD_RETRY: Span = Span(10_000);

/// Messages, and bytes, that are read at a time before receive-and-delete removes them: a run of the disk, and no more than
/// what is lost if the receiver goes away meanwhile.
pub const CHECK_MESSAGES: usize = 128;
pub const CHECK_BYTES: u64 = 1024 * 1024;

/// What is read, or was and is not published yet, of messages that are forwarded or whose time has come, of all entities together. Who
/// finds no room waits for it in line. A named part of what is declared: the disk may take its time.
pub const READ_BYTES: u64 = 16 * 1024 * 1024;

/// The most that is read for one of them at a time: as much as is enough, a message more, and its changed properties.
pub const READ_SLICE_BYTES: u64 =
    CHECK_BYTES + READ_MESSAGE_BYTES + PROPERTIES_BYTES as u64 + CHECK_MESSAGES as u64 * READ_MESSAGE_COST;

/// The largest body that is stored whole, and what a message that is read counts for besides its bodies.
pub const READ_MESSAGE_BYTES: u64 = 1024 * 1024;
pub const READ_MESSAGE_COST: u64 = 256;

/// What a stored message may have that its sender did not send: an id of 32 digits and the section around it.
pub const ADDED_BYTES: u64 = 64;

/// Chunks that one id may push out: more than one, so that what is past becomes less, and few, so that no send pays for
/// all the others.
pub const HISTORY_CHUNKS_AT_ONCE: usize = 2;

/// Queues and topics of a namespace, as the tiers sell them (docs/compatibility/broker.md, 21).
pub const SHARED_ENTITIES: usize = 10_000;
pub const PREMIUM_ENTITIES: usize = 1_000;

/// Partitioned queues and topics of a namespace, in the tiers that share machines.
pub const PARTITIONED_ENTITIES: usize = 100;

/// Receivers of one entity at a time, in every tier that is sold (S-98).
pub const RECEIVERS: usize = 5_000;

/// Messages that one request may delete (S-240).
pub const STANDARD_DELETED_MESSAGES: u32 = 500;
pub const PREMIUM_DELETED_MESSAGES: u32 = 4_000;
