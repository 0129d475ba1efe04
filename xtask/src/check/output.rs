//! Reads the names and results of tests out of what the three test runners print.

/// What a test runner said about one test.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub name: String,
    pub result: TestResult,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum TestResult {
    Passed,
    Failed,
    Skipped,
}

/// A line of Rust's test harness: `test module::name ... ok`.
pub fn rust(line: &str) -> Option<Outcome> {
    let (name, result) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let result = match result.trim_end() {
        "ok" => TestResult::Passed,
        "FAILED" => TestResult::Failed,
        ignored if ignored.starts_with("ignored") => TestResult::Skipped,
        _ => return None,
    };
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    Some(Outcome { name: name.to_string(), result })
}

/// A line of `pytest -v`: `tests/file.py::test_name PASSED [ 10%]`, or by one of several workers
/// `[gw0] [ 10%] PASSED tests/file.py::test_name`.
pub fn python(line: &str) -> Option<Outcome> {
    let mut words = line.split_whitespace();
    let (name, result) = if line.starts_with("[gw") {
        let result = words.find_map(python_result)?;
        (words.next()?, result)
    } else {
        (words.next()?, python_result(words.next()?)?)
    };
    name.contains(".py::").then(|| Outcome { name: name.to_string(), result })
}

fn python_result(word: &str) -> Option<TestResult> {
    match word {
        "PASSED" | "XPASS" => Some(TestResult::Passed),
        "FAILED" | "ERROR" => Some(TestResult::Failed),
        "SKIPPED" | "XFAIL" => Some(TestResult::Skipped),
        _ => None,
    }
}

/// A line of Node's TAP reporter: `ok 1 - a sentence`, `not ok 2 - a sentence`, either with `# SKIP`.
pub fn javascript(line: &str) -> Option<Outcome> {
    let (result, rest) = match line.strip_prefix("not ok ") {
        Some(rest) => (TestResult::Failed, rest),
        None => (TestResult::Passed, line.strip_prefix("ok ")?),
    };
    let (_, name) = rest.split_once(" - ")?;
    let (name, result) = match name.split_once(" # ") {
        Some((name, directive)) if directive.starts_with("SKIP") || directive.starts_with("TODO") => {
            (name, TestResult::Skipped)
        }
        _ => (name, result),
    };
    Some(Outcome { name: name.trim_end().to_string(), result })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, result: TestResult) -> Option<Outcome> {
        Some(Outcome { name: name.into(), result })
    }

    #[test]
    fn rust_lines_are_read_and_others_are_not() {
        assert_eq!(
            rust("test queue::send::it_works ... ok"),
            outcome("queue::send::it_works", TestResult::Passed)
        );
        assert_eq!(rust("test a::b ... FAILED"), outcome("a::b", TestResult::Failed));
        assert_eq!(rust("test a::b ... ignored, slow"), outcome("a::b", TestResult::Skipped));
        assert_eq!(rust("test a::b - should panic ... ok"), outcome("a::b", TestResult::Passed));
        assert_eq!(rust("test result: ok. 3 passed; 0 failed"), None);
        assert_eq!(rust("running 3 tests"), None);
    }

    #[test]
    fn pytest_lines_are_read_and_others_are_not() {
        let line = "tests/sdk/python/test_queue.py::test_a_batch PASSED          [  7%]";
        assert_eq!(python(line), outcome("tests/sdk/python/test_queue.py::test_a_batch", TestResult::Passed));
        assert_eq!(
            python("tests/x.py::test_b ERROR [ 9%]"),
            outcome("tests/x.py::test_b", TestResult::Failed)
        );
        assert_eq!(
            python("tests/x.py::test_b SKIPPED (why) [9%]"),
            outcome("tests/x.py::test_b", TestResult::Skipped)
        );
        assert_eq!(
            python("[gw2] [ 10%] FAILED tests/x.py::test_b "),
            outcome("tests/x.py::test_b", TestResult::Failed)
        );
        assert_eq!(
            python("[gw0] [100%] PASSED tests/x.py::test_c"),
            outcome("tests/x.py::test_c", TestResult::Passed)
        );
        assert_eq!(python("tests/x.py::test_begun "), None);
        assert_eq!(python("FAILED tests/x.py::test_b - assert 1 == 2"), None);
        assert_eq!(python("collected 3 items"), None);
    }

    #[test]
    fn tap_lines_are_read_and_others_are_not() {
        assert_eq!(javascript("ok 1 - a key is refused"), outcome("a key is refused", TestResult::Passed));
        assert_eq!(
            javascript("not ok 12 - it - really - holds"),
            outcome("it - really - holds", TestResult::Failed)
        );
        assert_eq!(javascript("ok 3 - later # SKIP"), outcome("later", TestResult::Skipped));
        assert_eq!(javascript("# Subtest: a key is refused"), None);
        assert_eq!(javascript("    ok 1 - nested"), None);
    }
}
