//! A storm of hostile peers, in an order that a seed chooses: strangers and holders of each right at once, over AMQP, WebSocket and
//! HTTP, and a good client beside them, which is served. What all of them hold stays below what is declared, and is given back when they are gone.

use crate::server::*;
use crate::{KIBIBYTE, MEBIBYTE, Measured, known, strangers};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const CONNECTIONS_BYTES: usize = 16 * MEBIBYTE;

const HOSTILE: usize = 12;

/// Beside what connections hold: the tail cache, the journal's next segment, what each hostile peer of this process is about to
/// say, and what each may hold beyond what is shared.
const DECLARED_BYTES: usize = CONNECTIONS_BYTES + MEBIBYTE + 4 * MEBIBYTE + HOSTILE * 512 * KIBIBYTE;

/// Numbers that a seed decides.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }
}

async fn hostile(server: Arc<TestServer>, scripts: Arc<Vec<Vec<Vec<u8>>>>, mut random: Random) {
    for _ in 0..3 {
        let nth = random.below(known::DEEDS.len() + scripts.len());
        match known::DEEDS.get(nth) {
            Some(deed) => {
                let is_websocket = random.below(2) == 0;
                drop(known::done(&server, *deed, 8, is_websocket).await);
            }
            None => {
                let mut stranger = Greedy::over(server.pipe());
                if random.below(2) == 0 {
                    stranger.say(UPGRADE).await;
                    stranger.is_websocket = true;
                }
                stranger.say_all(&scripts[nth - known::DEEDS.len()]).await;
            }
        }
    }
}

#[tokio::test]
async fn a_storm_of_hostile_peers_stays_below_what_is_declared_and_leaves_nothing() {
    let mut measured = Measured::start().await;
    let server = Arc::new(TestServer::new(CONNECTIONS_BYTES).await);
    known::fill(&server).await;
    let scripts = Arc::new(strangers::scripts());
    // The first of each makes what is made once.
    hostile(Arc::clone(&server), Arc::clone(&scripts), Random(7)).await;
    server.settle().await;
    measured.start_again();
    let is_over = Arc::new(AtomicBool::new(false));
    let good = tokio::spawn({
        let (server, is_over) = (Arc::clone(&server), Arc::clone(&is_over));
        async move {
            let mut client = server.admitted("root").await;
            client.say_frames(&[(0, sender(0, QUEUE))]).await;
            client.answered().await;
            let mut served = 0;
            while !is_over.load(Ordering::Relaxed) {
                let before = client.read_bytes.load(Ordering::Relaxed);
                client.transfer(0, 0, &message(1_000), false).await;
                while client.read_bytes.load(Ordering::Relaxed) == before {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                served += 1;
            }
            served
        }
    });
    let storm: Vec<_> = (0..HOSTILE as u64)
        .map(|seed| tokio::spawn(hostile(Arc::clone(&server), Arc::clone(&scripts), Random(seed))))
        .collect();
    for peer in storm {
        peer.await.unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    let served = good.await.unwrap();
    let peak = measured.peak();
    let slice = server.state.engine.counters().longest_slice_steps.load(Ordering::Relaxed);
    assert!(slice > 0 && slice <= broker::limits::SLICE_STEPS, "one decision took {slice} steps");
    println!("{peak} bytes at the worst moment, {served} messages of the good client");
    assert!(peak <= DECLARED_BYTES, "{peak} of {DECLARED_BYTES} bytes");
    assert!(served >= 10, "the good client was served {served} times");
    let mut left = usize::MAX;
    for _ in 0..50 {
        server.settle().await;
        left = left.min(measured.held());
        if left <= MEBIBYTE {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(left <= 2 * MEBIBYTE, "{left} bytes are left after five seconds");
}
