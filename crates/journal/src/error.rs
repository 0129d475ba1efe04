//! Every way in which a journal can fail. Each message names the thing, the number and the way out.

use crate::journal::{BodyId, Epoch, Position};
use std::io;

/// A fault of the journal or of the disk below it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`{path}` is in use by {holder}; stop it, or choose another data directory")]
    Locked { path: String, holder: String },
    /// The cause is part of the text and therefore no `source`: a printed chain of errors would have it twice.
    #[error("cannot {action} `{file}`: {cause}")]
    Io { action: &'static str, file: String, cause: io::Error },
    /// Nothing was written; the same append may be repeated when there is room.
    #[error("no room for `{file}` ({cause}); free disk space, or files that are open, and it goes on")]
    Full { file: String, cause: io::Error },
    #[error("`{file}` is damaged at byte {offset}: {what}. It is left untouched; restore it from a copy")]
    Corrupt { file: String, offset: u64, flaw: Flaw, what: String },
    #[error("`{file}` has format {found}, this program knows up to {known}; use a newer program")]
    NewerFormat { file: String, found: u32, known: u32 },
    #[error("`{file}` belongs to partition {found}, not {expected}; do not mix data directories")]
    WrongPartition { file: String, found: u32, expected: u32 },
    #[error("a batch of {bytes} bytes is above the limit of {limit}")]
    TooLarge { bytes: usize, limit: usize },
    #[error("epoch {} is over: the journal has seen epoch {}", asked.0, seen.0)]
    Fenced { asked: Epoch, seen: Epoch },
    #[error("position {} is no longer in the journal, which begins at {}", asked.0, first.0)]
    Trimmed { asked: Position, first: Position },
    /// A body that is still needed is in no file.
    #[error("body {} is missing: no segment has it. Restore the segments from a copy", .0.0)]
    Missing(BodyId),
    #[error("there is no snapshot at position {}", .0.0)]
    NoSnapshot(Position),
    /// An earlier write or sync failed, and nobody knows what the disk kept.
    #[error("the journal has stopped: {why}")]
    Stopped { why: String },
    /// The reader that was handed the batches or bytes refused them.
    #[error("{0}")]
    Reader(Box<dyn std::error::Error + Send + Sync>),
}

/// Which check has found damage; one for each, so that a test can tell that it was this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// A segment does not begin like one.
    SegmentBeginning,
    SegmentChecksum,
    /// A version or flags that never were, under a good checksum.
    SegmentVersion,
    /// Numbers that never were, under a good checksum.
    SegmentNumbers,
    /// A segment under the name of another.
    SegmentRenamed,
    /// None between two others.
    SegmentGap,
    /// The list of segments names one that is not there.
    SegmentMissing,
    /// The journal begins behind what the snapshots contain.
    SegmentNeeded,
    /// A file is shorter than it was made.
    FileEnd,
    /// The list of segments itself.
    ListChecksum,
    /// No intact frame where one must be: its checksum, its incarnation or its length.
    FrameChecksum,
    /// The frame continues another one.
    FrameChain,
    FramePosition,
    FrameEpoch,
    /// The ids of bodies do not continue.
    FrameBodies,
    /// A fence or seal that has bodies, or an epoch that never was.
    FrameFields,
    /// The table of bodies contradicts their length.
    FrameTable,
    BodyChecksum,
    /// A body that was sealed is not what it was.
    SealedBody,
    SnapshotHeader,
    /// The snapshot of another partition or position.
    SnapshotPlace,
    SnapshotChecksum,
    /// A snapshot contains batches that the journal does not have.
    SnapshotAhead,
    /// The reader of the content does not understand this.
    Content,
}

impl Error {
    /// The check that has found damage, if this is damage.
    pub fn flaw(&self) -> Option<Flaw> {
        match self {
            Error::Corrupt { flaw, .. } => Some(*flaw),
            _ => None,
        }
    }

    /// Whether the same call may well succeed in a while: the process lacked handles, or the disk did not answer.
    pub fn is_passing(&self) -> bool {
        matches!(self, Error::Io { .. } | Error::Full { .. })
    }

    pub(crate) fn io(action: &'static str, file: &str, cause: io::Error) -> Error {
        Error::Io { action, file: file.to_owned(), cause }
    }

    pub(crate) fn corrupt(file: &str, offset: u64, flaw: Flaw, what: impl Into<String>) -> Error {
        Error::Corrupt { file: file.to_owned(), offset, flaw, what: what.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn a_chain_of_errors_says_each_thing_once() {
        let cause = || io::Error::other("the disk is tired");
        for error in [
            Error::io("read", "a file", cause()),
            Error::Full { file: "a file".into(), cause: cause() },
            Error::Reader(Box::new(cause())),
        ] {
            assert!(error.to_string().contains("tired"));
            assert!(error.source().is_none(), "{error}");
        }
    }
}
