//! A proxy on loopback between a client and the server, which kills the server at a frame of the client's.

use std::net::Ipv4Addr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// When the server dies. Protocol headers count as frames.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cut {
    Never,
    /// As soon as it was sent so many frames, whether it has read them or not.
    After(usize),
    /// When the client has more to say than so many frames: what it waited for was answered.
    Instead(usize),
}

/// What the client has said.
#[derive(Debug, Default)]
pub struct Said {
    pub frames: usize,
    /// Whether the server was sent the end of a transaction.
    pub is_discharged: bool,
}

#[derive(Debug)]
pub struct Proxy {
    pub port: u16,
    said: JoinHandle<Said>,
}

impl Proxy {
    /// Stands before the server of this port and process for one connection.
    pub async fn before(server: u16, process: u32, cut: Cut) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let said = tokio::spawn(async move {
            let (client, _) = listener.accept().await.expect("a client");
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await.expect("the server");
            let (from_client, mut to_client) = client.into_split();
            let (mut from_server, to_server) = server.into_split();
            let back = tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
            let said = forward(from_client, to_server, process, cut).await;
            back.abort();
            said
        });
        Proxy { port, said }
    }

    /// What was said until the client or the server had gone.
    pub async fn said(self) -> Said {
        self.said.await.expect("a proxy that ends")
    }
}

async fn forward(mut client: OwnedReadHalf, mut server: OwnedWriteHalf, process: u32, cut: Cut) -> Said {
    let mut said = Said::default();
    while let Some(frame) = read(&mut client).await {
        if cut == Cut::Instead(said.frames) {
            kill(process);
            break;
        }
        if server.write_all(&frame).await.is_err() {
            break;
        }
        said.frames += 1;
        // A value whose type is that of a discharge.
        said.is_discharged |= frame.windows(6).any(|bytes| bytes == [0x00, 0x53, 0x77, 0x00, 0x53, 0x32]);
        if cut == Cut::After(said.frames) {
            kill(process);
            break;
        }
    }
    said
}

/// A frame, or a protocol header, which has no length but eight bytes.
async fn read(client: &mut OwnedReadHalf) -> Option<Vec<u8>> {
    let mut frame = vec![0; 8];
    client.read_exact(&mut frame).await.ok()?;
    if !frame.starts_with(b"AMQP") {
        let length = u32::from_be_bytes(frame[..4].try_into().expect("four bytes")) as usize;
        frame.resize(length, 0);
        client.read_exact(&mut frame[8..]).await.ok()?;
    }
    Some(frame)
}

/// SIGKILL, and nothing is waited for.
fn kill(process: u32) {
    let status = std::process::Command::new("kill").args(["-9", &process.to_string()]).status();
    assert!(status.expect("kill").success());
}
