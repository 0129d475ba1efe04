//! `otobus verify` through the real binary: what it says, how it ends, and that it changes nothing.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use journal::disk::{Disk, File};
use journal::{Draft, Epoch, Filling, Journal, Local, Options, Outcome};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }

    /// A journal with one batch without records and one body.
    fn store(&self) -> PathBuf {
        let path = self.0.join("bus").join("0");
        let disk = Arc::new(File::open(&path).unwrap());
        let (segment_bytes, first_segment_bytes) = (64 * 1024, 64 * 1024);
        let options = Options {
            filling: Filling::Never,
            segment_bytes,
            first_segment_bytes,
            reserve_segments: 0,
            ..Options::new(1)
        };
        let mut journal = Local::open(disk.clone(), options).unwrap();
        journal.fence(1, Epoch(1)).unwrap();
        let mut draft = Draft::default();
        draft.push_body(b"a body that somebody wants back");
        let at = journal.tail().next();
        assert!(matches!(journal.append(&draft, at).unwrap().wait(), Outcome::Committed));
        journal.seal().unwrap();
        let names = disk.list().unwrap();
        path.join(names.iter().find(|name| name.ends_with(".segment")).unwrap())
    }

    fn verify(&self) -> (Output, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_otobus"))
            .arg("verify")
            .arg("--data")
            .arg(&self.0)
            .output()
            .unwrap();
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        (output, String::from_utf8(said).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_is_whole_is_said_to_be_whole() {
    let folder = Folder::new("verify-whole");
    folder.store();
    let (output, said) = folder.verify();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 batches, 1 bodies of 31 bytes") && said.contains("as it was written"), "{said}");
}

#[test]
fn what_is_damaged_is_named_with_file_and_offset_and_left_alone() {
    let folder = Folder::new("verify-damaged");
    let segment = folder.store();
    let mut bytes = std::fs::read(&segment).unwrap();
    let body = bytes.windows(6).position(|window| window == b"a body").unwrap();
    bytes[body] ^= 1;
    std::fs::write(&segment, &bytes).unwrap();
    let (output, said) = folder.verify();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let name = segment.file_name().unwrap().to_str().unwrap();
    assert!(said.contains(name) && said.contains(&format!("at byte {}", body - 8)), "{said}");
    assert!(said.contains("1 damaged places"), "{said}");
    assert_eq!(std::fs::read(&segment).unwrap(), bytes);
}

/// Every file below a folder, with its content.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(contents(&entry.path())),
            false => found.push((entry.path(), std::fs::read(entry.path()).unwrap())),
        }
    }
    found.sort();
    found
}

#[test]
fn nothing_is_written_whatever_is_found() {
    let folder = Folder::new("verify-writes-nothing");
    let segment = folder.store();
    std::fs::remove_file(segment.with_file_name("lock")).unwrap();
    let before = contents(&folder.0);
    assert!(folder.verify().0.status.success());
    assert_eq!(contents(&folder.0), before);
    std::fs::remove_file(&segment).unwrap();
    let before = contents(&folder.0);
    let (output, said) = folder.verify();
    assert!(!output.status.success() && said.contains("the file is missing"), "{said}");
    assert_eq!(contents(&folder.0), before);
}

#[test]
fn what_is_no_data_directory_is_refused_and_left_alone() {
    let folder = Folder::new("verify-foreign");
    std::fs::create_dir_all(&folder.0).unwrap();
    for name in [None, Some("a letter"), Some("0000000000000001.segment")] {
        if let Some(name) = name {
            std::fs::write(folder.0.join(name), "not ours").unwrap();
        }
        let before = contents(&folder.0);
        let (output, said) = folder.verify();
        assert!(!output.status.success() && said.contains("is no data directory"), "{said}");
        assert_eq!(contents(&folder.0), before);
    }
}

#[test]
fn keys_without_a_journal_are_not_approved() {
    let folder = Folder::new("verify-emptied");
    std::fs::create_dir_all(folder.0.join("bus").join("0")).unwrap();
    std::fs::write(folder.0.join("keys.toml"), "").unwrap();
    let (output, said) = folder.verify();
    assert!(!output.status.success() && said.contains("bus/0") && said.contains("missing"), "{said}");
}

#[test]
fn a_directory_in_use_is_refused() {
    let folder = Folder::new("verify-in-use");
    let segment = folder.store();
    let disk = File::open(segment.parent().unwrap()).unwrap();
    let _lock = disk.lock("lock", "process 7").unwrap();
    let (output, said) = folder.verify();
    assert!(!output.status.success() && said.contains("in use by process 7"), "{said}");
}

#[test]
fn an_error_of_the_disk_is_said_once() {
    let folder = Folder::new("verify-once");
    let segment = folder.store();
    std::fs::remove_file(&segment).unwrap();
    std::fs::create_dir(&segment).unwrap();
    let (output, said) = folder.verify();
    assert!(!output.status.success());
    assert_eq!(said.matches("Is a directory").count(), 1, "{said}");
}

#[test]
fn a_directory_that_is_not_there_is_not_made() {
    let folder = Folder::new("verify-missing");
    let (output, said) = folder.verify();
    assert!(!output.status.success() && said.contains("there is no data directory"), "{said}");
    assert!(!folder.0.exists());
}
