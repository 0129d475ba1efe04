//! Any bytes, as continuations: of queries that stream and that sort, of a feed, of both change feeds.
//!
//! A continuation is refused or gives a page; nothing panics.

use otobus_items::{
    ChangeFeedMode, ChangeFeedStart, Command, ContainerPath, InMemory, ItemWrite, Listing, Query, QueryScope,
    Scope,
};

const QUERIES: [&str; 4] = [
    "SELECT * FROM c",
    "SELECT VALUE c.n FROM c WHERE c.n >= 1 ORDER BY c.n",
    "SELECT DISTINCT VALUE c.n FROM c",
    "SELECT c.n, COUNT(1) AS count FROM c GROUP BY c.n",
];

fn container() -> ContainerPath {
    ContainerPath::new("d", "c")
}

fn account() -> InMemory {
    let mut items = InMemory::default();
    let definition = br#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"changeFeedPolicy":{"retentionDuration":5}}"#;
    let mut commands = vec![
        Command::CreateDatabase { body: (&br#"{"id":"d"}"#[..]).into(), throughput: None },
        Command::CreateContainer { database: "d".into(), body: (&definition[..]).into(), throughput: None },
    ];
    for n in 0..4 {
        let body = format!(r#"{{"id":"i{n}","pk":"p","n":{n}}}"#).into();
        commands.push(Command::CreateItem(ItemWrite {
            container: container(),
            body,
            ..ItemWrite::default()
        }));
    }
    commands.iter().for_each(|command| drop(items.ask(command).expect("this is right")));
    items
}

pub fn run(bytes: &[u8]) {
    thread_local!(static ACCOUNT: std::cell::RefCell<InMemory> = std::cell::RefCell::new(account()));
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let listing = Listing { max_items: Some(2), continuation: Some(text.to_owned()) };
    let query = |query: &str| {
        let of = QueryScope::Items { container: container() };
        let (text, listing) = (query.to_owned(), listing.clone());
        Command::Query(Query { of, scope: Scope::All, text, parameters: Vec::new(), listing, session: None })
    };
    let mut commands: Vec<Command> = QUERIES.into_iter().map(query).collect();
    commands.push(Command::ReadFeed {
        container: container(),
        scope: Scope::All,
        listing: listing.clone(),
        session: None,
    });
    for mode in [ChangeFeedMode::LatestVersion, ChangeFeedMode::AllVersionsAndDeletes] {
        let start = ChangeFeedStart::After(text.to_owned());
        let (container, scope, max_items) = (container(), Scope::All, Some(2));
        commands.push(Command::ChangeFeed { container, scope, mode, start, max_items });
    }
    ACCOUNT.with_borrow_mut(|account| commands.iter().for_each(|command| drop(account.ask(command))));
}
