//! Databases and containers that the configuration declares: made when they are missing, left alone when they are there.
//! A container's time to live is the one thing that follows the file, for it is what operators change.

use crate::item_table::{Container, Database};
use items::{Answer, Command, ContainerPath, Refusal, Throughput};
use items_engine::Handle;
use serde_json::{Map, Value};
use std::path::Path;

/// Makes what is missing. Says what could not be made.
pub async fn apply(items: &Handle, databases: &[Database], file: Option<&Path>) -> Vec<String> {
    let mut not_taken = Vec::new();
    let place =
        |line: usize| file.map(|file| format!("{} line {line}: ", file.display())).unwrap_or_default();
    for database in databases {
        let body = serde_json::json!({ "id": database.name }).to_string().into();
        let throughput = database.throughput.map(Throughput::Fixed);
        match items.ask(Command::CreateDatabase { body, throughput }).await {
            Ok(_) | Err(Refusal::Conflict(_)) => {}
            Err(why) => {
                let name = &database.name;
                not_taken.push(format!("{}database `{name}` cannot be created: {why}", place(database.line)));
                continue;
            }
        }
        for container in &database.containers {
            if let Err(why) = make(items, &database.name, container).await {
                let name = format!("{}/{}", database.name, container.name);
                not_taken.push(format!(
                    "{}container `{name}` cannot be made as declared: {why}",
                    place(container.line)
                ));
            }
        }
    }
    not_taken
}

async fn make(items: &Handle, database: &str, container: &Container) -> Result<(), Refusal> {
    let create = Command::CreateContainer {
        database: database.to_owned(),
        body: container.document.clone().into(),
        throughput: container.throughput.map(Throughput::Fixed),
    };
    match items.ask(create).await {
        Err(Refusal::Conflict(_)) => {
            follow(items, ContainerPath::new(database, &container.name), container).await
        }
        made => made.map(drop),
    }
}

/// Gives a container that is there the time to live of the file, if the file says one.
async fn follow(items: &Handle, path: ContainerPath, declared: &Container) -> Result<(), Refusal> {
    let read = Command::ReadContainer { container: path.clone(), if_none_match: None };
    let Answer::Found(found) = items.ask(read).await?.answer else { return Ok(()) };
    let unreadable = |_| Refusal::bad("its definition cannot be read");
    let mut there: Map<String, Value> = serde_json::from_slice(&found.body).map_err(unreadable)?;
    let declared: Map<String, Value> = serde_json::from_str(&declared.document).map_err(unreadable)?;
    let Some(ttl) = declared.get("defaultTtl").filter(|ttl| there.get("defaultTtl") != Some(ttl)) else {
        return Ok(());
    };
    there.insert("defaultTtl".into(), ttl.clone());
    let body = Value::Object(there).to_string().into();
    items.ask(Command::ReplaceContainer { container: path, body, if_match: None }).await.map(drop)
}
