//! Queues and topics: create, read, update, delete, list (HX-1.2.1 to HX-1.2.5).

use super::description::{queue, topic};
use super::failure::Failure;
use super::route::Paging;
use super::{Call, Door, Success, atom};
use crate::ask::Ask;
use crate::auth::{Denied, Right, UnixSeconds};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use broker::manage::forward_path;
use broker::{Answer, Command, Task};
use hyper::{Method, StatusCode};

/// Where a client proves that it may forward to a target (H-80).
const FORWARD_AUTHORIZATION: &str = "servicebussupplementaryauthorization";
const DEAD_LETTER_AUTHORIZATION: &str = "servicebusdlqsupplementaryauthorization";

/// A key as the service makes them: 32 random bytes in base64. Two random UUIDs hold 244 bits of chance, which the digest
/// spreads over 32 bytes.
pub(super) fn fresh_key() -> String {
    use sha2::Digest as _;
    let mut digest = sha2::Sha256::new();
    digest.update(uuid::Uuid::new_v4().as_bytes());
    digest.update(uuid::Uuid::new_v4().as_bytes());
    STANDARD.encode(digest.finalize())
}

impl<A: Ask> Door<'_, A> {
    pub(super) async fn entity(&self, call: &Call<'_>) -> Result<Success, Failure> {
        match *call.method {
            Method::GET => self.show_entity(call).await,
            Method::DELETE => self.delete_entity(call).await,
            Method::PUT => self.put_entity(call).await,
            _ => Err(Failure::MethodNotAllowed),
        }
    }

    /// Creates, or updates if the client says that it means what is there (H-12).
    async fn put_entity(&self, call: &Call<'_>) -> Result<Success, Failure> {
        let described = atom::description(&call.body)?;
        let path = call.path.into();
        let task = match &*described.name {
            "QueueDescription" => {
                let (settings, access) = queue::read(&described, &mut fresh_key)?;
                let targets = [&settings.forward_to, &settings.forward_dead_letters_to];
                self.check_targets(call, targets.map(|target| target.as_deref())).await?;
                match call.is_update() {
                    true => Task::UpdateQueue { path, settings, access },
                    false => Task::CreateQueue { path, settings, access },
                }
            }
            "TopicDescription" => {
                let (settings, access) = topic::read(&described, &mut fresh_key)?;
                match call.is_update() {
                    true => Task::UpdateTopic { path, settings, access },
                    false => Task::CreateTopic { path, settings, access },
                }
            }
            _ => return Err(Failure::Bad("The body describes neither a queue nor a topic.".to_owned())),
        };
        let status = if call.is_update() { StatusCode::OK } else { StatusCode::CREATED };
        self.shown(self.manage(call, task).await?, status, call)
    }

    async fn show_entity(&self, call: &Call<'_>) -> Result<Success, Failure> {
        let answer = self.manage(call, Task::Describe { path: call.path.into() }).await?;
        self.shown(answer, StatusCode::OK, call)
    }

    /// H-14: whichever it is, unchanged.
    fn shown(&self, answer: Answer, status: StatusCode, call: &Call<'_>) -> Result<Success, Failure> {
        match answer {
            Answer::Queue(queue) => Ok(Success::entry(status, &*queue, call.site)),
            Answer::Topic(topic) => Ok(Success::entry(status, &*topic, call.site)),
            _ => Err(Failure::Internal),
        }
    }

    async fn delete_entity(&self, call: &Call<'_>) -> Result<Success, Failure> {
        let (namespace, path) = (call.namespace.id, call.path.into());
        match self.question(call, |request| Command::DeleteEntity { request, namespace, path }).await? {
            Answer::Deleted => Ok(Success::deleted()),
            _ => Err(Failure::Internal),
        }
    }

    pub(super) async fn queues(&self, call: &Call<'_>, paging: Paging) -> Result<Success, Failure> {
        if call.method != Method::GET {
            return Err(Failure::MethodNotAllowed);
        }
        let (namespace, skip, top) = (call.namespace.id, paging.skip, paging.top + 1);
        match self
            .question(call, move |request| Command::ListQueues { request, namespace, skip, top })
            .await?
        {
            Answer::Queues(queues) => {
                Ok(Success::feed("Queues", "$Resources/queues", queues, paging, call.site))
            }
            _ => Err(Failure::Internal),
        }
    }

    pub(super) async fn topics(&self, call: &Call<'_>, paging: Paging) -> Result<Success, Failure> {
        if call.method != Method::GET {
            return Err(Failure::MethodNotAllowed);
        }
        let (skip, top) = (paging.skip, paging.top + 1);
        match self.manage(call, Task::ListTopics { skip, top }).await? {
            Answer::Topics(topics) => {
                Ok(Success::feed("Topics", "$Resources/topics", topics, paging, call.site))
            }
            _ => Err(Failure::Internal),
        }
    }

    /// Forwarding needs Manage on the target too (S-178): by a token of its own, else by the main one (H-80).
    pub(super) async fn check_targets(
        &self,
        call: &Call<'_>,
        targets: [Option<&str>; 2],
    ) -> Result<(), Failure> {
        let headers = [FORWARD_AUTHORIZATION, DEAD_LETTER_AUTHORIZATION];
        for (target, header) in targets.into_iter().zip(headers) {
            let Some(path) = target.map(forward_path) else { continue };
            let now = UnixSeconds::now();
            let checked = match call.headers.get(header) {
                Some(header) => {
                    let grant = self.verify(header, call.namespace, path, path, call.is_loopback).await?;
                    grant.check(path, Right::Manage, now)
                }
                None => call.grant.check(path, Right::Manage, now),
            };
            checked.map_err(|denied| match denied {
                Denied::InvalidAudience => Denied::MissingClaim(Right::Manage),
                other => other,
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_32_bytes_in_base64_and_never_the_same() {
        let (one, two) = (fresh_key(), fresh_key());
        assert_eq!((one.len(), STANDARD.decode(&one).unwrap().len()), (44, 32));
        assert_ne!(one, two);
    }
}
