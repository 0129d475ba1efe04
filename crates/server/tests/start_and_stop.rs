//! The binary as a person meets it: what it prints, how it refuses to start, how it ends.
#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of its own for each test, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("otobus-start-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn otobus(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_otobus"));
    for variable in ["CONFIG", "DATA", "LISTEN_BUS", "LOG", "LOG_FORMAT", "READY_FILE", "TEST_CLOCK"] {
        command.env_remove(format!("OTOBUS_{variable}"));
    }
    // A port of their own is what the tests of the items ask for.
    command.env("OTOBUS_LISTEN_ITEMS", "none");
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command
}

/// Runs the binary to its end, which must be a refusal in one line.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = otobus(folder, arguments).output().unwrap();
    let text = String::from_utf8(stderr).unwrap();
    assert!(!status.success(), "it started");
    assert!(stdout.is_empty(), "it announced itself");
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

/// A server that runs. Dropping it kills it.
struct Running {
    child: Child,
    lines: Vec<String>,
}

impl Running {
    /// Starts and reads what is announced, up to `ready`.
    fn start(folder: &Path, arguments: &[&str]) -> Running {
        let log = std::fs::File::options().create(true).append(true).open(folder.join("log")).unwrap();
        let child = otobus(folder, arguments).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut running = Running { child, lines: Vec::new() };
        let mut is_ready = false;
        for line in BufReader::new(running.child.stdout.take().unwrap()).lines().map(Result::unwrap) {
            if line == "ready" {
                is_ready = true;
                break;
            }
            running.lines.push(line);
        }
        assert!(is_ready, "it ended before it was ready: {:?}", running.lines);
        running
    }

    fn port(&self) -> SocketAddr {
        self.lines.iter().find_map(|line| line.strip_prefix("bus ")).unwrap().parse().unwrap()
    }

    fn terminate(mut self) -> Option<i32> {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_first_start_without_a_configuration_says_what_it_made_and_no_other_makes_anything() {
    let folder = Folder::new();
    let arguments = ["--listen-bus", "127.0.0.1:0"];
    let made = |running: &Running| {
        running.lines.iter().find_map(|line| line.strip_prefix("made ")).map(str::to_owned)
    };
    let first = Running::start(&folder.0, &arguments);
    assert_eq!(made(&first).as_deref(), Some("queue.1 topic.1"));
    assert_eq!(first.terminate(), Some(0));
    let second = Running::start(&folder.0, &arguments);
    assert_eq!(made(&second), None);
    drop(second);
    // A directory with the keys of another life is not new, and what somebody has configured is left as it is.
    let configured = Folder::new();
    configured.write("otobus.toml", "");
    assert_eq!(made(&Running::start(&configured.0, &arguments)), None);
    // Topics are not for everybody.
    for (tier, expected) in
        [("basic", "queue.1"), ("standard", "queue.1 topic.1"), ("premium", "queue.1 topic.1")]
    {
        let folder = Folder::new();
        let running = Running::start(&folder.0, &["--listen-bus", "127.0.0.1:0", "--tier", tier]);
        assert_eq!(made(&running).as_deref(), Some(expected), "{tier}");
    }
}

#[test]
fn a_first_start_that_fails_on_its_way_makes_its_entities_the_next_time() {
    use std::os::unix::fs::DirBuilderExt;
    let folder = Folder::new();
    // Keys and a journal are made before the certificate is looked for, the entities after it.
    let (data, tls) = (folder.0.join("otobus-data"), folder.0.join("otobus-data/tls"));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&tls).unwrap();
    let arguments = ["--listen-bus", "127.0.0.1:0"];
    let told = refused(&folder.0, &arguments);
    assert!(told.contains("server.pem"), "{told}");
    assert!(data.join("keys.toml").exists() && data.join("bus/0").exists());
    std::fs::remove_dir(&tls).unwrap();
    for made in [Some("made queue.1 topic.1"), None] {
        let running = Running::start(&folder.0, &arguments);
        assert_eq!(running.lines.iter().find(|line| line.starts_with("made ")).map(String::as_str), made);
        assert_eq!(running.terminate(), Some(0));
    }
}

#[test]
fn it_says_where_it_listens_serves_and_stops_when_told() {
    let folder = Folder::new();
    folder.write("otobus.toml", "[[queue]]\nname = \"orders\"\n");
    let arguments = ["--listen-bus", "127.0.0.1:0,127.0.0.1:0", "--ready-file", "ready.json"];
    let server = Running::start(&folder.0, &arguments);
    assert!(get(server.port(), "/health").starts_with("HTTP/1.1 200 "));
    assert!(get(server.port(), "/orders").starts_with("HTTP/1.1 401 "));
    let ready = std::fs::read_to_string(folder.0.join("ready.json")).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    assert_eq!(ready["bus"][0], server.port().to_string());
    assert_eq!(ready["bus"].as_array().unwrap().len(), 2);
    assert!(Path::new(ready["ca"].as_str().unwrap()).exists());
    let key = std::fs::read_to_string(folder.0.join("otobus-data/keys.toml")).unwrap();
    let key = key.split('"').nth(1).unwrap();
    assert!(!server.lines.iter().any(|line| line.contains(key)), "the key went into a pipe");
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn what_a_server_has_stored_is_said_to_be_whole_when_it_has_stopped() {
    let folder = Folder::new();
    folder.write("otobus.toml", "[[queue]]\nname = \"orders\"\n");
    let running = Running::start(&folder.0, &["--listen-bus", "127.0.0.1:0", "--data", "data"]);
    assert_eq!(running.terminate(), Some(0));
    let verified = otobus(&folder.0, &["verify", "--data", "data"]).output().unwrap();
    let said = String::from_utf8([&verified.stdout[..], &verified.stderr[..]].concat()).unwrap();
    assert!(verified.status.success() && said.contains("as it was written"), "{said}");
    assert!(!said.contains("bus: 0 batches") && !said.contains(" 0 batches"), "{said}");
}

#[test]
fn it_starts_again_on_its_own_data_with_the_same_certificate_and_key() {
    let folder = Folder::new();
    let kept = || {
        ["otobus-data/keys.toml", "otobus-data/tls/ca.pem"]
            .map(|file| std::fs::read(folder.0.join(file)).unwrap())
    };
    assert_eq!(Running::start(&folder.0, &["serve", "--listen-bus", "127.0.0.1:0"]).terminate(), Some(0));
    let before = kept();
    assert_eq!(Running::start(&folder.0, &["--listen-bus", "127.0.0.1:0"]).terminate(), Some(0));
    assert_eq!(kept(), before);
}

#[test]
fn a_data_directory_whose_journal_was_emptied_is_refused_and_left_alone() {
    let folder = Folder::new();
    assert_eq!(Running::start(&folder.0, &["--listen-bus", "127.0.0.1:0"]).terminate(), Some(0));
    let journal = folder.0.join("otobus-data/bus/0");
    for file in std::fs::read_dir(&journal).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    for _ in 0..2 {
        let text = refused(&folder.0, &["--listen-bus", "127.0.0.1:0"]);
        assert!(text.contains("bus/0 is missing") && text.contains("keys.toml"), "{text}");
        assert_eq!(std::fs::read_dir(&journal).unwrap().count(), 0);
    }
    std::fs::remove_dir_all(&journal).unwrap();
    refused(&folder.0, &["--listen-bus", "127.0.0.1:0"]);
    std::fs::rename(folder.0.join("otobus-data/keys.toml"), folder.0.join("keys.toml")).unwrap();
    assert_eq!(Running::start(&folder.0, &["--listen-bus", "127.0.0.1:0"]).terminate(), Some(0));
}

#[test]
fn a_port_in_use_is_named_and_no_data_is_touched() {
    let folder = Folder::new();
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    let text = refused(&folder.0, &["--listen-bus", &format!("127.0.0.1:0,{taken}")]);
    assert!(text.contains(&taken) && text.contains("--listen-bus"), "{text}");
    assert!(!folder.0.join("otobus-data").exists());
}

#[test]
fn a_data_directory_in_use_is_named_with_its_holder() {
    let folder = Folder::new();
    let first = Running::start(&folder.0, &["--listen-bus", "127.0.0.1:0"]);
    let text = refused(&folder.0, &["--listen-bus", "127.0.0.1:0"]);
    assert!(
        text.contains("otobus-data") && text.contains(&format!("process {}", first.child.id())),
        "{text}"
    );
}

#[test]
fn a_data_directory_that_cannot_be_is_named() {
    let folder = Folder::new();
    folder.write("file", "");
    let text = refused(&folder.0, &["--listen-bus", "127.0.0.1:0", "--data", "file/data"]);
    assert!(text.contains("file/data") && text.contains("--data"), "{text}");
}

#[test]
fn a_bad_line_of_the_configuration_is_named() {
    let folder = Folder::new();
    folder.write(
        "otobus.toml",
        "[listen]\nbus = [\"127.0.0.1:0\"]\n[[queue]]\nname = \"q\"\nlock_durtion = \"PT1M\"\n",
    );
    let text = refused(&folder.0, &[]);
    assert!(text.contains("otobus.toml line 5: ") && text.contains("lock_durtion"), "{text}");
    assert!(!folder.0.join("otobus-data").exists());
}

#[test]
fn a_configuration_that_is_asked_for_must_be_there() {
    let folder = Folder::new();
    let text = refused(&folder.0, &["--config", "other.toml"]);
    assert!(text.contains("other.toml") && text.contains("--config"), "{text}");
}

#[test]
fn a_queue_that_cannot_be_created_is_named() {
    let folder = Folder::new();
    folder.write("otobus.toml", "[[queue]]\nname = \"a//b\"\n");
    let text = refused(&folder.0, &["--listen-bus", "127.0.0.1:0"]);
    assert!(text.contains("otobus.toml line 2: ") && text.contains("a//b"), "{text}");
    assert!(!folder.0.join("otobus-data").exists());
}

// H-124
#[test]
fn a_bad_line_of_the_emulator_s_file_is_named_before_any_file_is_made() {
    let folder = Folder::new();
    let file = r#"{ "UserConfig": { "Namespaces": [ { "Name": "n",
        // One of these is wrong.
        "Queues": [ { "Name": "q" },
                    { "Name": "Q" } ] } ] } }"#;
    folder.write("Config.json", file);
    let text = refused(&folder.0, &["--listen-bus", "127.0.0.1:0", "--config", "Config.json"]);
    assert!(text.contains("Config.json line 4: ") && text.contains("declared twice"), "{text}");
    assert!(!folder.0.join("otobus-data").exists());
}

// S-171, H-124
#[test]
fn a_target_that_is_not_there_is_named_with_its_line() {
    let folder = Folder::new();
    let queue = "[[queue]]\nname = \"q\"\n\nforward_dead_lettered_messages_to = \"nowhere\"\n";
    let subscription =
        "[[topic]]\nname = \"t\"\n[[topic.subscription]]\nname = \"s\"\nforward_to = \"nowhere\"\n";
    for (file, line, name) in [(queue, 4, "queue `q`"), (subscription, 5, "subscription `t/s`")] {
        folder.write("otobus.toml", file);
        let text = refused(&folder.0, &["--listen-bus", "127.0.0.1:0"]);
        let expected = format!("otobus: otobus.toml line {line}: {name} cannot be created: ");
        assert!(text.starts_with(&expected) && text.contains("nowhere"), "{text}");
    }
    let file = r#"{ "UserConfig": { "Namespaces": [ { "Queues": [ { "Name": "q" } ], "Topics": [ {
        "Name": "news", "Subscriptions": [ { "Name": "s", "Properties": {
            "ForwardTo": "q",
            "ForwardDeadLetteredMessagesTo": "nowhere" } } ] } ] } ] } }"#;
    folder.write("Config.json", file);
    let text = refused(&folder.0, &["--listen-bus", "127.0.0.1:0", "--config", "Config.json"]);
    let expected = "otobus: Config.json line 4: subscription `news/s` cannot be created: ";
    assert!(text.starts_with(expected) && text.contains("nowhere"), "{text}");
}

#[test]
fn the_connection_string_points_to_the_key_that_counts() {
    let folder = Folder::new();
    let connect = || {
        let server = Running::start(&folder.0, &["--listen-bus", "127.0.0.1:0"]);
        server.lines.iter().find(|line| line.starts_with("connect ")).unwrap().clone()
    };
    assert!(connect().ends_with("/otobus-data/keys.toml>"));
    let policy = |name: &str| {
        format!(
            "[[policy]]\nname = \"{name}\"\nkey = \"hush\"\nrights = [\"Manage\", \"Send\", \"Listen\"]\n"
        )
    };
    folder.write("otobus.toml", &policy("other"));
    assert!(connect().ends_with("/otobus-data/keys.toml>"));
    let of_another = policy("RootManageSharedAccessKey").replace("[[policy", "[[namespace.policy");
    folder.write("otobus.toml", &format!("[[namespace]]\nname = \"other\"\n{of_another}"));
    assert!(connect().ends_with("/otobus-data/keys.toml>"), "it opens another namespace");
    folder.write("otobus.toml", &policy("RootManageSharedAccessKey"));
    let connect = connect();
    assert!(connect.ends_with("SharedAccessKey=<see otobus.toml>"), "{connect}");
}

// T1
#[test]
fn a_name_that_the_certificate_lacks_is_told() {
    let folder = Folder::new();
    let log_with = |names: &str| {
        folder.write("otobus.toml", &format!("[tls]\nnames = [{names}]\n"));
        Running::start(&folder.0, &["--listen-bus", "127.0.0.1:0"]).terminate();
        std::fs::read_to_string(folder.0.join("log")).unwrap()
    };
    assert_eq!(log_with("\"old.example\""), "");
    assert_eq!(log_with("\"localhost\", \"old.example\""), "");
    let log = log_with("\"old.example\", \"new.example\"");
    assert!(log.contains("name=new.example") && !log.contains("name=old.example"), "{log}");
    assert!(log.contains("otobus-data/tls"), "{log}");
}

#[test]
fn a_variable_stands_in_for_a_flag() {
    let folder = Folder::new();
    let mut command = otobus(&folder.0, &[]);
    command.env("OTOBUS_LISTEN_BUS", "300.0.0.1:1");
    let output = command.output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("300.0.0.1:1"));
}

#[test]
fn an_amqp_client_that_closes_is_let_go_at_once() {
    let folder = Folder::new();
    let server = Running::start(&folder.0, &["--listen-bus", "127.0.0.1:0"]);
    let mut stream = TcpStream::connect(server.port()).unwrap();
    // Shorter than the time in which a connection must show a claim: that it ends by then proves nothing.
    stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    let sasl_init = b"\x00\x00\x00\x19\x02\x01\x00\x00\x00\x53\x41\xc0\x0c\x01\xa3\x09ANONYMOUS";
    let open = b"\x00\x00\x00\x11\x02\x00\x00\x00\x00\x53\x10\xc0\x04\x01\xa1\x01x";
    let close = b"\x00\x00\x00\x0c\x02\x00\x00\x00\x00\x53\x18\x45";
    let pieces: [&[u8]; 5] = [b"AMQP\x03\x01\x00\x00", sasl_init, b"AMQP\x00\x01\x00\x00", open, close];
    stream.write_all(&pieces.concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let last = &answer[answer.len() - 16..];
    assert!(last.windows(3).any(|bytes| bytes == b"\x00\x53\x18"), "its last frame is no close: {last:x?}");
}

// W-14
#[test]
fn what_a_terminal_obeys_is_escaped_in_errors_of_the_configuration() {
    let folder = Folder::new();
    let arguments = ["--listen-bus", "127.0.0.1:0", "--config", "Config.json"];
    for obeyed in ['\u{1b}', '\u{9b}', '\u{2028}', '\u{202e}', '\u{2066}'] {
        folder.write("otobus.toml", &format!("[[queue]]\nname = \"a//{obeyed}b\"\n"));
        let queues = format!("{{ \"Name\": \"q{obeyed}\" }}, {{ \"Name\": \"Q{obeyed}\" }}");
        let namespace = format!("{{ \"Name\": \"n\", \"Queues\": [ {queues} ] }}");
        let file = format!("{{ \"UserConfig\": {{ \"Namespaces\": [ {namespace} ] }} }}");
        folder.write("Config.json", &file);
        let escaped = format!("\\u{:04x}", u32::from(obeyed));
        for text in [refused(&folder.0, &arguments[..2]), refused(&folder.0, &arguments)] {
            assert!(text.contains(&escaped) || obeyed == '\u{1b}', "{text}");
            assert!(!text.trim_end().contains(|c: char| c == obeyed || c.is_control()), "{text:?}");
        }
    }
}

/// Everything below a folder whose mode lets others in.
fn open_to_others(folder: &Path) -> Vec<(PathBuf, u32)> {
    use std::os::unix::fs::PermissionsExt;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, metadata) = (entry.path(), entry.metadata().unwrap());
        let mode = metadata.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            found.push((path.clone(), mode));
        }
        if metadata.is_dir() {
            found.append(&mut open_to_others(&path));
        }
    }
    found
}

// W-13
#[test]
fn whatever_the_umask_is_everything_that_is_made_is_for_its_owner_alone() {
    let folder = Folder::new();
    let binary = env!("CARGO_BIN_EXE_otobus");
    let mut command = Command::new("sh");
    let script = format!("umask 000; exec {binary} --listen-bus 127.0.0.1:0 --listen-items 127.0.0.1:0");
    command.args(["-c", &script]).current_dir(&folder.0).stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut running = Running { child, lines: Vec::new() };
    let lines = BufReader::new(running.child.stdout.take().unwrap()).lines().map(Result::unwrap);
    running.lines = lines.take_while(|line| line != "ready").collect();
    let data = folder.0.join("otobus-data");
    assert!(data.join("items").exists() && data.join("keys.toml").exists(), "{:?}", running.lines);
    assert_eq!(open_to_others(&data), []);
    assert_eq!(running.terminate(), Some(0));
    assert_eq!(open_to_others(&data), [], "after its end");
}

// W-30
#[test]
fn a_head_whose_lines_end_without_a_carriage_return_is_refused_at_the_items_port_too() {
    let folder = Folder::new();
    let arguments = ["--listen-bus", "127.0.0.1:0", "--listen-items", "127.0.0.1:0"];
    let server = Running::start(&folder.0, &arguments);
    let items = server.lines.iter().find_map(|line| line.strip_prefix("items ")).unwrap();
    let items: SocketAddr = items.parse().unwrap();
    let asked = |text: &str| {
        let mut stream = TcpStream::connect(items).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let good = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let last = "GET /health HTTP/1.1\r\nHost: localhost\nConnection: close\r\n\r\n";
    assert!(asked(last).starts_with("HTTP/1.1 400 "));
    let both = asked(&format!("{good}{last}"));
    assert!(both.starts_with("HTTP/1.1 200 ") && both.contains("HTTP/1.1 400 "), "{both}");
}

#[test]
fn a_stop_ends_the_idle_clients_of_every_door_and_cuts_nobody() {
    let folder = Folder::new();
    let ports = ["--listen-bus", "127.0.0.1:0", "--listen-items", "127.0.0.1:0", "--log", "info"];
    let server = Running::start(&folder.0, &ports);
    let address = |word: &str| -> SocketAddr {
        server.lines.iter().find_map(|line| line.strip_prefix(word)).unwrap().parse().unwrap()
    };
    let (bus, items) = (address("bus "), address("items "));
    let health = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // Each has been served, and goes on listening.
    let idle = |address, asked: &[u8], answered: &[u8]| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(asked).unwrap();
        let mut said = vec![0; answered.len()];
        stream.read_exact(&mut said).unwrap();
        assert_eq!(said, answered);
        stream
    };
    let sasl = b"AMQP\x03\x01\0\0";
    let clients = [
        idle(bus, sasl, sasl),
        idle(bus, health.as_bytes(), b"HTTP/1.1 200 OK"),
        idle(items, health.as_bytes(), b"HTTP/1.1 200 OK"),
    ];
    assert_eq!(server.terminate(), Some(0));
    let log = std::fs::read_to_string(folder.0.join("log")).unwrap();
    assert!(!log.contains("did not end in time"), "{log}");
    drop(clients);
}
