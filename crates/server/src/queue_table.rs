//! `[[queue]]` in the configuration file. The keys are the properties' names as the SDKs and `az servicebus` spell them.

use crate::config::{Complaint, complaint};
use crate::definition::{Declared, Queue};
use broker::{QueueSettings, Refusal, Span, Status};
use gateway::iso;
use serde::Deserialize;
use toml::Spanned;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueTable {
    pub name: Spanned<String>,
    lock_duration: Option<Spanned<String>>,
    max_size_in_megabytes: Option<u64>,
    requires_duplicate_detection: Option<bool>,
    requires_session: Option<bool>,
    default_message_time_to_live: Option<Spanned<String>>,
    dead_lettering_on_message_expiration: Option<bool>,
    duplicate_detection_history_time_window: Option<Spanned<String>>,
    max_delivery_count: Option<u32>,
    enable_batched_operations: Option<bool>,
    status: Option<Spanned<String>>,
    forward_to: Option<Spanned<String>>,
    user_metadata: Option<String>,
    auto_delete_on_idle: Option<Spanned<String>>,
    enable_partitioning: Option<bool>,
    forward_dead_lettered_messages_to: Option<Spanned<String>>,
    enable_express: Option<bool>,
    max_message_size_in_kilobytes: Option<u64>,
}

impl QueueTable {
    /// The queue, checked as far as that needs no broker.
    pub fn read(&self) -> Result<Queue, Complaint> {
        let usual = QueueSettings::default();
        let settings = QueueSettings {
            lock_duration: span(&self.lock_duration, usual.lock_duration)?,
            max_size_megabytes: self.max_size_in_megabytes.unwrap_or(usual.max_size_megabytes),
            requires_duplicate_detection: self
                .requires_duplicate_detection
                .unwrap_or(usual.requires_duplicate_detection),
            duplicate_window: span(&self.duplicate_detection_history_time_window, usual.duplicate_window)?,
            requires_session: self.requires_session.unwrap_or(usual.requires_session),
            default_time_to_live: span(&self.default_message_time_to_live, usual.default_time_to_live)?,
            dead_letter_on_expiration: self
                .dead_lettering_on_message_expiration
                .unwrap_or(usual.dead_letter_on_expiration),
            max_delivery_count: self.max_delivery_count.unwrap_or(usual.max_delivery_count),
            batched_operations: self.enable_batched_operations.unwrap_or(usual.batched_operations),
            auto_delete_on_idle: span(&self.auto_delete_on_idle, usual.auto_delete_on_idle)?,
            partitioning: self.enable_partitioning.unwrap_or(usual.partitioning),
            express: self.enable_express.unwrap_or(usual.express),
            forward_to: text(&self.forward_to),
            forward_dead_letters_to: text(&self.forward_dead_lettered_messages_to),
            status: self.status.as_ref().map_or(Ok(usual.status), status)?,
            user_metadata: self.user_metadata.as_deref().map(Into::into),
            max_message_kilobytes: self.max_message_size_in_kilobytes,
        };
        let name = self.name.get_ref();
        let refused = |refusal: Refusal| complaint(&self.name, format!("queue `{name}`: {refusal}"));
        broker::check_path(name).map_err(refused)?;
        settings.check().map_err(refused)?;
        let forwards = [&self.forward_to, &self.forward_dead_lettered_messages_to];
        Ok(Queue { path: name.as_str().into(), settings, declared: declared(&self.name, forwards) })
    }
}

/// Where a table stands; in bytes, turned into a line where the text is at hand.
pub fn declared(name: &Spanned<String>, forwards: [&Option<Spanned<String>>; 2]) -> Declared {
    let [forward_to, forward_dead_letters_to] =
        forwards.map(|target| target.as_ref().map(|target| target.span().start));
    Declared { at: name.span().start, forward_to, forward_dead_letters_to }
}

pub fn text(text: &Option<Spanned<String>>) -> Option<Box<str>> {
    text.as_ref().map(|text| text.get_ref().as_str().into())
}

pub fn span(text: &Option<Spanned<String>>, usual: Span) -> Result<Span, Complaint> {
    let Some(text) = text else { return Ok(usual) };
    let what = || format!("`{}` is not an ISO 8601 duration, such as PT1M", text.get_ref());
    iso::duration(text.get_ref()).ok_or_else(|| complaint(text, what()))
}

pub fn status(text: &Spanned<String>) -> Result<Status, Complaint> {
    match text.get_ref().as_str() {
        "Active" => Ok(Status::Active),
        "Disabled" => Ok(Status::Disabled),
        "SendDisabled" => Ok(Status::SendDisabled),
        "ReceiveDisabled" => Ok(Status::ReceiveDisabled),
        other => {
            let what =
                format!("`{other}` is not a status; use Active, Disabled, SendDisabled or ReceiveDisabled");
            Err(complaint(text, what))
        }
    }
}
