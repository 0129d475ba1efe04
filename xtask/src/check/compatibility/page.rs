//! A page of rules: sections, and in them rows `| S-10 | the rule | yes | note |`.
//!
//! Rows are told from other tables by their first cell: letters, a hyphen, a number and perhaps a letter.

/// A row, with the line it stands on and the section it stands in.
#[derive(Debug, PartialEq, Eq)]
pub struct Row<'a> {
    pub line: usize,
    pub section: &'a str,
    pub id: &'a str,
    pub state: &'a str,
}

/// All rows of a page, in order.
pub fn rows(text: &str) -> Vec<Row<'_>> {
    let mut section = "";
    let mut rows = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title.trim();
        }
        if let Some((id, state)) = read(line) {
            rows.push(Row { line: number + 1, section, id, state });
        }
    }
    rows
}

fn read(line: &str) -> Option<(&str, &str)> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let cells = split_cells(inner);
    let id = cells.first().copied().filter(|id| is_rule_id(id))?;
    Some((id, cells.get(2).copied().unwrap_or_default()))
}

/// Cells of a table's row; a bar that belongs to the text is written `\|`.
fn split_cells(inner: &str) -> Vec<&str> {
    let mut cells = Vec::new();
    let mut start = 0;
    let mut is_escaped = false;
    for (index, character) in inner.char_indices() {
        if character == '|' && !is_escaped {
            cells.push(inner[start..index].trim());
            start = index + 1;
        }
        is_escaped = character == '\\' && !is_escaped;
    }
    cells.push(inner[start..].trim());
    cells
}

/// `S-10`, `A-2.2`, `H-21a`: capital letters, a hyphen, a number, perhaps with dots and a small letter.
pub fn is_rule_id(cell: &str) -> bool {
    let Some((letters, number)) = cell.split_once('-') else { return false };
    !letters.is_empty()
        && letters.chars().all(|c| c.is_ascii_uppercase())
        && number.starts_with(|c: char| c.is_ascii_digit())
        && number.chars().all(|c| c.is_ascii_digit() || c == '.' || c.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_know_their_line_and_section() {
        let text = "\
# Page
| id | rule | state | note |
## 1. Sending
| S-1 | sends | yes | |
### inner
| H-2a | lists \\| reads | not yet | later |
";
        let rows = rows(text);
        assert_eq!(rows[0], Row { line: 4, section: "1. Sending", id: "S-1", state: "yes" });
        assert_eq!(rows[1], Row { line: 6, section: "1. Sending", id: "H-2a", state: "not yet" });
        assert_eq!(rows.len(), 2);
    }
}
