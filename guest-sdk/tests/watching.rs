//! What the runtime does with copies, with sessions that end, and with a `session/cancel` that waits behind a prompt.

#![allow(clippy::unwrap_used, reason = "a test that finds something else has to fail")]

use std::time::Duration;

use consort_proxy::Peer::{Agent, Client, Host};
use consort_proxy::testing::{Harness, live_handles};
use consort_proxy::{Interests, Json, Observed, Outcome, Proxy, Request, Seen, host};
use serde_json::json;

/// Holds prompts, and watches.
struct Watcher {
    sessions: consort_proxy::Sessions<u32>,
}

impl Proxy for Watcher {
    fn start(_: Json) -> Result<(Self, Interests), String> {
        let interests = Interests::new()
            .intercept(Client, "session/prompt")
            .observe(Agent, "*")
            .session_ends();
        Ok((
            Self {
                sessions: consort_proxy::Sessions::new(),
            },
            interests,
        ))
    }

    async fn request(&self, request: Request) -> Outcome {
        let session = request.session_id().unwrap_or_default();
        let prompts = self.sessions.with(&session, |prompts| {
            *prompts += 1;
            *prompts
        });
        consort_proxy::info!("{session} {prompts}");
        host::sleep(Duration::from_millis(1)).await?;
        request.forward()
    }

    async fn observe(&self, observed: Observed) {
        match observed.message {
            Seen::Request { method, .. } => consort_proxy::info!("{} {method}", observed.ticket),
            Seen::Response { outcome } => {
                consort_proxy::info!("{} {}", observed.ticket, outcome.is_ok())
            }
            Seen::Notification { .. } => drop(host::sleep(Duration::from_secs(1)).await),
        }
    }

    fn session_cancelled(&self, session: &str) {
        consort_proxy::info!("cancelled {session}");
    }

    fn lost(&self, copies: u64) {
        consort_proxy::info!("lost {copies}");
    }
}

fn logged(host: &mut Harness) -> Vec<String> {
    host.logs().into_iter().map(|(_, line)| line).collect()
}

#[test]
fn copies_are_seen_but_not_owned() {
    let mut host = Harness::start::<Watcher>(json!({})).unwrap();
    let ticket = host.request(Agent, "fs/read_text_file", json!({}));
    host.answer_observed(Client, ticket, Err("{}"));
    assert_eq!(
        logged(&mut host),
        [format!("{ticket} fs/read_text_file"), format!("{ticket} false")]
    );
    assert!(host.sent().is_empty());
}

#[test]
fn observers_that_wait_are_bounded() {
    let mut host = Harness::start::<Watcher>(json!({})).unwrap();
    for _ in 0..1030 {
        host.notify(Agent, "session/update", json!({}));
    }
    assert_eq!((host.waiting_handlers(), logged(&mut host).len()), (1024, 6));
    host.advance(Duration::from_secs(1));
    assert_eq!((host.waiting_handlers(), live_handles()), (0, 0));
}

#[test]
fn a_session_that_ends_is_forgotten() {
    let mut host = Harness::start::<Watcher>(json!({})).unwrap();
    for session in ["a", "b", "a"] {
        host.request(Client, "session/prompt", json!({"sessionId": session}));
    }
    host.request(Client, "session/close", json!({"sessionId": "a"}));
    host.request(Client, "session/delete", json!({"sessionId": "unknown"}));
    host.request(Client, "session/prompt", json!({"sessionId": "a"}));
    let counts: Vec<_> = logged(&mut host)
        .into_iter()
        .filter(|line| !line.contains("session/"))
        .collect();
    assert_eq!(counts, ["a 1", "b 1", "a 2", "a 1"]);
}

#[test]
fn a_proxy_that_holds_a_prompt_hears_of_its_cancel_once() {
    let mut host = Harness::start::<Watcher>(json!({})).unwrap();
    let prompt = host.request(Client, "session/prompt", json!({"sessionId": "a"}));
    host.announce_session_cancel("a");
    assert_eq!(logged(&mut host), ["a 1", "cancelled a"]);
    assert!(host.sent().is_empty() && host.holds(prompt));
    host.notify(Host, "host/lost", json!({"copies": 3}));
    assert_eq!(logged(&mut host), ["lost 3"]);
}
