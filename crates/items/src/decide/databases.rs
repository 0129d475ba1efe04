//! Databases: create and delete (5.1).

use super::{Scene, object, taken};
use crate::account::Decided;
use crate::definition::{Database, check_name, offer, show};
use crate::json::Value;
use crate::record::Event;
use crate::{Answer, Refusal, Throughput, charge, limits};

impl Scene<'_> {
    pub fn create_database(&self, body: &[u8], throughput: Option<Throughput>) -> Result<Decided, Refusal> {
        let body = object(body)?;
        let Some(Value::String(name)) = body.get("id") else {
            return Err(Refusal::bad("The id of the database is missing."));
        };
        check_name(name, limits::NAME_BYTES)?;
        throughput.map_or(Ok(()), offer::check)?;
        if self.definitions.database_names.contains_key(name) {
            return Err(taken("database", name));
        }
        if self.definitions.databases.len() >= limits::DATABASES {
            return Err(Refusal::bad(format!(
                "The account has {} databases, the most it may have.",
                limits::DATABASES
            )));
        }
        let number = self.definitions.next;
        let stamp = self.definitions.next_stamp(self.now);
        let database = Database { number, name: name.as_str().into(), stamp };
        let offer = throughput.map(|throughput| (number + 1, throughput));
        let event = Event::DatabaseCreated { database: number, name: name.clone(), offer };
        let mut decided = self.decided(vec![event], Answer::Created(show::database(&database)));
        decided.reply.charge = charge::DEFINE;
        Ok(decided)
    }

    pub fn delete_database(&self, segment: &str) -> Result<Decided, Refusal> {
        let database = self.definitions.database(segment).ok_or(Refusal::NotFound)?.number;
        Ok(self.decided(vec![Event::DatabaseDeleted { database }], Answer::Deleted))
    }
}
