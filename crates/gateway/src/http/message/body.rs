//! The body of an answer. A message that is stored in parts leaves part by part: the next one is read when the client has
//! taken the last, so that however slow it is, one part is in memory.

use bytes::Bytes;
use engine::{Bodies, Handle};
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use journal::Place;
use message::Malformed;
use message::pieces::Rest;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A part of a message cannot be read. What the client has got of it is not whole, and it is told so by the end of the
/// connection.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("a stored message cannot be read")]
pub struct Unreadable;

#[derive(Debug)]
pub enum Payload {
    Whole(Full<Bytes>),
    /// A message, whose length is not told: some clients take every header that they do not know for a property of the
    /// message, `Content-Length` among them (K-30). It leaves in chunks.
    Message(Full<Bytes>),
    Parts(Box<Parts>),
}

impl Default for Payload {
    fn default() -> Payload {
        Payload::Whole(Full::default())
    }
}

impl<T: Into<Bytes>> From<T> for Payload {
    fn from(bytes: T) -> Payload {
        Payload::Whole(Full::new(bytes.into()))
    }
}

type PartRead = Pin<Box<dyn Future<Output = Option<Bodies>> + Send>>;

/// What is left of a message in parts.
pub struct Parts {
    engine: Handle,
    /// Where the parts are that are still to be read.
    places: std::vec::IntoIter<Place>,
    rest: Rest,
    /// Read and not taken.
    ready: Bytes,
    reading: Option<PartRead>,
}

impl fmt::Debug for Parts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Parts").field("parts", &self.places.len()).finish_non_exhaustive()
    }
}

impl Parts {
    /// `first` is what the first part has behind its front; the rest is in `places`.
    pub(super) fn new(
        engine: Handle,
        mut rest: Rest,
        first: &[u8],
        places: Vec<Place>,
    ) -> Result<Parts, Malformed> {
        let mut ready = Vec::new();
        rest.contents(first, |bytes| ready.extend_from_slice(bytes))?;
        let places = places.into_iter();
        Ok(Parts { engine, places, rest, ready: ready.into(), reading: None })
    }

    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Unreadable>>> {
        loop {
            if !self.ready.is_empty() {
                return Poll::Ready(Some(Ok(std::mem::take(&mut self.ready))));
            }
            let Some(reading) = &mut self.reading else {
                let Some(place) = self.places.next() else { return Poll::Ready(None) };
                self.reading = Some(Box::pin(read(self.engine.clone(), place)));
                continue;
            };
            let bodies = ready!(reading.as_mut().poll(context));
            self.reading = None;
            let body = bodies.and_then(|bodies| bodies.bodies.into_iter().next().flatten());
            let mut contents = Vec::new();
            let passed =
                body.map(|body| self.rest.contents(&body, |bytes| contents.extend_from_slice(bytes)));
            match passed {
                Some(Ok(())) => self.ready = contents.into(),
                None | Some(Err(_)) => {
                    self.places = Vec::new().into_iter();
                    return Poll::Ready(Some(Err(Unreadable)));
                }
            }
        }
    }
}

/// Reads one part off this thread.
async fn read(engine: Handle, place: Place) -> Option<Bodies> {
    let mut reading = engine.read(vec![place], broker::limits::BODY_PART_BYTES as usize, false)?;
    reading.done().await;
    reading.take()
}

impl Body for Payload {
    type Data = Bytes;
    type Error = Unreadable;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Unreadable>>> {
        match &mut *self {
            Payload::Whole(whole) | Payload::Message(whole) => {
                Pin::new(whole).poll_frame(context).map_err(|never| match never {})
            }
            Payload::Parts(parts) => parts.poll_part(context).map_ok(Frame::data),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Payload::Whole(whole) => whole.is_end_stream(),
            Payload::Message(_) | Payload::Parts(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Payload::Whole(whole) => whole.size_hint(),
            Payload::Message(_) | Payload::Parts(_) => SizeHint::default(),
        }
    }
}
