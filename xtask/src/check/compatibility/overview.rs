//! The part of COMPATIBILITY.md that is made from the pages: how many rules hold, and where those stand that do not yet.

use super::{Area, page};
use std::fmt::Write;

pub const BEGIN: &str = "<!-- made by `cargo xtask compatibility` -->";
pub const END: &str = "<!-- end -->";

/// `text` with its generated part made anew; none, if it has no place for one.
pub fn renew(text: &str, areas: &[Area]) -> Option<String> {
    let (head, rest) = text.split_once(BEGIN)?;
    let (_, tail) = rest.split_once(END)?;
    Some(format!("{head}{BEGIN}\n{}{END}{tail}", generate(areas)))
}

fn generate(areas: &[Area]) -> String {
    let mut text = String::from("| page | yes | differs | no | not yet |\n|---|---|---|---|---|\n");
    for area in areas {
        let count = |state| area.rows().iter().filter(|row| row.state == state).count();
        let (yes, differs, no, not_yet) = (count("yes"), count("differs"), count("no"), count("not yet"));
        let Area { name, title, .. } = area;
        let _ = writeln!(
            text,
            "| [{title}](docs/compatibility/{name}.md) | {yes} | {differs} | {no} | {not_yet} |"
        );
    }
    let missing = areas.iter().map(|area| (&area.title, missing(&area.rows())));
    let missing = Vec::from_iter(missing.filter(|(_, sections)| !sections.is_empty()));
    if !missing.is_empty() {
        text.push_str("\nNot yet, by section, with the number of rules:\n\n");
    }
    for (title, sections) in missing {
        let _ = writeln!(text, "- {title}: {}", sections.join(", "));
    }
    text
}

/// Sections with rules that are not there yet, and how many.
fn missing(rows: &[page::Row<'_>]) -> Vec<String> {
    let mut sections: Vec<(&str, usize)> = Vec::new();
    for row in rows.iter().filter(|row| row.state == "not yet") {
        match sections.last_mut() {
            Some((section, count)) if *section == row.section => *count += 1,
            _ => sections.push((row.section, 1)),
        }
    }
    sections.into_iter().map(|(section, count)| format!("{section} ({count})")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generated_part_counts_rules_and_names_the_sections_of_those_that_miss() {
        let page = "# Broker\n## 1. Sending\n| S-1 | a | yes | |\n| S-2 | b | not yet | |\n\
                    ## 2. More\n| S-3 | c | not yet | |\n| S-4 | d | not yet | |\n";
        let areas = [Area::new("broker", page.into(), String::new())];
        let text = format!("intro\n\n{BEGIN}\nold\n{END}\nrest\n");
        let renewed = renew(&text, &areas).unwrap();
        assert!(renewed.contains("| [Broker](docs/compatibility/broker.md) | 1 | 0 | 0 | 3 |"), "{renewed}");
        assert!(renewed.contains("- Broker: 1. Sending (1), 2. More (2)\n"), "{renewed}");
        assert!(renewed.starts_with("intro\n") && renewed.ends_with("rest\n") && !renewed.contains("old"));
        assert_eq!(renew(&renewed, &areas), Some(renewed.clone()));
        assert_eq!(renew("no place", &areas), None);
        let done = [Area::new("broker", page.replace("not yet", "yes"), String::new())];
        assert!(!renew(&text, &done).unwrap().contains("Not yet, by section"), "nothing is missing");
    }
}
