//! Every journal of this crate does what every journal must do.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use otobus_journal::conformance::{Harness, check_all};
use otobus_journal::disk::{Disk, File, Memory};
use otobus_journal::fuzzing::Scratch;
use otobus_journal::{Durability, Error, Filling, Journal, Local, Options};
use std::sync::Arc;

/// A journal with segments so small that every check crosses several.
struct Small {
    disk: Arc<dyn Disk>,
    options: Options,
    _folder: Option<Scratch>,
}

impl Harness for Small {
    fn open(&self) -> Result<Box<dyn Journal>, Error> {
        Ok(Box::new(Local::open(self.disk.clone(), self.options.clone())?))
    }
}

fn options(filling: Filling, durability: Durability) -> Options {
    let (segment_bytes, first_segment_bytes) = (12 * 1024, 8 * 1024);
    Options { filling, durability, segment_bytes, first_segment_bytes, ..Options::new(3) }
}

#[test]
fn the_journal_in_memory_conforms() {
    let options = options(Filling::Never, Durability::LocalSync);
    check_all(&|| Box::new(Small { disk: Arc::new(Memory::new()), options: options.clone(), _folder: None }));
}

#[test]
fn the_journal_on_files_conforms() {
    let options = options(Filling::Background, Durability::LocalSync);
    check_all(&|| {
        let folder = Scratch::new("conformance");
        let disk = Arc::new(File::open(folder.path()).unwrap());
        Box::new(Small { disk, options: options.clone(), _folder: Some(folder) })
    });
}

#[test]
fn the_journal_that_does_not_sync_conforms() {
    let options = options(Filling::Inline, Durability::Os);
    check_all(&|| Box::new(Small { disk: Arc::new(Memory::new()), options: options.clone(), _folder: None }));
}
