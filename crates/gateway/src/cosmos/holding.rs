//! What a request to the items holds, from its body to the last of its answer that is written.
//!
//! It counts in an account as what connections to the bus hold does (`account.rs`): beyond a little that is always there, what finds no
//! room is refused with 429 before anything is done. A read finds out when its answer is there; a write before, by its body, because
//! what is done cannot be refused any more.

use super::failure::Failure;
use super::keys::Access;
use crate::account::{Account, Accounts};
use crate::limits::{CONNECTION_LEAST_BYTES, ITEMS_ANSWER_PIECE, ITEMS_RETRY_MS};
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use items::Refusal;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// What one request holds. Small ones have no account: each peer may always hold as much.
#[derive(Debug)]
pub struct Holding<'d> {
    accounts: &'d Arc<Accounts>,
    policy: &'static str,
    account: Option<Account>,
}

impl<'d> Holding<'d> {
    pub fn new(accounts: &'d Arc<Accounts>, access: Access) -> Holding<'d> {
        let policy = if access == Access::ReadOnly { "items, read-only" } else { "items" };
        Holding { accounts, policy, account: None }
    }

    /// Holds so much from now on, if there is room for it.
    pub fn take(&mut self, bytes: usize) -> Result<(), Failure> {
        let Some(account) = self.account_for(bytes) else { return Ok(()) };
        let no_room = |_| Refusal::TooManyRequests { retry_after_ms: ITEMS_RETRY_MS };
        Ok(account.take(bytes).map_err(no_room)?)
    }

    /// Holds so much from now on, because it is there.
    pub fn hold(&mut self, bytes: usize) {
        if let Some(account) = self.account_for(bytes) {
            account.hold(bytes);
        }
    }

    fn account_for(&mut self, bytes: usize) -> Option<&mut Account> {
        if bytes <= CONNECTION_LEAST_BYTES {
            self.account = None;
            return None;
        }
        Some(self.account.get_or_insert_with(|| Account::of(self.accounts, self.policy)))
    }

    /// What is given back when the answer is written.
    pub fn into_account(self) -> Option<Account> {
        self.account
    }
}

/// The body of an answer. It is handed on in pieces, as the peer takes them: what is handed on at once is held where nobody counts it.
#[derive(Debug)]
pub struct Payload {
    rest: Bytes,
    held: Option<Account>,
}

impl Payload {
    pub fn new(body: Bytes) -> Payload {
        Payload { rest: body, held: None }
    }

    pub fn len(&self) -> usize {
        self.rest.len()
    }

    /// Whose account it is in until it is written.
    pub fn charge(&mut self, account: Option<Account>) {
        self.held = account;
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        if self.held.is_none() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.rest)))));
        }
        let length = self.rest.len().min(ITEMS_ANSWER_PIECE);
        // A copy: a part of the whole would keep the whole when nobody counts it any more.
        let piece = Bytes::copy_from_slice(&self.rest.split_to(length));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    const MEBIBYTE: usize = 1_024 * 1_024;

    #[tokio::test]
    async fn an_answer_counts_until_its_last_piece_is_taken_and_comes_whole() {
        // W-42
        let accounts = Arc::new(Accounts::new(16 * MEBIBYTE));
        let mut holding = Holding::new(&accounts, Access::ReadOnly);
        let body: Vec<u8> = (0..4 * MEBIBYTE).map(|at| at as u8).collect();
        holding.take(body.len()).unwrap();
        let mut payload = Payload::new(body.clone().into());
        payload.charge(holding.into_account());
        assert_eq!(payload.size_hint().exact(), Some(body.len() as u64));
        let mut taken = Vec::new();
        for _ in 0..10 {
            taken.extend(payload.frame().await.unwrap().unwrap().into_data().unwrap());
        }
        assert_eq!(taken.len(), 10 * ITEMS_ANSWER_PIECE);
        assert!(accounts.pooled_bytes() > 3 * MEBIBYTE, "{}", accounts.pooled_bytes());
        taken.extend(payload.collect().await.unwrap().to_bytes());
        assert!(taken == body);
        assert_eq!(accounts.pooled_bytes(), 0);
    }

    #[test]
    fn what_finds_no_room_is_told_to_come_back_and_readers_leave_the_other_half() {
        // W-42
        let accounts = Arc::new(Accounts::new(16 * MEBIBYTE));
        let take = |access| {
            let mut holding = Holding::new(&accounts, access);
            holding.take(4 * MEBIBYTE).map(|()| holding.into_account())
        };
        let held: Vec<_> = std::iter::from_fn(|| take(Access::ReadOnly).ok()).collect();
        assert_eq!(held.len(), 2);
        let refused = take(Access::ReadOnly).unwrap_err();
        assert_eq!((refused.status, refused.retry_after_ms), (429, Some(ITEMS_RETRY_MS)));
        let mut small = Holding::new(&accounts, Access::ReadOnly);
        small.take(CONNECTION_LEAST_BYTES).unwrap();
        assert!(take(Access::All).is_ok());
        drop(held);
        assert!(take(Access::ReadOnly).is_ok());
    }
}
