//! Where things are: the repository's root and what we make under its `target/`.

use std::path::{Path, PathBuf};

/// The repository's root, whatever the current directory is.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask/ is a folder of the repository's root")
        .to_path_buf()
}

/// Cargo's target folder: what Cargo tells by environment, else `target/` in the root.
pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => std::path::absolute(folder).expect("the current directory exists"),
        None => root().join("target"),
    }
}

/// The broker as built with a profile.
pub fn binary(profile: &str) -> PathBuf {
    built(profile, "otobus")
}

/// A program as built with a profile.
pub fn built(profile: &str, program: &str) -> PathBuf {
    target().join(profile).join(program)
}
