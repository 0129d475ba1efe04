//! Scripts, users, permissions: documents that are kept and shown (section 19). Scripts are not run.

use super::{Scene, object, taken};
use crate::account::Decided;
use crate::definition::{Document, check_name, show};
use crate::json::{Object, Value};
use crate::keys::Kind;
use crate::record::Event;
use crate::{Answer, Command, Refusal, ScriptKind, limits};
use bytes::Bytes;

impl From<ScriptKind> for Kind {
    fn from(kind: ScriptKind) -> Kind {
        match kind {
            ScriptKind::Procedure => Kind::Procedure,
            ScriptKind::Trigger => Kind::Trigger,
            ScriptKind::Function => Kind::Function,
        }
    }
}

impl Scene<'_> {
    pub fn document(&self, command: &Command) -> Result<Decided, Refusal> {
        let database = |name: &str| Ok::<_, Refusal>(self.definitions.owner_database(name)?.number);
        let user = |database: u32, name: &str| {
            let user = self.definitions.document(Kind::User, database, name).ok_or(Refusal::OwnerNotFound)?;
            Ok::<_, Refusal>(user.number)
        };
        match command {
            Command::CreateScript { container, kind, body } => {
                let parent = self.definitions.owner_container(container)?.number;
                self.create((*kind).into(), parent, body, false)
            }
            Command::ReplaceScript { container, kind, id, body } => {
                let parent = self.definitions.owner_container(container)?.number;
                self.replace((*kind).into(), parent, id, body)
            }
            Command::DeleteScript { container, kind, id } => {
                let parent = self.definitions.owner_container(container)?.number;
                self.delete((*kind).into(), parent, id)
            }
            Command::CreateUser { database: name, body, is_upsert } => {
                self.create(Kind::User, database(name)?, body, *is_upsert)
            }
            Command::ReplaceUser { database: name, user, body } => {
                self.replace(Kind::User, database(name)?, user, body)
            }
            Command::DeleteUser { database: name, user } => self.delete(Kind::User, database(name)?, user),
            Command::CreatePermission { database: name, user: owner, body, is_upsert } => {
                self.create(Kind::Permission, user(database(name)?, owner)?, body, *is_upsert)
            }
            Command::ReplacePermission { database: name, user: owner, permission, body } => {
                self.replace(Kind::Permission, user(database(name)?, owner)?, permission, body)
            }
            Command::DeletePermission { database: name, user: owner, permission } => {
                self.delete(Kind::Permission, user(database(name)?, owner)?, permission)
            }
            Command::CreateEncryptionKey { database: name, body } => {
                self.create(Kind::EncryptionKey, database(name)?, body, false)
            }
            Command::ReplaceEncryptionKey { database: name, key, body } => {
                self.replace(Kind::EncryptionKey, database(name)?, key, body)
            }
            Command::DeleteEncryptionKey { database: name, key } => {
                self.delete(Kind::EncryptionKey, database(name)?, key)
            }
            _ => Err(Refusal::NotAvailable("This command")),
        }
    }

    fn create(&self, kind: Kind, parent: u32, body: &[u8], is_upsert: bool) -> Result<Decided, Refusal> {
        let (name, body) = read(kind, body)?;
        let same = self.definitions.documents_of(kind, parent).find(|document| document.name == name);
        if let Some(before) = same {
            if !is_upsert {
                return Err(taken("document", &name));
            }
            self.check_room(body.len().saturating_sub(before.body.len()))?;
            return Ok(self.written(kind, parent, before.number, name, body, Answer::Found));
        }
        let most = if kind == Kind::Function { limits::FUNCTIONS } else { limits::SCRIPTS };
        let is_script = matches!(kind, Kind::Procedure | Kind::Trigger | Kind::Function);
        if is_script && self.definitions.documents_of(kind, parent).count() >= most {
            return Err(Refusal::bad(format!(
                "The container has {most} scripts of this kind, the most it may have."
            )));
        }
        if !is_script && self.definitions.documents_of(kind, parent).count() >= limits::USERS {
            return Err(Refusal::bad(format!(
                "There are {} of these already, the most there may be.",
                limits::USERS
            )));
        }
        self.check_room(name.len() + body.len() + limits::DEFINITION_COST)?;
        Ok(self.written(kind, parent, self.definitions.next, name, body, Answer::Created))
    }

    fn replace(&self, kind: Kind, parent: u32, segment: &str, body: &[u8]) -> Result<Decided, Refusal> {
        let before = self.definitions.document(kind, parent, segment).ok_or(Refusal::NotFound)?;
        let (name, body) = read(kind, body)?;
        let is_other = |other: &Document| other.name == name && other.number != before.number;
        if self.definitions.documents_of(kind, parent).any(|other| is_other(other)) {
            return Err(taken("document", &name));
        }
        self.check_room(body.len().saturating_sub(before.body.len()))?;
        Ok(self.written(kind, parent, before.number, name, body, Answer::Found))
    }

    /// Whether definitions may take so many bytes more. What takes no more is always let in.
    pub fn check_room(&self, bytes: usize) -> Result<(), Refusal> {
        match bytes == 0 || self.definitions.has_room(bytes) {
            true => Ok(()),
            false => Err(Refusal::DefinitionsFull { most: limits::DEFINITIONS_BYTES }),
        }
    }

    fn delete(&self, kind: Kind, parent: u32, segment: &str) -> Result<Decided, Refusal> {
        let number = self.definitions.document(kind, parent, segment).ok_or(Refusal::NotFound)?.number;
        Ok(self.decided(vec![Event::DocumentDeleted { kind, parent, number }], Answer::Deleted))
    }

    fn written(
        &self,
        kind: Kind,
        parent: u32,
        number: u32,
        name: String,
        body: Bytes,
        answer: fn(crate::Document) -> Answer,
    ) -> Decided {
        let stamp = self.definitions.next_stamp(self.now);
        let document = Document { kind, parent, number, name, stamp, body: body.clone() };
        let shown = show::document(self.definitions, &document);
        self.decided(vec![Event::DocumentWritten { kind, parent, number, body }], answer(shown))
    }
}

/// The name and the kept text of a document.
fn read(kind: Kind, body: &[u8]) -> Result<(String, Bytes), Refusal> {
    let mut document = object(body)?;
    document.0.retain(|(name, _)| {
        !["_rid", "_self", "_etag", "_ts", "_permissions", "_token"].contains(&name.as_str())
    });
    let Some(Value::String(name)) = document.get("id") else {
        return Err(Refusal::bad("The id of the document is missing."));
    };
    let name = name.clone();
    check_name(&name, limits::NAME_BYTES)?;
    check(kind, &document)?;
    Ok((name, Value::Object(document).to_text().into()))
}

fn check(kind: Kind, document: &Object) -> Result<(), Refusal> {
    let text = |name: &str| document.get(name).and_then(Value::as_str);
    let one_of = |name: &str, allowed: &[&str]| match text(name) {
        Some(value) if allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(value)) => Ok(()),
        _ => Err(Refusal::bad(format!("The {name} is one of {}.", allowed.join(", ")))),
    };
    match kind {
        Kind::Procedure | Kind::Function if text("body").is_none() => {
            Err(Refusal::bad("The body of the script is missing."))
        }
        Kind::Trigger => {
            if text("body").is_none() {
                return Err(Refusal::bad("The body of the script is missing."));
            }
            one_of("triggerType", &["Pre", "Post"])?;
            one_of("triggerOperation", &["All", "Create", "Update", "Delete", "Replace", "Upsert"])
        }
        Kind::Permission => {
            one_of("permissionMode", &["All", "Read"])?;
            text("resource")
                .map(|_| ())
                .ok_or_else(|| Refusal::bad("The resource of the permission is missing."))
        }
        _ => Ok(()),
    }
}
