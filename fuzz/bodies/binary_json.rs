//! Any bytes, read as Cosmos binary JSON.
//!
//! Reading never panics, and what comes out is JSON text within the bound.

use otobus_items::binary_json;

const MOST: usize = 64 * 1024;

pub fn run(bytes: &[u8]) {
    let Ok(text) = binary_json::to_text(bytes, MOST) else { return };
    assert!(text.len() <= MOST);
    let text = std::str::from_utf8(&text).expect("JSON is UTF-8");
    // JSON wants no others escaped: DEL may stand as it is.
    assert!(!text.is_empty() && !text.chars().any(|letter| letter < ' '), "{text:?}");
}
