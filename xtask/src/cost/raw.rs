//! What the machine itself takes: a round trip over loopback between two cores, and a sync of 4 KiB.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::root::target;

const PING_BYTES: usize = 64;
const PINGS: usize = 5_000;
const PAGE_BYTES: usize = 4096;
const SYNCS: usize = 1_000;

/// The median round trip in microseconds, the echo on one core and the asker on the other.
pub fn round_trip(echo_core: &str, ask_core: &str) -> Result<f64, String> {
    let mut echo = Command::new("taskset")
        .args(["-c", echo_core])
        .arg(target().join("release/xtask"))
        .args(["worker", "echo"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot run taskset: {error}"))?;
    let mut port = String::new();
    if let Some(output) = echo.stdout.take() {
        BufReader::new(output).read_line(&mut port).map_err(|error| error.to_string())?;
    }
    let measured = super::worker(ask_core, &["ping", port.trim()]);
    let _ = echo.kill();
    let _ = echo.wait();
    measured?["p50_us"].as_f64().ok_or("the round trip was not measured".into())
}

/// Answers one connection with what it sends, after printing its port.
pub fn echo() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("{}", listener.local_addr()?.port());
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut bytes = [0; PING_BYTES];
    while stream.read_exact(&mut bytes).is_ok() {
        stream.write_all(&bytes)?;
    }
    Ok(())
}

/// Nanoseconds of each round trip.
pub fn ping_times(port: u16) -> io::Result<Vec<u64>> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    let mut bytes = [0x55; PING_BYTES];
    (0..PINGS)
        .map(|_| {
            let began = Instant::now();
            stream.write_all(&bytes)?;
            stream.read_exact(&mut bytes)?;
            Ok(began.elapsed().as_nanos() as u64)
        })
        .collect()
}

/// Nanoseconds of each write and sync of a page into a file whose blocks were written before.
pub fn sync_times(path: &Path) -> io::Result<Vec<u64>> {
    let file = File::create(path)?;
    file.write_all_at(&vec![0; PAGE_BYTES * SYNCS], 0)?;
    file.sync_all()?;
    let page = [0x55; PAGE_BYTES];
    let times = (0..SYNCS)
        .map(|index| {
            let began = Instant::now();
            file.write_all_at(&page, (index * PAGE_BYTES) as u64)?;
            file.sync_data()?;
            Ok(began.elapsed().as_nanos() as u64)
        })
        .collect();
    std::fs::remove_file(path)?;
    times
}
