//! A hundred requests that mean harm: each is answered with a refusal or closed, changes nothing, and leaves the door open
//! for the next.

use super::TestServer;

#[path = "../../../tests/hostile/cases.rs"]
mod cases;

#[tokio::test]
async fn a_hundred_hostile_requests_are_refused_and_harm_nothing() {
    let server = TestServer::default();
    let (bodies, requests) = (cases::bodies(), cases::requests());
    assert!(bodies.len() + requests.len() >= 100, "{} + {}", bodies.len(), requests.len());
    for body in &bodies {
        let (status, _) = server.create("/q", body).await;
        assert!((400..500).contains(&status), "{status}: {}", &body[..body.len().min(200)]);
    }
    for request in &requests {
        let answer = server.exchange(request).await;
        let status: u16 = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let shown = String::from_utf8_lossy(&request[..request.len().min(200)]).into_owned();
        assert!(status == 0 || (400..500).contains(&status), "{status}: {shown}");
        assert!(!answer.contains("root:"), "{shown}");
    }
    let (status, body) = server.get("/$Resources/queues").await;
    assert_eq!(status, 200);
    assert!(!body.contains("<entry"), "{body}");
}
