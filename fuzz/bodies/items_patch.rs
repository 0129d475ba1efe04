//! Any bytes, as the body of a patch.
//!
//! A patch is refused whole or leaves an item that can be read, under its id and key.

use otobus_items::{
    Answer, Command, ContainerPath, InMemory, ItemPath, ItemWrite, PartitionKey, Precondition, json,
};

fn container() -> ContainerPath {
    ContainerPath::new("d", "c")
}

fn item() -> ItemPath {
    ItemPath { container: container(), partition_key: PartitionKey::of_string("p"), id: "i".to_owned() }
}

pub fn run(bytes: &[u8]) {
    let mut items = InMemory::default();
    let definition =
        br#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":-1}"#;
    let write = ItemWrite {
        container: container(),
        body: (&br#"{"id":"i","pk":"p","n":1,"l":[1,{"m":2}],"o":{"~":{"/":3}}}"#[..]).into(),
        ..ItemWrite::default()
    };
    for command in [
        Command::CreateDatabase { body: (&br#"{"id":"d"}"#[..]).into(), throughput: None },
        Command::CreateContainer { database: "d".into(), body: (&definition[..]).into(), throughput: None },
        Command::CreateItem(write),
    ] {
        items.ask(&command).expect("this is right");
    }
    let body = bytes::Bytes::copy_from_slice(bytes);
    let patch = Command::PatchItem { item: item(), body, condition: Precondition::default() };
    let is_patched = items.ask(&patch).is_ok();
    let read = Command::ReadItem { item: item(), if_none_match: None, session: None };
    let reply = items.ask(&read).expect("it is still there");
    let Answer::Found(document) = reply.answer else { panic!("{:?}", reply.answer) };
    let value = json::parse(&document.body).expect("it is JSON");
    assert_eq!(value.get("id").and_then(json::Value::as_str), Some("i"));
    assert_eq!(value.get("pk").and_then(json::Value::as_str), Some("p"));
    assert_eq!(items.records.len(), 3 + usize::from(is_patched));
}
