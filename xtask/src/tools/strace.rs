//! strace, which watches the order of the broker's system calls. Where it is missing and the system has apt, its
//! package is unpacked under `target/`, which needs no rights.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::root::target;

const NEEDED: &str = "the crash tests watch the broker with strace: install the package `strace`";
/// strace itself and the one library it needs that a small system may lack.
const PACKAGES: [&str; 2] = ["strace", "libunwind8"];

/// The strace to use.
#[derive(Debug)]
pub struct Strace {
    pub program: PathBuf,
    /// Where its libraries are, if not where the system's are.
    pub libraries: Option<PathBuf>,
}

pub fn prepare() -> Result<Strace, String> {
    if super::is_on_path("strace") {
        return Ok(Strace { program: "strace".into(), libraries: None });
    }
    let folder = target().join("tools/strace");
    let program = folder.join("usr/bin/strace");
    if !program.is_file() {
        unpack(&folder).ok_or(NEEDED)?;
    }
    let strace = Strace { program, libraries: libraries(&folder) };
    let mut command = Command::new(&strace.program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    strace.set_libraries(&mut command);
    if command.status().is_ok_and(|status| status.success()) { Ok(strace) } else { Err(NEEDED.into()) }
}

impl Strace {
    pub fn set_libraries(&self, command: &mut Command) {
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
    }
}

/// The folder of shared libraries among what was unpacked: `usr/lib/x86_64-linux-gnu` or its like.
fn libraries(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder.join("usr/lib")).ok()?;
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.to_string_lossy().ends_with("-linux-gnu"))
}

/// Downloads the packages into the folder and unpacks them there. Lists of packages are kept in the folder too: an
/// image for containers comes without them, and only root may write the system's.
fn unpack(folder: &Path) -> Option<()> {
    for part in ["lists/partial", "cache/archives/partial"] {
        std::fs::create_dir_all(folder.join(part)).ok()?;
    }
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.arg("-o").arg(format!("Dir::State::lists={}", folder.join("lists").display()));
        command.arg("-o").arg(format!("Dir::Cache={}", folder.join("cache").display()));
        command.args(arguments).current_dir(folder).stdin(Stdio::null());
        command.output().is_ok_and(|output| output.status.success()).then_some(())
    };
    apt(&["update"])?;
    for package in PACKAGES {
        apt(&["download", package])?;
    }
    for entry in std::fs::read_dir(folder).ok()? {
        let path = entry.ok()?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            let unpacked = Command::new("dpkg").arg("-x").arg(path).arg(folder).status().ok()?;
            unpacked.success().then_some(())?;
        }
    }
    Some(())
}
