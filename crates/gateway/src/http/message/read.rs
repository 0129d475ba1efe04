//! The body of a request as it comes in: piece by piece, within a patience that every byte prolongs.

use super::super::failure::Failure;
use crate::limits::{
    MESSAGE_BYTES_PER_SECOND, MESSAGE_PATIENCE, REFUSED_MESSAGE_BYTES, REFUSED_MESSAGE_PATIENCE,
};
use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use hyper::body::Body;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, timeout};

pub(super) struct Pieces<'a, B> {
    body: Pin<&'a mut B>,
    patience: Duration,
}

impl<'a, B> Pieces<'a, B>
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    pub(super) fn new(body: Pin<&'a mut B>) -> Pieces<'a, B> {
        Pieces { body, patience: MESSAGE_PATIENCE }
    }

    /// The length of the body, if it was told in front.
    pub(super) fn length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// The next bytes; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let since = Instant::now();
            let frame = match timeout(self.patience, self.body.frame()).await {
                Err(_) => return Err(Failure::BodyTooSlow),
                Ok(None) => return Ok(None),
                Ok(Some(Err(_))) => return Err(Failure::BodyBroken),
                Ok(Some(Ok(frame))) => frame,
            };
            // Trailers say nothing about a message.
            let Ok(mut data) = frame.into_data() else { continue };
            let bytes = data.copy_to_bytes(data.remaining());
            let earned = Duration::from_millis(bytes.len() as u64 * 1_000 / MESSAGE_BYTES_PER_SECOND);
            let left = self.patience.saturating_sub(since.elapsed());
            self.patience = left.saturating_add(earned).min(MESSAGE_PATIENCE);
            return Ok(Some(bytes));
        }
    }

    /// Reads on for a while and keeps nothing.
    pub(super) async fn forget(&mut self) {
        let forgetting = async {
            let mut forgotten = 0;
            while forgotten < REFUSED_MESSAGE_BYTES
                && let Ok(Some(piece)) = self.next().await
            {
                forgotten += piece.len();
            }
        };
        // Whether it came to its end or not, the answer goes out.
        let _ = timeout(REFUSED_MESSAGE_PATIENCE, forgetting).await;
    }
}
