//! What the door of the items costs, without anything behind it: signatures, headers, HTTP. Two processes, so that each can have a
//! core of its own:
//!
//! ```text
//! taskset -c 0 target/release/examples/items_door serve 18081 &
//! taskset -c 1 target/release/examples/items_door load 18081 10
//! ```
//!
//! Point reads of an item of 1 KiB over 32 connections in plain text, each with one request at a time.

use bytes::Bytes;
use items::{Answer, Command, ContainerFacts, Document, Refusal, Reply};
use otobus_gateway::auth::{Secret, UnixSeconds};
use otobus_gateway::cosmos::{Ask, Door, Keys, Settings, sign};
use otobus_gateway::listen::{Doors, Peer};
use otobus_gateway::names::Names;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const KEY: &str = "a2V5";
const DATE: &str = "Thu, 27 Apr 2017 00:51:12 GMT";
const CONNECTIONS: usize = 32;

/// Has the same item for everybody.
#[derive(Debug, Clone)]
struct OneItem(Arc<Reply>);

impl Ask for OneItem {
    async fn ask(&self, _: Command) -> Result<Reply, Refusal> {
        Ok((*self.0).clone())
    }

    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}

fn reply() -> Reply {
    let body = format!("{{\"id\":\"1\",\"text\":\"{}\"}}", "x".repeat(1_000));
    let document = Document { body: body.into(), etag: "\"0d00b23f-0000-0000-0000-5c7712e80000\"".into() };
    let place = ContainerFacts {
        database: "d".into(),
        container: "c".into(),
        container_rid: "Jic9ANWdO-E=".into(),
        lsn: 57,
        item_lsn: Some(56),
        item_count: 1,
        item_bytes: 1_000,
    };
    Reply { answer: Answer::Found(document), charge: 100, place: Some(place) }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", port] => runtime.block_on(serve(port.parse()?)),
        ["load", port, seconds] => {
            runtime.block_on(load(port.parse()?, Duration::from_secs(seconds.parse()?)))
        }
        _ => Err("serve PORT, or load PORT SECONDS".into()),
    }
}

async fn serve(port: u16) -> Result<(), Box<dyn Error>> {
    let keys = Keys::new(&[Secret::new(KEY)], &[], false)?;
    let settings = Settings { skew: Duration::from_secs(UnixSeconds::now().0), ..Settings::default() };
    let door = Arc::new(Door::new(OneItem(Arc::new(reply())), keys, Names::default(), settings));
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    loop {
        let (stream, address) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(Arc::clone(&door).http(stream, bytes::BytesMut::new(), Peer::new(address)));
    }
}

async fn load(port: u16, time: Duration) -> Result<(), Box<dyn Error>> {
    let text = format!("get\ndocs\ndbs/d/colls/c/docs/1\n{}\n\n", DATE.to_lowercase());
    let signature = sign(KEY, &text)?.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    let request = Bytes::from(format!(
        "GET /dbs/d/colls/c/docs/1 HTTP/1.1\r\nHost: localhost:{port}\r\nUser-Agent: items_door\r\nAccept: */*\r\n\
         x-ms-date: {DATE}\r\nauthorization: type%3Dmaster%26ver%3D1.0%26sig%3D{signature}\r\nx-ms-version: 2020-07-15\r\n\
         x-ms-documentdb-partitionkey: [\"x\"]\r\nx-ms-session-token: 0:-1#57\r\nx-ms-consistency-level: Session\r\n\r\n"
    ));
    let (count, began) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let mut tasks = Vec::new();
    for _ in 0..CONNECTIONS {
        let (request, count) = (request.clone(), Arc::clone(&count));
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        tasks.push(tokio::spawn(async move {
            let mut room = vec![0; 16 * 1_024];
            while began.elapsed() < time {
                stream.write_all(&request).await?;
                let read = stream.read(&mut room).await?;
                if !room[..read].starts_with(b"HTTP/1.1 200") {
                    return Err(std::io::Error::other(String::from_utf8_lossy(&room[..read]).into_owned()));
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    let rate = count.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    println!("{rate:.0} requests a second");
    Ok(())
}
