//! One step of the check: run it, show that it runs and how long it took, keep its output for the case that it fails.

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::Ran;
use crate::root::root;

pub struct Step {
    pub name: &'static str,
    pub run: fn(&mut Ran) -> Result<Report, Failure>,
}

/// A step that passed: how many tests it ran, and a few words for its line.
#[derive(Debug)]
pub struct Report {
    pub passed: usize,
    pub note: String,
}

/// A step that failed: what it printed and the command that prints it again.
#[derive(Debug)]
pub struct Failure {
    pub passed: usize,
    pub failed: usize,
    pub output: String,
    pub command: String,
}

impl Failure {
    /// A failure of the step as a whole.
    pub fn new(output: impl Into<String>, command: impl Into<String>) -> Failure {
        Failure { passed: 0, failed: 1, output: output.into(), command: command.into() }
    }
}

/// Runs a step and prints its line when it has ended: number, name, seconds, outcome. One that runs alone is shown from its
/// beginning.
pub fn announced(
    number: usize,
    of: usize,
    is_alone: bool,
    step: &Step,
    ran: &mut Ran,
) -> Result<Report, Failure> {
    let label = format!("[{number:>2}/{of}] {:<32}", step.name);
    let is_terminal = is_alone && std::io::stdout().is_terminal();
    if is_terminal {
        print!("{label} ...");
        let _ = std::io::stdout().flush();
    }
    let began = Instant::now();
    let outcome = (step.run)(ran);
    let seconds = began.elapsed().as_secs_f32();
    let words = match &outcome {
        Ok(report) if report.note.is_empty() => "ok".to_string(),
        Ok(report) => report.note.clone(),
        Err(_) => "FAILED".to_string(),
    };
    println!("{}{label} {seconds:>6.1} s  {words}", if is_terminal { "\r" } else { "" });
    outcome
}

pub fn cargo(arguments: &[&str]) -> Result<Report, Failure> {
    command("cargo", arguments, &[])
}

/// A step that is one command and passes when the command does.
pub fn command(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Result<Report, Failure> {
    let mut command = Command::new(program);
    command.args(arguments).envs(variables.iter().copied());
    match finished(command) {
        Run { success: true, .. } => Ok(Report { passed: 1, note: String::new() }),
        run => Err(Failure::new(without_progress(&run.output), run.shown)),
    }
}

/// Leaves out what cargo says while it works: it buries what went wrong.
pub fn without_progress(output: &str) -> String {
    const PROGRESS: [&str; 5] = ["Compiling ", "Checking ", "Documenting ", "Downloading ", "Downloaded "];
    let is_progress = |line: &&str| {
        line.starts_with(' ') && PROGRESS.iter().any(|word| line.trim_start().starts_with(word))
    };
    output.lines().filter(|line| !is_progress(line)).map(|line| format!("{line}\n")).collect()
}

/// What came of a command.
pub struct Run {
    pub success: bool,
    /// Both streams, in the order they were written.
    pub output: String,
    /// The command as a person would type it in the repository's root.
    pub shown: String,
}

/// Runs a command in the root (unless it names another folder) and returns once it has ended.
pub fn finished(mut command: Command) -> Run {
    if command.get_current_dir().is_none() {
        command.current_dir(root());
    }
    let shown = shown(&command);
    match output_of(command) {
        Ok((success, output)) => Run { success, output, shown },
        Err(error) => Run { success: false, output: format!("cannot run it: {error}"), shown },
    }
}

fn output_of(mut command: Command) -> std::io::Result<(bool, String)> {
    // One pipe for both streams keeps their order: cargo names a test binary on one and its tests go to the other.
    let (reader, writer) = std::io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // The command holds the write ends; while it does, the reader sees no end.
    drop(command);
    let mut output = String::new();
    let mut line = Vec::new();
    let mut reader = BufReader::new(reader);
    while reader.read_until(b'\n', &mut line)? > 0 {
        output.push_str(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok((child.wait()?.success(), output))
}

fn shown(command: &Command) -> String {
    let mut words: Vec<String> = Vec::new();
    if let Some(folder) = command.get_current_dir().filter(|folder| **folder != root()) {
        words.push(format!("cd {} &&", folder.display()));
    }
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!("{}={}", name.to_string_lossy(), quoted(&value.to_string_lossy())));
        }
    }
    words.push(command.get_program().to_string_lossy().into_owned());
    words.extend(command.get_args().map(|argument| quoted(&argument.to_string_lossy())));
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) { word.to_string() } else { format!("'{word}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn both_streams_arrive_in_the_order_they_were_written() {
        let run = finished(shell("echo one; echo two >&2; echo three"));
        assert!(run.success);
        assert_eq!(run.output, "one\ntwo\nthree\n");
    }

    #[test]
    fn a_failing_command_shows_how_to_repeat_it() {
        let failure =
            command("sh", &["-c", "echo broken; exit 3"], &[("MODE", "a b")]).expect_err("it exits with 3");
        assert_eq!(failure.output, "broken\n");
        assert_eq!(failure.command, "MODE='a b' sh -c 'echo broken; exit 3'");
        assert_eq!(failure.failed, 1);
    }

    #[test]
    fn progress_is_left_out_of_a_failure() {
        let output = "   Compiling x v1\n    Checking y v2\nerror: no such thing\n   --> src/lib.rs\n";
        assert_eq!(without_progress(output), "error: no such thing\n   --> src/lib.rs\n");
    }

    #[test]
    fn a_missing_program_is_a_failure_not_a_crash() {
        let failure = command("no-such-program-here", &[], &[]).expect_err("there is no such program");
        assert!(failure.output.starts_with("cannot run it"), "{}", failure.output);
    }
}
