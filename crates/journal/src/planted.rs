//! A bug that is planted on purpose, so that a fuzz target can show that it finds it. It exists only with the cargo feature
//! `planted`, which the product never has: without it this is a constant `false`.

/// The variable that names the target whose bug is planted.
#[cfg(feature = "planted")]
const VARIABLE: &str = "OTOBUS_FUZZ_PLANTED";

/// Whether the bug of a fuzz target is planted.
#[cfg(feature = "planted")]
pub fn is_planted(target: &str) -> bool {
    static PLANTED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    PLANTED.get_or_init(|| std::env::var(VARIABLE).ok()).as_deref() == Some(target)
}

#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn is_planted(_: &str) -> bool {
    false
}
