//! The names of files in a journal's directory. Whatever is named otherwise is none of ours and left alone.

use crate::journal::Position;

pub(super) const LOCK: &str = "lock";
/// A segment that is filled and waits for its turn.
pub(super) const SPARE: &str = "spare";
/// A segment that is no longer needed and waits for its next life.
pub(super) const SPARE_RECYCLED: &str = "spare.recycled";
/// Which segments there are.
pub(super) const EXTENT: &str = "extent";
/// Room for a full disk.
pub(super) const RESERVE: &str = "reserve";
/// Unfinished files, removed at the next open.
pub(super) const SPARE_UNFINISHED: &str = "spare.tmp";
pub(super) const SEGMENT_UNFINISHED: &str = "segment.tmp";
pub(super) const SNAPSHOT_UNFINISHED: &str = "snapshot.tmp";
pub(super) const RESERVE_UNFINISHED: &str = "reserve.tmp";
pub(super) const EXTENT_UNFINISHED: &str = "extent.tmp";

pub(super) fn segment(ordinal: u64) -> String {
    format!("{ordinal:016}.segment")
}

pub(super) fn snapshot(position: Position) -> String {
    format!("{:020}.snapshot", position.0)
}

/// A snapshot that was found damaged: kept for a person to look at, and none of ours any more.
pub(super) fn damaged_snapshot(position: Position) -> String {
    format!("{}.damaged", snapshot(position))
}

pub(super) fn parse_segment(name: &str) -> Option<u64> {
    let ordinal = name.strip_suffix(".segment")?.parse().ok()?;
    (segment(ordinal) == name).then_some(ordinal)
}

pub(super) fn parse_snapshot(name: &str) -> Option<Position> {
    let position = Position(name.strip_suffix(".snapshot")?.parse().ok()?);
    (snapshot(position) == name).then_some(position)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_we_would_write_are_ours() {
        assert_eq!(parse_segment(&segment(12)), Some(12));
        assert_eq!(parse_snapshot(&snapshot(Position(7))), Some(Position(7)));
        for foreign in ["12.segment", "+000000000000012.segment", "x.segment", "0000000000000012.segment.bak"]
        {
            assert_eq!(parse_segment(foreign), None, "{foreign}");
        }
    }
}
