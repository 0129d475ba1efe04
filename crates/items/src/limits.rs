//! Every number of the items, with its source. (cosmos.md section 20 is quoted as "20".)

/// Largest item, as UTF-8 JSON (20, P-36).
pub const ITEM_BYTES: usize = 2 * 1024 * 1024;
/// Nesting of an item's JSON (20).
pub const NESTING: usize = 128;
/// Largest page of an answer (20).
pub const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Items in a page when the client does not say (P-51).
pub const PAGE_ITEMS: usize = 100;
/// Items in a page at most (P-51).
pub const PAGE_ITEMS_MOST: usize = 1_000;
/// Operations in a transactional batch or a bulk request (P-59).
pub const BATCH_OPERATIONS: usize = 100;
/// Bytes of a batch request (P-59).
pub const BATCH_BYTES: usize = 2 * 1024 * 1024;
/// Operations in a patch (section 10).
pub const PATCH_OPERATIONS: usize = 10;
/// Bytes of an item's id (P-30).
pub const ITEM_ID_BYTES: usize = 1_023;
/// Bytes of the name of a database, container, user or script (P-30).
pub const NAME_BYTES: usize = 255;
/// Largest time to live, in seconds (C-5).
pub const TTL_SECONDS_MOST: i64 = 2_147_483_647;
/// Bytes of one partition key value (P-43).
pub const KEY_VALUE_BYTES: usize = 2_048;
/// Levels of a hierarchical partition key (P-40).
pub const KEY_PATHS: usize = 3;
/// Unique keys of a container, and paths of one of them (5.2).
pub const UNIQUE_KEYS: usize = 10;
pub const UNIQUE_KEY_PATHS: usize = 16;
/// Least throughput that can be provisioned, and its step (P-77).
pub const THROUGHPUT_LEAST: u32 = 400;
pub const THROUGHPUT_STEP: u32 = 100;
/// Least maximum of an autoscale offer, and its step.
pub const AUTOSCALE_LEAST: u32 = 1_000;
pub const AUTOSCALE_STEP: u32 = 1_000;
/// Most throughput that can be asked for: a typing error must not pass for a setting.
pub const THROUGHPUT_MOST: u32 = 1_000_000_000;
/// Stored procedures, triggers and functions of a container (20: 100, and 50 functions; triggers as procedures).
pub const SCRIPTS: usize = 100;
pub const FUNCTIONS: usize = 50;
/// Bytes of a container's definition, a script or a permission: they are kept in memory.
pub const DEFINITION_BYTES: usize = 256 * 1024;
/// Bytes of all containers' definitions, scripts, users, permissions and the like of the account: they are kept in memory. Some forty thousand
/// containers with definitions of the usual length.
pub const DEFINITIONS_BYTES: usize = 64 * 1024 * 1024;
/// What each of them takes beside its text, about.
pub const DEFINITION_COST: usize = 1024;
/// Databases of the account, and containers of a database: they are kept in memory.
pub const DATABASES: usize = 500;
pub const CONTAINERS: usize = 500;
/// Bytes of a query's text (20).
pub const QUERY_BYTES: usize = 256 * 1024;
/// Tokens of a query: each takes some eighty bytes until the query is read, so brackets alone would take twenty times their text.
pub const QUERY_TOKENS: usize = 100_000;
/// Names in a path of a definition: no item is nested deeper.
pub const PATH_NAMES: usize = NESTING;
/// Bytes of a continuation (P-52): clients announce that they take 1 KiB.
pub const CONTINUATION_BYTES: usize = 1_024;
/// Bytes of a key in the ordered store: an index value, the effective key and the three longest partition key values with every
/// byte written as two, and an id.
pub const KEY_BYTES: usize = 16 * 1_024;
/// Items and index entries that a read looks at before its page ends (P-6).
pub const PAGE_STEPS: u64 = 100_000;
/// Dimensions of a vector, and bytes of one that is quantized: what the service takes in a policy.
pub const VECTOR_DIMENSIONS: i64 = 4_096;
pub const QUANTIZED_BYTES: i64 = 512;
/// Computed properties of a container.
pub const COMPUTED_PROPERTIES: usize = 20;
/// Paths of an indexing policy: each write looks through them.
pub const INDEX_PATHS: usize = 256;
/// Longest retention of the feed of all versions and deletes: a year.
pub const RETENTION_MINUTES_MOST: i64 = 366 * 24 * 60;
/// Bytes of a text that stand in the index.
pub const INDEX_TEXT_BYTES: usize = 256;
/// Bytes of the values of a unique key that stand in its entry; longer ones stand there by their hash.
pub const UNIQUE_VALUE_BYTES: usize = 512;
/// Users of a database, and permissions of a user: they are kept in memory.
pub const USERS: usize = 500;
/// How far a test may move the time at once: a thousand years.
pub const ADVANCE_MS_MOST: i64 = 1_000 * 366 * 24 * 3_600 * 1_000;
/// Items that one record of a purge removes at most.
pub const PURGE_WRITES: usize = 1_000;
/// Events of the feed of all versions and deletes that one slice of a purge looks at.
pub const PURGE_EVENTS: usize = 1_000;
/// Keys of a deleted container, or of an index left behind, that one record removes.
pub const SWEEP_KEYS: u32 = 2_000;
/// Items that one record adds to an index that is being built.
pub const INDEX_BUILD_ITEMS: usize = 200;
/// Items of a partition that are deleted with it at once; more are hidden at once and removed by the purge.
pub const PARTITION_DELETE_ITEMS: usize = 500;
/// Partitions of a container that are deleted and not yet purged: every read looks through them.
pub const DELETED_PARTITIONS: usize = 100;
/// Ranges of keys that a plan reads: constants in an IN, times those of other levels of the partition key.
pub const PLAN_RANGES: usize = 1_000;
/// Items that a plan names one by one, by their keys and ids: some hundred bytes each.
pub const PLAN_POINTS: usize = 10_000;
/// Keys up to which plans are compared by counting.
pub const PLAN_KEYS: usize = 256;
/// Items that are looked at to guess how many an index leads to, when those are too many to count.
pub const PLAN_SAMPLE: usize = 64;
/// So many items are read in their order in the time of one that is looked up by an index entry (3 and 16 microseconds, all in memory).
pub const SCAN_ADVANTAGE: usize = 5;
/// Items that a feed or a streaming query without an order collects to give them in the order in which they were made. Each page collects
/// them again, so this many keys are looked at for a page at most.
pub const MADE_SORTED: usize = 1_000;
/// Items of a container up to which it is read as a whole in the order in which they were made. Each item is then looked up by itself; in a
/// larger container, which the service would spread over several partitions, they come in the order of their keys.
pub const MADE_ITEMS: u64 = 100_000;
/// The same for a part of a container, of which nobody knows how much it is: the numbers of all items are looked through.
pub const MADE_ITEMS_SCOPED: u64 = 10_000;
/// Items with the same cut text in the index that are sorted by the whole of it.
pub const INDEX_RUN: usize = 10_000;
/// Members at the top of an item that are compared one by one when it is replaced; items with more are indexed anew.
pub const COMPARED_MEMBERS: usize = 200;
/// Nesting of a query: brackets, sub-queries, chains of operators. Reading and evaluating recurse as deep.
pub const QUERY_DEPTH: usize = 128;
/// JOINs of one FROM (P-9: the service says 5; more are harmless while the rows of an item are bounded).
pub const QUERY_JOINS: usize = 10;
/// Entries of one IN list (P-9).
pub const QUERY_IN_LIST: usize = 16_000;
/// Parameters of a query.
pub const QUERY_PARAMETERS: usize = 16_000;
/// Letters of the text that an error quotes.
pub const ERROR_QUOTE: usize = 100;
/// What one item may make a query do, in steps: rows of its joins, elements looked at, sub-query rows, and [`STEP_BYTES`] of whatever is
/// looked at. Nested joins over an item's arrays multiply, so a single item could take for ever otherwise.
pub const QUERY_ITEM_STEPS: u64 = 20_000_000;
/// Bytes that are looked at in the time of a step, some fifty nanoseconds. Work that takes longer for a byte counts each several times.
pub const STEP_BYTES: u64 = 128;
/// How often each byte counts of a text that is made a tree, or compared as one.
pub const TREE_WORK: usize = 8;
/// Steps after which a page of a query ends, with a continuation, where rows stream: an item that is looked at takes some
/// microseconds, so a page takes about a second at most (P-6 allows five).
pub const QUERY_PAGE_STEPS: u64 = 200_000;
/// Bytes looked at after which such a page ends, the steps among them: about as long.
pub const QUERY_PAGE_WORK: u64 = 1024 * 1024 * 1024;
/// Steps of a query that has to see everything before its first row. How long it may take is for who runs it to say.
pub const QUERY_WHOLE_STEPS: u64 = 2_000_000_000;
/// Bytes looked at after which a query that runs asks whether it shall go on: less than a millisecond.
pub const WATCH_BYTES: u64 = 1024 * 1024;
/// Steps of all conditions of patches in one request, together: they are decided where everything else waits for it.
pub const CONDITION_STEPS: u64 = 1_000_000;
/// Bytes that the values of one condition may take.
pub const CONDITION_BYTES: usize = 16 * 1024 * 1024;
/// Steps of what is computed while a query is read, such as the functions of constants, and what its constants and patterns may hold.
/// What does not fit is computed when the query runs.
pub const QUERY_TEXT_STEPS: u64 = 400_000;
pub const QUERY_TEXT_BYTES: usize = 48 * 1024 * 1024;
/// Bytes of a constant array or object up to which it is made a tree for each place that names it.
pub const CONSTANT_TREE_BYTES: usize = 4 * 1024;
/// What a constant of a list takes beside its text: its place in a set and in vectors.
pub const CONSTANT_COST: usize = 96;
/// What reading a computed property again takes for each place that names it, in bytes looked at for each of its text, and what its plan may
/// hold for each.
pub const PROPERTY_WORK: usize = 64;
pub const PROPERTY_COST: usize = 64;
/// What a value takes in a list that grows by doubling; a word beside its letters; and a part of a text that was split.
pub const VALUE_COST: usize = 96;
pub const WORD_COST: usize = 64;
pub const PART_COST: usize = 128;
/// Bytes of constants that a planner is told of.
pub const PLANNED_BYTES: usize = 16 * 1024 * 1024;
/// Bytes that the values of one row may take while they are computed. Functions that repeat or join text multiply sizes.
pub const QUERY_ROW_BYTES: usize = 32 * 1024 * 1024;
/// Bytes of one row, as it is written: no page is larger, and no item.
pub const QUERY_ONE_ROW_BYTES: usize = PAGE_BYTES;
/// Bytes that a sorting or distinct query holds of rows for one page. What is behind them comes with the next page.
pub const QUERY_SORTED_BYTES: usize = 64 * 1024 * 1024;
/// Bytes that one query holds of everything: groups, distinct values, rows to be ranked or sorted, the page, and the row at hand.
pub const QUERY_HELD_BYTES: usize = 160 * 1024 * 1024;
/// What is held is told to whoever keeps account of all queries in pieces of this size.
pub const TOLD_PIECE_BYTES: usize = 256 * 1024;
/// What a row that is held takes besides its key and its text: its place in a tree, and two pieces of memory.
pub const HELD_ROW_COST: usize = 128;
/// What a row that is ranked takes besides its text, and each score of it besides how often each phrase is there: its place in
/// three vectors, and the scores, ranks and keys that are made when all rows are known.
pub const RANKED_ROW_COST: usize = 192;
pub const RANKED_FACT_COST: usize = 96;
/// What a group holds beside its key, which it holds twice, about.
pub const GROUP_COST: usize = 200;
/// What each aggregate of a group holds beside texts: its state, and then its result.
pub const AGGREGATE_COST: usize = 144;
/// Letters that REPLICATE may make (documented).
pub const REPLICATE_LETTERS: usize = 10_000;
/// Memory of one compiled pattern of REGEXMATCH; of one that is small, which counts less; and the text of either.
pub const PATTERN_BYTES: usize = 1024 * 1024;
pub const SMALL_PATTERN_BYTES: usize = 64 * 1024;
pub const PATTERN_TEXT_BYTES: usize = 64 * 1024;

/// Memory that entries share.
pub const SHARED_ENTRY_BYTES: usize = 64 * 1024;

/// Larger ones have memory of their own: what is left of a shared piece would be wasted for them.
pub const LARGEST_SHARED_ENTRY: usize = 8 * 1024;

/// Objects up to this many members are searched for a name one by one.
pub const FEW_MEMBERS: usize = 16;

/// A sort key in a token has at most this many bytes; a longer one is cut. With the longest position a token has 1,008 letters then.
pub const TOKEN_KEY_BYTES: usize = 200;

/// A value or place is named in a token by so many of its bytes; a longer one by its beginning and a hash.
pub const TOKEN_NAME_BYTES: usize = 200;

/// What is repeated in a refusal of a value that is wrong.
pub const TOLD_BYTES: usize = 100;

/// Bytes of a key that stand in a position; of a longer one its beginning and a hash.
pub const POSITION_KEY_BYTES: usize = 500;

/// What most scalars take in an index key, at the most: what is reserved for each.
pub const INDEX_LEAF_BYTES: usize = 32;

/// Strings of a text that are looked at byte by byte. Longer ones are searched for their end, many bytes at a time.
pub const PLAIN_STRING_BYTES: usize = 32;
