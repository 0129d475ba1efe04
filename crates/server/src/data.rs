//! The data directory: one process at a time, and the key made at the first start.

use crate::item_table::AccountKeys;
use crate::limits::DATA_DEPTH;
use anyhow::{Context, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway::auth::{Policy, ROOT_POLICY, Rights, Secret};
use journal::disk::{make_directory, plain};
use serde::Deserialize;
use std::fs::{File, TryLockError};
use std::io::Read;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Says who holds the directory.
const LOCK: &str = "lock";

/// Says that a first start has begun and has not served yet.
const FIRST_START: &str = "first-start";

/// What others may do with the files here: nothing.
const OTHERS: u32 = 0o077;

/// What a data directory has. If there is more, it is not ours alone, and its rights are its owner's business.
const OURS: [&str; 7] = ["bus", "items", "tls", "keys.toml", "items-keys.toml", LOCK, FIRST_START];

/// Public by their nature.
const PUBLIC: [&str; 2] = ["ca.pem", "server.pem"];

fn read_plain(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = plain().read(true).open(path).and_then(|mut file| file.read_to_string(&mut text));
    read.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text)
}

/// Takes from others what a copy, an older server or a careless hand gave them. Links are left alone. Returns how many files
/// and directories it was.
fn narrow(path: &Path, depth: u32) -> std::io::Result<usize> {
    let found = std::fs::symlink_metadata(path)?;
    if found.is_symlink() || PUBLIC.iter().any(|name| path.ends_with(name)) {
        return Ok(0);
    }
    let mode = found.permissions().mode();
    let is_wide = mode & OTHERS != 0;
    if is_wide {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode & !OTHERS & 0o777))?;
    }
    let mut count = usize::from(is_wide);
    if found.is_dir() && depth > 0 {
        for entry in std::fs::read_dir(path)? {
            count += narrow(&entry?.path(), depth - 1)?;
        }
    }
    Ok(count)
}

/// The same for a data directory, and for nothing else that may be in it.
fn narrow_data(path: &Path) -> std::io::Result<usize> {
    let (mut count, mut is_ours) = (0, true);
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        match OURS.iter().any(|name| entry.file_name() == *name) {
            true => count += narrow(&entry.path(), DATA_DEPTH)?,
            false => is_ours = false,
        }
    }
    Ok(count + if is_ours { narrow(path, 0)? } else { 0 })
}

/// The directory, held by this process until it is dropped.
#[derive(Debug)]
pub struct Data {
    pub path: PathBuf,
    _lock: File,
}

impl Data {
    /// Creates the directory if it is missing and takes it for this process.
    pub fn open(path: &Path) -> anyhow::Result<Data> {
        let way_out = "make it writable or choose another with --data";
        make_directory(path)
            .with_context(|| format!("cannot create the data directory {}; {way_out}", path.display()))?;
        let data = Data::lock(path, File::try_lock)?;
        let mut lock = plain();
        let lock = lock.write(true).create(true).truncate(true).open(data.path.join(LOCK));
        lock.and_then(|mut lock| write!(lock, "process {}", std::process::id())).with_context(|| {
            format!("cannot write to the data directory {}; {way_out}", data.path.display())
        })?;
        match narrow_data(&data.path) {
            Ok(0) => {}
            Ok(count) => tracing::warn!(
                count,
                "others could read files or directories under {}; now their owner alone can",
                data.path.display()
            ),
            Err(error) => {
                tracing::warn!(%error, "others may be able to read the files under {}", data.path.display())
            }
        }
        Ok(data)
    }

    /// Takes a directory that is there, to look at it. Nothing is written, and the rights to read are enough.
    pub fn look(path: &Path) -> anyhow::Result<Data> {
        if !path.is_dir() {
            bail!("there is no data directory {}; name one with --data", path.display());
        }
        let data = Data::lock(path, File::try_lock_shared)?;
        if !data.keys().exists() && !data.has_journal() {
            let shown = data.path.display();
            bail!("{shown} is no data directory: it has neither keys.toml nor bus/0; name one with --data");
        }
        Ok(data)
    }

    /// The lock is on the directory itself: a file could be removed and made again, and two would hold it.
    fn lock(path: &Path, lock: impl FnOnce(&File) -> Result<(), TryLockError>) -> anyhow::Result<Data> {
        let path = path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?;
        let directory = File::open(&path)
            .with_context(|| format!("cannot open the data directory {}", path.display()))?;
        match lock(&directory) {
            Ok(()) => Ok(Data { path, _lock: directory }),
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Only for the message; another process wrote it, and one that only looks writes none.
                if let Ok(file) = plain().read(true).open(path.join(LOCK)) {
                    let _ = file.take(64).read_to_string(&mut holder);
                }
                let holder = if holder.is_empty() { "another process" } else { &holder };
                let shown = path.display();
                bail!(
                    "the data directory {shown} is in use by {holder}; stop it or choose another with --data"
                )
            }
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("cannot lock {}", path.display()))
            }
        }
    }

    /// The keys are made when the journal was begun: where they are and it is not, it was lost.
    pub fn check_journal(&self) -> anyhow::Result<()> {
        if self.keys().exists() && !self.has_journal() {
            bail!(
                "the journal {} is missing, though {} was made with it; restore it from a copy, or move that file \
                 away to begin with an empty journal",
                self.journal().display(),
                self.keys().display()
            );
        }
        Ok(())
    }

    /// The same for the items.
    pub fn check_items(&self) -> anyhow::Result<()> {
        if self.account_keys_file().exists() && !has_journal_in(&self.items()) {
            bail!(
                "the journal of the items in {} is missing, though {} was made with it; restore it from a copy, or move that \
                 file away to begin with no items",
                self.items().display(),
                self.account_keys_file().display()
            );
        }
        Ok(())
    }

    /// Whether no server has ever served from it. A first start leaves a note until it serves, so that what it makes is made by
    /// the next start if it was interrupted.
    pub fn begin_first_start(&self) -> anyhow::Result<bool> {
        let note = self.first_start_note();
        if note.exists() {
            return Ok(true);
        }
        let has_keys = self.keys().exists() || self.account_keys_file().exists();
        if has_keys || self.has_journal() || has_journal_in(&self.items()) {
            return Ok(false);
        }
        let text = "A first start has begun. It removes this file when it serves.\n";
        write_whole(&note, text).with_context(|| format!("cannot write {}", note.display()))?;
        Ok(true)
    }

    /// The first start serves: what it had to make is there.
    pub fn end_first_start(&self) -> anyhow::Result<()> {
        let note = self.first_start_note();
        match std::fs::remove_file(&note) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", note.display()))
            }
            _ => Ok(()),
        }
    }

    fn first_start_note(&self) -> PathBuf {
        self.path.join(FIRST_START)
    }

    /// Whether anything of a journal is there.
    fn has_journal(&self) -> bool {
        has_journal_in(&self.journal())
    }

    /// Where the journal of the bus is.
    pub fn journal(&self) -> PathBuf {
        self.path.join("bus").join("0")
    }

    /// Where the journal and the store of the items are.
    pub fn items(&self) -> PathBuf {
        self.path.join("items")
    }

    /// The policy that every namespace starts with, its key made at the first start and kept (H-104).
    pub fn root_policy(&self) -> anyhow::Result<Policy> {
        let path = self.keys();
        if !path.exists() {
            make_keys(&path).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let text = read_plain(&path)?;
        // Not the whole error: it would repeat the line with the key.
        let keys: Keys = toml::from_str(&text).map_err(|error| {
            let what = crate::config::without_values(&error);
            anyhow::anyhow!("{}: {what}; remove the file to have a new key made", path.display())
        })?;
        Ok(Policy {
            name: ROOT_POLICY.into(),
            primary: Secret::new(keys.root.primary),
            secondary: keys.root.secondary.map(Secret::new),
            rights: Rights::ALL,
        })
    }

    /// The keys of the items, made at the first start with items and kept beside the bus's (P-20).
    pub fn account_keys(&self) -> anyhow::Result<AccountKeys> {
        let path = self.account_keys_file();
        if !path.exists() {
            make_account_keys(&path).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let text = read_plain(&path)?;
        let wrong = |what: String| {
            anyhow::anyhow!("{}: {what}; remove the file to have new keys made", path.display())
        };
        let keys: MadeKeys =
            toml::from_str(&text).map_err(|error| wrong(crate::config::without_values(&error)))?;
        let keys = AccountKeys {
            primary: Some(Secret::new(keys.primary)),
            secondary: keys.secondary.map(Secret::new),
            primary_read_only: keys.primary_read_only.map(Secret::new),
            secondary_read_only: keys.secondary_read_only.map(Secret::new),
        };
        keys.checked(false).map_err(|error| wrong(error.to_string()))?;
        Ok(keys)
    }

    pub fn account_keys_file(&self) -> PathBuf {
        self.path.join("items-keys.toml")
    }

    pub fn keys(&self) -> PathBuf {
        self.path.join("keys.toml")
    }
}

fn has_journal_in(folder: &Path) -> bool {
    let is_ours = |name: &std::ffi::OsStr| {
        let name = name.to_string_lossy();
        name == "extent" || name.ends_with(".segment") || name.ends_with(".snapshot")
    };
    std::fs::read_dir(folder)
        .is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(|entry| is_ours(&entry.file_name()))))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MadeKeys {
    primary: String,
    secondary: Option<String>,
    primary_read_only: Option<String>,
    secondary_read_only: Option<String>,
}

#[derive(Deserialize)]
struct Keys {
    #[serde(rename = "RootManageSharedAccessKey")]
    root: RootKeys,
}

#[derive(Deserialize)]
struct RootKeys {
    primary: String,
    /// For a change of keys: add it here, move clients over, then make it the primary one.
    secondary: Option<String>,
}

/// Writes the file whole or not at all.
fn make_keys(path: &Path) -> anyhow::Result<()> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    let key = STANDARD.encode(bytes);
    let text = format!(
        "# Made at the first start. This key opens everything.\n[{ROOT_POLICY}]\nprimary = \"{key}\"\n"
    );
    write_whole(path, &text)
}

fn make_account_keys(path: &Path) -> anyhow::Result<()> {
    let mut text =
        String::from("# Made at the first start. The first two may do everything, the others read.\n");
    for name in ["primary", "secondary", "primary_read_only", "secondary_read_only"] {
        let mut bytes = [0; 64];
        getrandom::fill(&mut bytes)?;
        text.push_str(&format!("{name} = \"{}\"\n", STANDARD.encode(bytes)));
    }
    write_whole(path, &text)
}

fn write_whole(path: &Path, text: &str) -> anyhow::Result<()> {
    let unfinished = path.with_extension("new");
    match std::fs::remove_file(&unfinished) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    gateway::tls::write_secret(&unfinished, text)?;
    std::fs::rename(&unfinished, path)?;
    // The name is durable when its directory is.
    Ok(gateway::tls::sync_directory(path.parent().unwrap_or(Path::new(".")))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Folder {
            let mut name = [0; 8];
            getrandom::fill(&mut name).unwrap();
            Folder(std::env::temp_dir().join(format!("otobus-data-{}", u64::from_le_bytes(name))))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_first_start_that_was_interrupted_is_a_first_start_again() {
        let folder = Folder::new();
        let data = Data::open(&folder.0).unwrap();
        assert!(data.begin_first_start().unwrap());
        data.root_policy().unwrap();
        assert!(data.begin_first_start().unwrap(), "it has made keys and was stopped then");
        data.end_first_start().unwrap();
        assert!(!data.begin_first_start().unwrap());
        data.end_first_start().unwrap();
    }

    #[test]
    fn a_first_start_that_was_interrupted_leaves_a_directory_that_is_ours_alone() {
        let folder = Folder::new();
        let data = Data::open(&folder.0).unwrap();
        data.begin_first_start().unwrap();
        let note = data.first_start_note();
        drop(data);
        for (path, mode) in [(&note, 0o644), (&folder.0, 0o755)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let _data = Data::open(&folder.0).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!([mode(&folder.0), mode(&note)], [0o700, 0o600]);
    }

    #[test]
    fn the_root_key_is_made_once_and_for_its_owner_alone() {
        let folder = Folder::new();
        let data = Data::open(&folder.0).unwrap();
        let first = data.root_policy().unwrap();
        assert_eq!(STANDARD.decode(first.primary.expose()).unwrap().len(), 32);
        assert_eq!(data.root_policy().unwrap().primary.expose(), first.primary.expose());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(data.keys()).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn what_is_taken_from_others_is_counted_and_what_was_narrow_or_too_deep_is_not() {
        let folder = Folder::new();
        let deep = folder.0.join("bus/1/2/3/4/5");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::create_dir(folder.0.join("items")).unwrap();
        let every = || deep.ancestors().take(6);
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        every().for_each(|path| set(path, 0o755));
        set(&folder.0.join("items"), 0o755);
        set(&folder.0, 0o755);
        // The directory, `items`, `bus` and four below it.
        assert_eq!(narrow_data(&folder.0).unwrap(), 7);
        let wide = every().filter(|path| std::fs::metadata(path).unwrap().permissions().mode() & OTHERS != 0);
        assert_eq!(wide.count(), 1, "the deepest");
        assert_eq!(narrow_data(&folder.0).unwrap(), 0);
    }

    #[test]
    fn what_others_could_read_is_theirs_no_more_and_no_link_is_followed() {
        let folder = Folder::new();
        let below = folder.0.join("bus/0");
        std::fs::create_dir_all(&below).unwrap();
        let wide = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        std::fs::create_dir(folder.0.join("tls")).unwrap();
        let (secret, public) = (below.join("1.segment"), folder.0.join("tls/ca.pem"));
        for (path, mode) in [(&secret, 0o644), (&public, 0o644)] {
            std::fs::write(path, "x").unwrap();
            wide(path, mode);
        }
        wide(&below, 0o755);
        let outside = Folder::new();
        std::fs::write(&outside.0, "kept").unwrap();
        std::os::unix::fs::symlink(&outside.0, folder.0.join("keys.toml")).unwrap();
        wide(&outside.0, 0o644);
        let data = Data::open(&folder.0).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let modes = [&folder.0, &below, &secret, &public, &outside.0].map(|path| mode(path));
        assert_eq!(modes, [0o700, 0o700, 0o600, 0o644, 0o644]);
        assert_eq!(mode(&folder.0.join(LOCK)), 0o600);
        drop(data);
        // One that has more than that in it is somebody's, and keeps its rights.
        std::fs::write(folder.0.join("notes.txt"), "x").unwrap();
        wide(&folder.0, 0o755);
        wide(&below, 0o755);
        let data = Data::open(&folder.0).unwrap();
        assert_eq!([mode(&folder.0), mode(&below)], [0o755, 0o700]);
        assert!(data.root_policy().is_err(), "the keys are somewhere else");
        std::fs::remove_file(&outside.0).unwrap();
    }

    // P-20
    #[test]
    fn the_keys_of_the_items_are_made_once_and_all_different() {
        let folder = Folder::new();
        let data = Data::open(&folder.0).unwrap();
        let shown = |keys: AccountKeys| {
            let keys = [keys.primary, keys.secondary, keys.primary_read_only, keys.secondary_read_only];
            keys.map(|key| key.unwrap().expose().to_owned())
        };
        let keys = shown(data.account_keys().unwrap());
        assert_eq!(STANDARD.decode(&keys[0]).unwrap().len(), 64);
        assert!((1..4).all(|index| !keys[..index].contains(&keys[index])));
        assert_eq!(shown(data.account_keys().unwrap()), keys);
        std::fs::write(data.path.join("items-keys.toml"), "primary = \"hush!\"").unwrap();
        let refused = format!("{:#}", data.account_keys().unwrap_err());
        assert!(refused.contains("items-keys.toml") && !refused.contains("hush"), "{refused}");
    }

    #[test]
    fn a_directory_in_use_is_refused_with_the_name_of_its_holder() {
        let folder = Folder::new();
        let first = Data::open(&folder.0).unwrap();
        let refused = Data::open(&folder.0).unwrap_err().to_string();
        assert!(refused.contains(&format!("in use by process {}", std::process::id())), "{refused}");
        assert!(refused.contains("--data"));
        drop(first);
        Data::open(&folder.0).unwrap();
    }

    #[test]
    fn removing_the_file_of_the_lock_makes_no_second_holder() {
        let folder = Folder::new();
        let _first = Data::open(&folder.0).unwrap();
        std::fs::remove_file(folder.0.join(LOCK)).unwrap();
        assert!(Data::open(&folder.0).unwrap_err().to_string().contains("in use by another process"));
    }

    #[test]
    fn a_journal_that_is_gone_is_missed_and_one_that_never_was_is_not() {
        let folder = Folder::new();
        let data = Data::open(&folder.0).unwrap();
        data.check_journal().unwrap();
        data.root_policy().unwrap();
        for _ in 0..2 {
            let refused = data.check_journal().unwrap_err().to_string();
            assert!(refused.contains("bus/0") && refused.contains("keys.toml"), "{refused}");
            std::fs::create_dir_all(data.journal()).unwrap();
            std::fs::write(data.journal().join(LOCK), "").unwrap();
        }
        std::fs::write(data.journal().join("0000000000000001.segment"), "").unwrap();
        data.check_journal().unwrap();
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let folder = Folder::new();
        std::fs::write(&folder.0, "a file").unwrap();
        let refused = Data::open(&folder.0.join("below")).unwrap_err().to_string();
        std::fs::remove_file(&folder.0).unwrap();
        assert!(refused.contains("below") && refused.contains("--data"), "{refused}");
    }

    #[test]
    fn a_broken_key_file_is_named_and_not_repeated() {
        let folder = Folder::new();
        let data = Data::open(&folder.0).unwrap();
        for key in ["hush", "7755", "[\"hush\"]"] {
            std::fs::write(data.keys(), format!("[RootManageSharedAccessKey]\nprimary = {key}\n")).unwrap();
            let refused = format!("{:#}", data.root_policy().unwrap_err());
            assert!(refused.contains("keys.toml"), "{refused}");
            assert!(!refused.contains("hush") && !refused.contains("7755"), "{refused}");
        }
    }
}
