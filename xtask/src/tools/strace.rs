//! strace, which watches the order of the broker's system calls. Where it is missing and the system has apt, its
//! package is unpacked under `target/`, which needs no rights.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::root::target;

const NEEDED: &str = "the crash tests watch the broker with strace: install the package `strace`";

/// The strace to use.
pub fn prepare() -> Result<PathBuf, String> {
    if super::is_on_path("strace") {
        return Ok(PathBuf::from("strace"));
    }
    let folder = target().join("tools/strace");
    let program = folder.join("usr/bin/strace");
    if !program.is_file() {
        unpack(&folder).ok_or(NEEDED)?;
    }
    // It may still lack a library that its package depends on.
    let runs = Command::new(&program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if runs.is_ok_and(|status| status.success()) { Ok(program) } else { Err(NEEDED.into()) }
}

/// Downloads the package into the folder and unpacks it there. Lists of packages are kept in the folder too: an
/// image for containers comes without them, and only root may write the system's.
fn unpack(folder: &std::path::Path) -> Option<()> {
    for part in ["lists/partial", "cache/archives/partial"] {
        std::fs::create_dir_all(folder.join(part)).ok()?;
    }
    let apt = |arguments: &[&str]| {
        Command::new("apt-get")
            .arg("-o")
            .arg(format!("Dir::State::lists={}", folder.join("lists").display()))
            .arg("-o")
            .arg(format!("Dir::Cache={}", folder.join("cache").display()))
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .output()
            .is_ok_and(|output| output.status.success())
            .then_some(())
    };
    apt(&["update"])?;
    apt(&["download", "strace"])?;
    let package = std::fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))?;
    let unpacked = Command::new("dpkg").arg("-x").arg(package).arg(folder).status().ok()?;
    unpacked.success().then_some(())
}
