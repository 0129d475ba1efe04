//! Where in a JSON text its values stand, so that a complaint about what a file says can name the line.
//!
//! The text has been read by a real parser before: whatever is wrong with its form is not looked for here.

use std::collections::BTreeMap;

/// The line of each named value and each structure, by its path: names and numbers, each behind a slash.
#[derive(Debug)]
pub struct Lines(BTreeMap<String, usize>);

/// A structure that has begun.
struct Level {
    path: String,
    /// In a list, the index of the element that comes next.
    index: Option<usize>,
}

impl Lines {
    pub fn of(text: &str) -> Lines {
        let mut found = BTreeMap::new();
        let mut levels: Vec<Level> = Vec::new();
        let (mut path, mut line, mut is_name) = (String::new(), 1, false);
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            match character {
                '\n' => line += 1,
                '{' | '[' => {
                    found.entry(path.clone()).or_insert(line);
                    let index = (character == '[').then_some(0);
                    is_name = index.is_none();
                    levels.push(Level { path: path.clone(), index });
                    if index.is_some() {
                        path.push_str("/0");
                    }
                }
                '}' | ']' => {
                    levels.pop();
                    is_name = false;
                }
                ',' => match levels.last_mut() {
                    Some(Level { path: list, index: Some(index) }) => {
                        *index += 1;
                        path = format!("{list}/{index}");
                    }
                    _ => is_name = true,
                },
                '"' => {
                    let text = quoted(&mut characters);
                    if let Some(level) = levels.last().filter(|_| std::mem::take(&mut is_name)) {
                        path = format!("{}/{text}", level.path);
                        found.entry(path.clone()).or_insert(line);
                    }
                }
                _ => {}
            }
        }
        Lines(found)
    }

    /// The line of the value at `path`, or of the nearest one around it.
    pub fn at(&self, path: &str) -> usize {
        let mut path = path;
        loop {
            match (self.0.get(path), path.rsplit_once('/')) {
                (Some(line), _) => return *line,
                (None, Some((around, _))) => path = around,
                (None, None) => return 1,
            }
        }
    }
}

/// The rest of a text in quotes, as it is written.
fn quoted(characters: &mut std::str::Chars<'_>) -> String {
    let mut text = String::new();
    while let Some(character) = characters.next() {
        match character {
            '"' => break,
            '\\' => text.extend([Some(character), characters.next()].into_iter().flatten()),
            _ => text.push(character),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_found_by_its_path() {
        let text = "{\n\"a\": [\n{ \"b\": 1,\n\"c\": \"x, {\\\"\" },\n2, {\n\"b\": [] } ],\n\"d\": { \"e\":\nnull }\n}";
        let lines = Lines::of(text);
        for (path, line) in [
            ("", 1),
            ("/a", 2),
            ("/a/0", 3),
            ("/a/0/b", 3),
            ("/a/0/c", 4),
            ("/a/2", 5),
            ("/a/2/b", 6),
            ("/d", 7),
            ("/d/e", 7),
        ] {
            assert_eq!(lines.at(path), line, "{path}");
        }
    }

    #[test]
    fn what_is_not_there_is_where_it_should_be() {
        let lines = Lines::of("{\n\"a\":\n{\n\"b\": 1 } }");
        assert_eq!((lines.at("/a/missing/more"), lines.at("/nothing"), lines.at("x")), (2, 1, 1));
    }
}
