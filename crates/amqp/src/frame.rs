//! AMQP 1.0 part 2, 2.2 and 2.3: protocol headers and frames.
//!
//! A frame is taken from the input only when all of it is there, and its declared size is checked before anyone
//! buffers for it. Frames are written in place: [`begin`], then the body, then [`end`].

use message::planted::is_planted;

/// Opens a connection without, or after, a security layer.
pub const AMQP_HEADER: [u8; 8] = *b"AMQP\x00\x01\x00\x00";
/// Opens the SASL exchange.
pub const SASL_HEADER: [u8; 8] = *b"AMQP\x03\x01\x00\x00";
/// The frame that says nothing but "still here".
pub const EMPTY: [u8; 8] = [0, 0, 0, 8, 2, 0, 0, 0];

/// Size, data offset, type and channel.
pub const HEADER_BYTES: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Amqp,
    Sasl,
}

/// One frame, as a slice of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    pub kind: Kind,
    pub channel: u16,
    /// Performative and payload; empty for a heartbeat.
    pub body: &'a [u8],
}

/// Why the input is not a frame. There is no way to find the next one, so all of these end the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    #[error("a frame of {size} bytes exceeds the {limit} that were agreed")]
    TooLarge { size: u32, limit: u32 },
    #[error("a frame of {0} bytes is shorter than its own header")]
    TooSmall(u32),
    #[error("data offset {0} lies outside the frame")]
    BadOffset(u8),
    #[error("frame type {0} is not one of AMQP 1.0")]
    BadType(u8),
}

/// Takes one whole frame from the front of `input`; `None` when more bytes are needed.
pub fn split<'a>(input: &mut &'a [u8], limit: u32) -> Result<Option<Frame<'a>>, Broken> {
    let Some(header) = input.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let [a, b, c, d, offset, kind, channel_high, channel_low] = *header;
    let size = u32::from_be_bytes([a, b, c, d]);
    if (size as usize) < HEADER_BYTES {
        return Err(Broken::TooSmall(size));
    }
    if size > limit {
        return Err(Broken::TooLarge { size, limit });
    }
    let kind = match kind {
        0 => Kind::Amqp,
        1 => Kind::Sasl,
        other => return Err(Broken::BadType(other)),
    };
    // The offset counts words of four bytes; what is between header and body is for extensions and is ignored.
    let start = usize::from(offset) * 4;
    if start < HEADER_BYTES || start > size as usize {
        return Err(Broken::BadOffset(offset));
    }
    let is_split_early = is_planted("connection") && offset > 2 && input.len() >= start;
    let size = if is_split_early { input.len().min(size as usize) } else { size as usize };
    let Some((frame, rest)) = input.split_at_checked(size) else { return Ok(None) };
    *input = rest;
    Ok(Some(Frame { kind, channel: u16::from_be_bytes([channel_high, channel_low]), body: &frame[start..] }))
}

/// Where a frame began whose size is not known yet.
#[derive(Debug)]
#[must_use = "a frame that is begun must be ended"]
pub struct Start(usize);

pub fn begin(out: &mut Vec<u8>, kind: Kind, channel: u16) -> Start {
    let start = out.len();
    let [high, low] = channel.to_be_bytes();
    let kind = match kind {
        Kind::Amqp => 0,
        Kind::Sasl => 1,
    };
    out.extend_from_slice(&[0, 0, 0, 0, 2, kind, high, low]);
    Start(start)
}

/// Writes the size of the frame that ends at the end of `out`, and returns it.
pub fn end(out: &mut [u8], start: Start) -> u32 {
    let size = (out.len() - start.0) as u32;
    out[start.0..start.0 + 4].copy_from_slice(&size.to_be_bytes());
    size
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(size: u32, offset: u8, kind: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = size.to_be_bytes().to_vec();
        bytes.extend_from_slice(&[offset, kind, 0x12, 0x34]);
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn a_frame_is_taken_only_when_it_is_whole() {
        let bytes = frame(11, 2, 0, b"abc!");
        for length in 0..11 {
            let mut input = &bytes[..length];
            assert_eq!(split(&mut input, 512), Ok(None));
            assert_eq!(input.len(), length);
        }
        let mut input = &bytes[..];
        let taken = split(&mut input, 512).unwrap().unwrap();
        assert_eq!(taken, Frame { kind: Kind::Amqp, channel: 0x1234, body: b"abc" });
        assert_eq!(input, b"!");
    }

    #[test]
    fn an_extended_header_is_passed_over() {
        let bytes = frame(15, 3, 1, b"....abc");
        assert_eq!(split(&mut &bytes[..], 512).unwrap().unwrap().body, b"abc");
    }

    #[test]
    fn a_frame_at_the_limit_passes_and_one_byte_more_is_refused_before_it_arrives() {
        // P6: the size is judged by the header alone.
        let body = vec![0; 504];
        assert!(split(&mut &frame(512, 2, 0, &body)[..], 512).unwrap().is_some());
        let refused = split(&mut &frame(513, 2, 0, &[])[..], 512).unwrap_err();
        assert_eq!(refused, Broken::TooLarge { size: 513, limit: 512 });
    }

    #[test]
    fn headers_that_lie_are_refused() {
        let broken = |bytes: Vec<u8>| split(&mut &bytes[..], 512).unwrap_err();
        assert_eq!(broken(frame(0, 2, 0, &[])), Broken::TooSmall(0));
        assert_eq!(broken(frame(7, 2, 0, &[])), Broken::TooSmall(7));
        assert_eq!(broken(frame(8, 1, 0, &[])), Broken::BadOffset(1));
        assert_eq!(broken(frame(8, 3, 0, &[])), Broken::BadOffset(3));
        assert_eq!(broken(frame(8, 2, 2, &[])), Broken::BadType(2));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut out = vec![9];
        let start = begin(&mut out, Kind::Sasl, 7);
        out.extend_from_slice(b"body");
        assert_eq!(end(&mut out, start), 12);
        let taken = split(&mut &out[1..], 512).unwrap().unwrap();
        assert_eq!(taken, Frame { kind: Kind::Sasl, channel: 7, body: b"body" });
        assert_eq!(split(&mut &EMPTY[..], 512).unwrap().unwrap().body, b"");
    }
}
