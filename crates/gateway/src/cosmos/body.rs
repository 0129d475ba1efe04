//! The bodies of requests: each is short and comes soon, and all together have a bound.

use super::failure::Failure;
use crate::limits::{HTTP_BODY_TIMEOUT, ITEMS_BODIES_KIBIBYTES, ITEMS_BODY_BYTES, ITEMS_DISCARDED_BYTES};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;
use serde::Deserialize;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// What all requests together may hold while their bodies arrive.
#[derive(Debug)]
pub struct Bodies(Arc<Semaphore>);

/// Room for a body, as long as it is not in another account.
#[derive(Debug)]
pub struct Arrived {
    _room: Option<OwnedSemaphorePermit>,
}

impl Default for Bodies {
    fn default() -> Bodies {
        Bodies(Arc::new(Semaphore::new(ITEMS_BODIES_KIBIBYTES)))
    }
}

impl Bodies {
    /// Reads a body whole. A body of untold length is reckoned as the longest.
    pub async fn whole<B>(&self, body: B) -> Result<(Bytes, Arrived), Failure>
    where
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let hint = body.size_hint();
        if hint.exact() == Some(0) {
            return Ok((Bytes::new(), Arrived { _room: None }));
        }
        if hint.lower() > ITEMS_BODY_BYTES as u64 {
            let _ = timeout(HTTP_BODY_TIMEOUT, discard(body)).await;
            return Err(Failure::body_too_large());
        }
        let most = hint.upper().unwrap_or(u64::MAX).min(ITEMS_BODY_BYTES as u64);
        let kibibytes = u32::try_from(most.div_ceil(1_024)).unwrap_or(u32::MAX);
        let read = async {
            let room = Arc::clone(&self.0).acquire_many_owned(kibibytes).await.ok();
            Ok((joined(body).await?, Arrived { _room: room }))
        };
        in_time(read).await
    }
}

/// Ends with a refusal when the body takes too long. Most bodies have come with their heads, and the library hands them over when it
/// is asked for the second time; so it is asked twice before a timer is set.
async fn in_time<T>(read: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut read = std::pin::pin!(read);
    let mut is_asked = false;
    let soon = poll_fn(|cx| match read.as_mut().poll(cx) {
        Poll::Ready(whole) => Poll::Ready(Some(whole)),
        Poll::Pending if is_asked => Poll::Ready(None),
        Poll::Pending => {
            is_asked = true;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    });
    if let Some(whole) = soon.await {
        return whole;
    }
    timeout(HTTP_BODY_TIMEOUT, read).await.unwrap_or_else(|_| Err(Failure::body_too_slow()))
}

/// All of a body. Pieces are put together as they come: kept apart, pieces of a byte would take a hundred times their length.
async fn joined<B>(body: B) -> Result<Bytes, Failure>
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    let mut body = std::pin::pin!(body);
    let (mut first, mut whole) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Failure::body_broken())?;
        let Ok(mut data) = frame.into_data() else { continue };
        if first.len().max(whole.len()) + data.remaining() > ITEMS_BODY_BYTES {
            drop((first, whole));
            discard(body).await;
            return Err(Failure::body_too_large());
        }
        if first.is_empty() && whole.is_empty() {
            first = data.copy_to_bytes(data.remaining());
            continue;
        }
        if whole.is_empty() {
            let most = body.size_hint().upper().unwrap_or(0).min(ITEMS_BODY_BYTES as u64) as usize;
            whole.reserve(first.len() + data.remaining() + most);
            whole.put(std::mem::take(&mut first));
        }
        whole.put(data);
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

/// Takes what is left of a body that is refused, up to a bound: a client that is still sending when the connection closes sees that and
/// not the answer.
async fn discard<B>(body: B)
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    let mut body = std::pin::pin!(body);
    let mut left = ITEMS_DISCARDED_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        let taken = frame.data_ref().map_or(0, Buf::remaining);
        if taken > left {
            return;
        }
        left -= taken;
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Operation<'a> {
    #[serde(borrow, default)]
    operation_type: Option<std::borrow::Cow<'a, str>>,
}

/// Which operations of a batch read. A body that cannot be read has none: the decision will say what is wrong with it.
pub fn reads_of_batch(body: &[u8]) -> Vec<bool> {
    let operations: Vec<Operation<'_>> = serde_json::from_slice(body).unwrap_or_default();
    let reads = |operation: &Operation<'_>| {
        operation.operation_type.as_deref().is_some_and(|kind| kind.eq_ignore_ascii_case("read"))
    };
    operations.iter().map(reads).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::time::Duration;

    #[tokio::test]
    async fn a_body_that_is_too_long_is_refused_before_or_while_it_comes() {
        let bodies = Bodies::default();
        let long = || Bytes::from(vec![0; ITEMS_BODY_BYTES + 1]);
        assert_eq!(bodies.whole(Full::new(long())).await.unwrap_err().status, 413);
        let unmeasured = Unmeasured(Some(long()));
        assert_eq!(bodies.whole(unmeasured).await.unwrap_err().status, 413);
        let fits = Bytes::from(vec![0; ITEMS_BODY_BYTES]);
        assert_eq!(bodies.whole(Full::new(fits.clone())).await.unwrap().0, fits);
        assert_eq!(bodies.0.available_permits(), ITEMS_BODIES_KIBIBYTES);
    }

    /// A body that does not tell its length.
    struct Unmeasured(Option<Bytes>);

    impl Body for Unmeasured {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
            std::task::Poll::Ready(self.0.take().map(|bytes| Ok(hyper::body::Frame::data(bytes))))
        }
    }

    /// A body of which a piece comes each time that its time has passed.
    struct Slow {
        pieces: usize,
        pause: Pin<Box<tokio::time::Sleep>>,
    }

    const PAUSE: Duration = Duration::from_secs(1);

    impl Body for Slow {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
            std::task::ready!(self.pause.as_mut().poll(cx));
            self.pause = Box::pin(tokio::time::sleep(PAUSE));
            self.pieces = self.pieces.saturating_sub(1);
            Poll::Ready((self.pieces > 0).then(|| Ok(hyper::body::Frame::data(Bytes::from_static(b"x")))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_slowly_is_taken_up_to_a_limit() {
        let slow = |pieces| Slow { pieces, pause: Box::pin(tokio::time::sleep(PAUSE)) };
        let began = tokio::time::Instant::now();
        assert_eq!(Bodies::default().whole(slow(4)).await.unwrap().0, "xxx");
        assert_eq!(began.elapsed(), 4 * PAUSE);
        let began = tokio::time::Instant::now();
        assert_eq!(Bodies::default().whole(slow(usize::MAX)).await.unwrap_err().status, 408);
        assert_eq!(began.elapsed(), HTTP_BODY_TIMEOUT);
    }

    #[test]
    fn the_reads_of_a_batch_are_found() {
        let body = br#"[{"operationType":"Create","resourceBody":{"operationType":"Read"}},{"operationType":"Read","id":"a"},{}]"#;
        assert_eq!(reads_of_batch(body), [false, true, false]);
        assert_eq!(reads_of_batch(b"{"), [false; 0]);
    }
}
