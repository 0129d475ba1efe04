//! A peer with some right holds no more than its connection, its policy and all together may (P7), and is refused what goes beyond.

use crate::server::*;
use crate::{KIBIBYTE, MEBIBYTE, Measured};
use message::Value;
use std::sync::atomic::Ordering;
use tokio::io::DuplexStream;

/// For all connections of a server; one policy has half of it.
const ALL_BYTES: usize = 16 * MEBIBYTE;

const CONNECTIONS: usize = 8;

/// What each may hold beyond what is shared: what is always there, and what was under way when the last of it was taken.
const OWN_BYTES: usize = 384 * KIBIBYTE;

const NODE: &str = "orders/$management";

type Peer = Greedy<DuplexStream>;

#[derive(Debug, Clone, Copy)]
pub enum Deed {
    /// Answers of a management node that are not taken.
    UntakenReplies,
    /// Answers of `$cbs` that are not taken.
    UntakenClaims,
    /// Requests of which the end does not come.
    UnfinishedRequests,
    /// Messages of which the end does not come.
    UnfinishedMessages,
    /// Large messages that are peeked at on sessions whose windows are closed.
    ClosedWindows,
    /// Links with long names.
    ManyLinks,
    /// A receiver asks for the rest again and again, and reads no answer.
    UnreadDrains,
    /// Messages without the session that their queue wants, whose refusals are not read.
    UnreadRefusals,
    /// A message over HTTP of which the end does not come.
    HttpMessage,
    /// The same of a batch, which nobody can pass on before it is whole.
    HttpBatch,
    /// The same of the description of an entity.
    HttpEntity,
}

pub const DEEDS: [Deed; 11] = [
    Deed::UntakenReplies,
    Deed::UntakenClaims,
    Deed::UnfinishedRequests,
    Deed::UnfinishedMessages,
    Deed::ClosedWindows,
    Deed::ManyLinks,
    Deed::UnreadDrains,
    Deed::UnreadRefusals,
    Deed::HttpMessage,
    Deed::HttpBatch,
    Deed::HttpEntity,
];

impl Deed {
    fn policy(self) -> &'static str {
        match self {
            Deed::UnfinishedMessages | Deed::UnreadRefusals | Deed::HttpMessage | Deed::HttpBatch => "sender",
            Deed::HttpEntity => "root",
            _ => "reader",
        }
    }

    fn is_http(self) -> bool {
        matches!(self, Deed::HttpMessage | Deed::HttpBatch | Deed::HttpEntity)
    }
}

async fn untaken(peer: &mut Peer, node: &str, share: u32) {
    peer.say_frames(&[(0, sender(0, node))]).await;
    for handle in 1..200 {
        peer.say_frames(&[(0, receiver(handle, node))]).await;
    }
    let id = Value::String("m".repeat(500));
    for round in 0..8_000 / share {
        let request = request(id.clone(), 1 + round % 199, &[("operation", "x")], &Value::Null);
        peer.transfer(0, 0, &request, false).await;
    }
}

async fn unfinished(peer: &mut Peer, address: &str, share: u32) {
    for handle in 0..250 / share {
        peer.say_frames(&[(0, sender(handle, address))]).await;
    }
    for handle in 0..250 / share {
        peer.transfer(0, handle, &message(100_000)[..60_000], true).await;
    }
}

async fn closed_windows(peer: &mut Peer, share: u32) {
    peer.say_frames(&[(0, sender(0, NODE)), (0, receiver(1, NODE))]).await;
    let text = |text: &str| Value::String(text.into());
    let body = Value::Map(vec![
        (text("from-sequence-number"), Value::Long(0)),
        (text("message-count"), Value::Int(250)),
    ]);
    for channel in 1..60 / share as u16 {
        let handle = 1_u32;
        peer.say_frames(&[
            (channel, closed_begin()),
            (channel, sender(0, NODE)),
            (channel, receiver(handle, NODE)),
        ])
        .await;
        let amqp::performative::Performative::Flow(flow) = credit(handle, 100) else {
            unreachable!("a flow")
        };
        let flow = amqp::performative::Flow { incoming_window: 0, ..flow };
        peer.say_frames(&[(channel, amqp::performative::Performative::Flow(flow))]).await;
        let peek = [("operation", "com.microsoft:peek-message")];
        peer.transfer(channel, 0, &request("id".into(), handle, &peek, &body), false).await;
    }
}

async fn many_links(peer: &mut Peer, share: u32) {
    for number in 0..4_000 / share {
        let (channel, handle) = ((number / 250) as u16, number % 250);
        if handle == 0 && channel > 0 {
            peer.say_frames(&[(channel, begin())]).await;
        }
        let amqp::performative::Performative::Attach(mut attach) = receiver(handle, QUEUE) else {
            unreachable!("an attach")
        };
        attach.name = format!("{number}{}", "n".repeat(10_000));
        peer.say_frames(&[(channel, amqp::performative::Performative::Attach(attach))]).await;
    }
}

async fn unread_drains(peer: &mut Peer, share: u32) {
    peer.say_frames(&[(0, receiver(0, QUEUE))]).await;
    peer.answered().await;
    peer.read_no_more();
    let amqp::performative::Performative::Flow(flow) = credit(0, 1) else { unreachable!("a flow") };
    let drain = amqp::performative::Performative::Flow(amqp::performative::Flow { drain: true, ..flow });
    let many = frames(&[(0, drain)])[0].repeat(1_000);
    for _ in 0..200 / share {
        peer.say(&many).await;
    }
}

async fn unread_refusals(peer: &mut Peer, share: u32) {
    peer.say_frames(&[(0, sender(0, SESSION_QUEUE))]).await;
    peer.answered().await;
    peer.read_no_more();
    for first in 0..200 / share {
        let each = |id| transfer(first * 500 + id, (0, 0), &message(10), false);
        peer.say(&(0..500).flat_map(each).collect::<Vec<u8>>()).await;
    }
}

/// The most of a request over HTTP that may be taken in, but for its last bytes.
async fn unfinished_request(peer: &mut Peer, line: &str, kind: &str, policy: &str, length: usize) {
    let token = token(policy);
    let head = format!(
        "{line} HTTP/1.1\r\nHost: h\r\nAuthorization: {token}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    );
    peer.say(head.as_bytes()).await;
    for _ in 0..length / 1_000 - 1 {
        peer.say(&[b' '; 1_000]).await;
    }
}

/// Does it, or one of so many shares of it, over AMQP plain or in a WebSocket, or over HTTP.
pub async fn done(server: &TestServer, deed: Deed, share: u32, is_websocket: bool) -> Peer {
    let policy = deed.policy();
    let mut peer = match deed.is_http() {
        true => Greedy::over(server.pipe()).reading(),
        false => server.admitted_over(policy, is_websocket).await,
    };
    match deed {
        Deed::HttpMessage => {
            // Shorter than the parts in which a message goes to the disk, which is memory here.
            unfinished_request(&mut peer, "POST /orders/messages", "text/plain", policy, 500_000).await;
        }
        Deed::HttpBatch => {
            let kind = "application/vnd.microsoft.servicebus.json";
            unfinished_request(&mut peer, "POST /orders/messages", kind, policy, 1_000_000).await;
        }
        Deed::HttpEntity => {
            let line = "PUT /other?api-version=2021-05";
            unfinished_request(&mut peer, line, "application/atom+xml", policy, 1_000_000).await;
        }
        Deed::UntakenReplies => untaken(&mut peer, NODE, share).await,
        Deed::UntakenClaims => untaken(&mut peer, "$cbs", share).await,
        Deed::UnfinishedRequests => unfinished(&mut peer, NODE, share).await,
        Deed::UnfinishedMessages => unfinished(&mut peer, QUEUE, share).await,
        Deed::ClosedWindows => closed_windows(&mut peer, share).await,
        Deed::ManyLinks => many_links(&mut peer, share).await,
        Deed::UnreadDrains => unread_drains(&mut peer, share).await,
        Deed::UnreadRefusals => unread_refusals(&mut peer, share).await,
    }
    peer
}

/// Puts messages there that a peek shows many bytes of.
pub async fn fill(server: &TestServer) {
    let mut peer = server.admitted("sender").await;
    peer.say_frames(&[(0, sender(0, QUEUE))]).await;
    for _ in 0..40 {
        peer.transfer(0, 0, &message(60_000), false).await;
    }
    server.settle().await;
}

#[tokio::test]
async fn peers_who_take_nothing_and_finish_nothing_hold_what_their_policy_may() {
    let mut measured = Measured::start().await;
    let server = TestServer::new(ALL_BYTES).await;
    fill(&server).await;
    let mut found = Vec::new();
    for deed in DEEDS {
        drop(done(&server, deed, 1, false).await);
        server.settle().await;
        measured.start_again();
        let mut crowd = vec![done(&server, deed, 1, false).await];
        server.settle().await;
        let one = measured.held();
        for _ in 1..CONNECTIONS {
            crowd.push(done(&server, deed, 1, false).await);
        }
        server.settle().await;
        let (all, counted) = (measured.held(), server.state.accounts.pooled_bytes());
        println!("{deed:?}: one {one}, {CONNECTIONS} {all}, counted {counted}, peak {}", measured.peak());
        // Somebody else is served beside them.
        let mut good = server.admitted("sender").await;
        good.say_frames(&[(0, sender(0, QUEUE))]).await;
        good.answered().await;
        let before = good.read_bytes.load(Ordering::Relaxed);
        good.transfer(0, 0, &message(60_000), false).await;
        good.answered().await;
        assert!(good.read_bytes.load(Ordering::Relaxed) > before, "{deed:?}: a good client is not answered");
        drop((crowd, good));
        server.settle().await;
        found.push((deed, one, all, counted, measured.held()));
    }
    for (deed, one, all, counted, left) in found {
        let most = ALL_BYTES / otobus_gateway::limits::POLICY_SHARE + CONNECTIONS * OWN_BYTES;
        assert!(one <= most && all <= most, "{deed:?}: one {one}, all {all} of {most} bytes");
        assert!(counted <= ALL_BYTES, "{deed:?}: {counted} are counted");
        assert!(left <= MEBIBYTE, "{deed:?}: {left} bytes are left");
    }
}
