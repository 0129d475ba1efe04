//! Judges a licence expression (`(MIT OR Apache-2.0) AND Unicode-3.0`) against the licences we allow.
//!
//! The grammar is SPDX's, without `+`: licences joined by AND and OR, AND binding closer, with parentheses and
//! `licence WITH exception` as one name. The old `MIT/Apache-2.0` means OR.

/// Whether some choice that the expression offers consists of allowed licences only.
pub fn is_allowed(expression: &str, allowed: &[String]) -> Result<bool, String> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader { words: &words, allowed };
    let verdict = reader.any_of();
    match (verdict, reader.words) {
        (Some(verdict), []) => Ok(verdict),
        _ => Err(format!("`{expression}` is not a licence expression")),
    }
}

struct Reader<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
}

impl Reader<'_> {
    fn any_of(&mut self) -> Option<bool> {
        let mut verdict = self.all_of()?;
        while self.took("OR") {
            verdict |= self.all_of()?;
        }
        Some(verdict)
    }

    fn all_of(&mut self) -> Option<bool> {
        let mut verdict = self.one()?;
        while self.took("AND") {
            verdict &= self.one()?;
        }
        Some(verdict)
    }

    fn one(&mut self) -> Option<bool> {
        if self.took("(") {
            let verdict = self.any_of()?;
            return self.took(")").then_some(verdict);
        }
        let mut name = self.next().filter(|word| !["OR", "AND", "WITH", ")"].contains(word))?.to_string();
        if self.took("WITH") {
            name = format!("{name} WITH {}", self.next()?);
        }
        Some(self.allowed.contains(&name))
    }

    fn next(&mut self) -> Option<&str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn took(&mut self, word: &str) -> bool {
        let is_next = self.words.first() == Some(&word);
        if is_next {
            self.words = &self.words[1..];
        }
        is_next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(expression: &str) -> Result<bool, String> {
        is_allowed(expression, &["MIT".into(), "Unicode-3.0".into(), "Apache-2.0 WITH LLVM-exception".into()])
    }

    #[test]
    fn one_allowed_choice_is_enough_and_every_joined_part_is_needed() {
        assert_eq!(verdict("MIT"), Ok(true));
        assert_eq!(verdict("GPL-3.0 OR MIT"), Ok(true));
        assert_eq!(verdict("MIT/Apache-2.0"), Ok(true));
        assert_eq!(verdict("(MIT OR GPL-3.0) AND Unicode-3.0"), Ok(true));
        assert_eq!(verdict("GPL-3.0"), Ok(false));
        assert_eq!(verdict("MIT AND GPL-3.0"), Ok(false));
        assert_eq!(verdict("GPL-3.0 OR MIT AND GPL-2.0"), Ok(false));
    }

    #[test]
    fn an_exception_belongs_to_its_licence() {
        assert_eq!(verdict("Apache-2.0 WITH LLVM-exception"), Ok(true));
        assert_eq!(verdict("Apache-2.0"), Ok(false));
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for nonsense in ["", "(MIT", "MIT OR", "AND MIT", "MIT GPL-3.0", "MIT)"] {
            assert!(verdict(nonsense).is_err(), "{nonsense}");
        }
    }
}
