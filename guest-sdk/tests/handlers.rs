//! What the runtime does with handlers: order, several requests in flight, cancellation, kept notifications, refusals.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that finds something else has to fail"
)]

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use consort_proxy::Peer::{Agent, Client, Host};
use consort_proxy::log::Level;
use consort_proxy::testing::{Harness, Kind, Sent, live_handles};
use consort_proxy::{Interests, Json, Notification, Outcome, Peer, Proxy, Refusal, Request, RpcError, host, json};

/// Does what the method says.
#[derive(Default)]
struct Actor {
    cancelled: RefCell<Vec<String>>,
}

impl Proxy for Actor {
    fn start(_: Json) -> Result<(Self, Interests), String> {
        assert_eq!(
            Client.notify("x", json!({})),
            Err(Refusal::Closed),
            "nothing can be sent in start"
        );
        Ok((
            Self::default(),
            Interests::new()
                .intercept(Client, "*")
                .intercept(Agent, "*")
                .intercept(Agent, "$/known"),
        ))
    }

    async fn request(&self, mut request: Request) -> Outcome {
        match request.method() {
            "both" => {
                let one = Client.request("one", json!({}));
                let two = Agent.request("two", json!({}));
                let (two, one) = (two.await?, one.await?);
                request.reply(json!([one.text(), two.text()]))
            }
            "race" => {
                let winner = first(Client.request("one", json!({})), Agent.request("two", json!({}))).await?;
                request.reply(winner)
            }
            "wait" => {
                let result = request.forward_and_wait().await?;
                request.reply(result)
            }
            "retry" => {
                let params = request.params().clone();
                if let Ok(result) = request.forward_and_wait().await {
                    return request.reply(result);
                }
                request.set_params(params);
                request.forward()
            }
            "sleep" => {
                host::sleep(Duration::from_micros(1)).await?;
                request.forward()
            }
            "nested" => {
                self.deep(3).await?;
                request.forward()
            }
            "guard" => {
                let _guard = Guard;
                let result = request.forward_and_wait().await?;
                request.reply(result)
            }
            "swap" => Err(RpcError::new(5, "five").with_data(json!([1]))),
            "log" => {
                consort_proxy::info!("one {}", 1);
                consort_proxy::trace!("two");
                request.forward()
            }
            "cancelled" => request.reply(json!(*self.cancelled.borrow())),
            _ => request.forward(),
        }
    }

    async fn notification(&self, notification: Notification) -> Outcome {
        match notification.method() {
            "later" => {
                host::sleep(Duration::from_millis(5)).await?;
                notification.forward()
            }
            "discard-later" => {
                host::sleep(Duration::from_millis(5)).await?;
                notification.discard()
            }
            "fail" => Err(RpcError::internal("no luck")),
            "forward-and-work" => {
                let outcome = notification.forward();
                host::sleep(Duration::from_millis(5)).await?;
                Client.notify("worked", json!({}))?;
                outcome
            }
            "discard" => notification.discard(),
            "discard-and-work" => {
                let outcome = notification.discard();
                host::sleep(Duration::from_millis(5)).await?;
                Client.notify("worked", json!({}))?;
                outcome
            }
            _ => notification.forward(),
        }
    }

    fn session_cancelled(&self, session: &str) {
        self.cancelled.borrow_mut().push(session.to_owned());
    }
}

impl Actor {
    async fn deep(&self, levels: u32) -> Result<(), RpcError> {
        if levels == 0 {
            return Client.request("deepest", json!({})).await.map(drop);
        }
        Box::pin(self.deep(levels - 1)).await
    }
}

struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        Client.notify("flushed", json!({})).unwrap();
    }
}

/// The first of two answers; the other request is given up.
async fn first<T>(one: impl Future<Output = T>, two: impl Future<Output = T>) -> T {
    let (mut one, mut two) = (pin!(one), pin!(two));
    std::future::poll_fn(|context| match one.as_mut().poll(context) {
        Poll::Pending => two.as_mut().poll(context),
        ready => ready,
    })
    .await
}

fn start() -> Harness {
    Harness::start::<Actor>(serde_json::json!({})).unwrap()
}

fn empty() -> serde_json::Value {
    serde_json::json!({})
}

fn labels(sent: &[Sent]) -> Vec<(Peer, &str)> {
    sent.iter().map(|sent| (sent.to(), sent.method())).collect()
}

#[test]
fn several_requests_are_in_flight_and_answers_come_in_any_order() {
    let mut host = start();
    let first = host.request(Client, "both", empty());
    let second = host.request(Client, "both", empty());
    let sent = host.sent();
    assert_eq!(
        labels(&sent),
        [(Client, "one"), (Agent, "two"), (Client, "one"), (Agent, "two")]
    );
    host.answer_text(&sent[2], Ok("3"));
    host.answer_text(&sent[1], Ok("2"));
    host.answer_text(&sent[3], Ok("4"));
    let answer = host.next();
    assert_eq!(
        (answer.ticket(), answer.result()),
        (second, serde_json::json!(["3", "4"]))
    );
    host.answer_text(&sent[0], Ok("1"));
    let answer = host.next();
    assert_eq!(
        (answer.ticket(), answer.result()),
        (first, serde_json::json!(["1", "2"]))
    );
    assert_eq!((host.waiting_handlers(), live_handles()), (0, 0));
}

#[test]
fn a_request_goes_on_behalf_of_the_message_only_backwards_and_to_the_host() {
    let mut host = start();
    let ticket = host.request(Client, "both", empty());
    let sent = host.sent();
    assert_eq!((sent[0].on_behalf_of(), sent[1].on_behalf_of()), (Some(ticket), None));
    assert!(host.holds(ticket), "neither passes the message on");
    let ticket = host.request(Agent, "both", empty());
    let sent = host.sent();
    assert_eq!((sent[0].on_behalf_of(), sent[1].on_behalf_of()), (None, Some(ticket)));
}

#[test]
fn a_future_that_is_dropped_cancels_its_request_once() {
    let mut host = start();
    let ticket = host.request(Client, "race", empty());
    let sent = host.sent();
    host.answer_text(&sent[1], Ok("2"));
    let after = host.sent();
    assert_eq!(labels(&after), [(Client, "$/cancel_request"), (Client, "")]);
    let Kind::Request { id: Some(id) } = sent[0].kind() else {
        panic!("it has an id")
    };
    assert_eq!(after[0].params(), serde_json::json!({"requestId": id}));
    assert_eq!((after[1].ticket(), after[1].text()), (ticket, "2"));
    host.answer_error(&sent[0], -32800, "cancelled");
    assert!(host.sent().is_empty(), "the late answer means nothing");
    assert_eq!(live_handles(), 0);
}

#[test]
fn a_cancelled_request_ends_its_handler_and_all_that_it_waits_for() {
    let mut host = start();
    for (method, asked, peer) in [("nested", "deepest", Client), ("wait", "wait", Agent)] {
        let ticket = host.request(Client, method, empty());
        let asking = host.next();
        assert_eq!(asking.method(), asked);
        host.cancel(ticket);
        let sent = host.sent();
        assert_eq!(labels(&sent), [(peer, "$/cancel_request"), (Client, "")]);
        assert_eq!(
            (sent[1].ticket(), sent[1].error()["code"].as_i64()),
            (ticket, Some(-32800))
        );
        assert_eq!(host.waiting_handlers(), 0);
        host.answer(&asking, empty());
        assert!(host.sent().is_empty(), "a real answer that comes later is dropped");
        assert_eq!(live_handles(), 0);
    }
}

#[test]
fn what_a_dropped_handler_sends_comes_before_the_answer() {
    let mut host = start();
    let ticket = host.request(Client, "guard", empty());
    host.next();
    host.cancel(ticket);
    let sent = host.sent();
    assert!(labels(&sent).contains(&(Client, "flushed")));
    assert_eq!(sent.last().map(Sent::kind), Some(Kind::Error));
}

#[test]
fn cancelling_a_sleep_leaves_no_timer() {
    let mut host = start();
    let ticket = host.request(Client, "sleep", empty());
    assert_eq!(
        host.sleeping(),
        [Duration::from_millis(1)],
        "a part of a millisecond is a whole one"
    );
    host.cancel(ticket);
    assert_eq!(
        (host.sleeping(), host.waiting_handlers(), live_handles()),
        (Vec::new(), 0, 0)
    );
    assert_eq!(host.next().error()["code"], -32800);
}

#[test]
fn unknown_cancels_are_ignored() {
    let mut host = start();
    for params in [r#"{"requestId":77}"#, r#"{"requestId":"x"}"#, "{}"] {
        host.notify_text(Client, "$/cancel_request", params);
    }
    assert!(host.sent().is_empty());
}

#[test]
fn results_and_errors_pass_byte_for_byte() {
    let mut host = start();
    for text in [r#"{ "n":1.10, "n":12345678901234567890123 }"#, "null", r#"[1e400]"#] {
        host.request(Client, "wait", empty());
        let sent = host.next();
        host.answer_text(&sent, Ok(text));
        assert_eq!(host.next().text(), text);
        host.request(Client, "wait", empty());
        let sent = host.next();
        host.answer_text(&sent, Err(text));
        let answer = host.next();
        assert_eq!((answer.kind(), answer.text()), (Kind::Error, text));
    }
}

#[test]
fn a_request_can_be_carried_on_a_second_time() {
    let mut host = start();
    let ticket = host.request_text(Client, "retry", "[1]");
    let first = host.next();
    host.answer_error(&first, -1, "no");
    let second = host.next();
    assert_eq!(
        (second.kind(), second.ticket(), second.text()),
        (Kind::Request { id: None }, ticket, "[1]")
    );
}

#[test]
fn a_message_without_params_stays_without() {
    let mut host = start();
    host.request_bare(Client, "any");
    assert_eq!(host.next().text(), "");
}

#[test]
fn a_notification_that_takes_longer_is_kept_and_then_sent_or_released() {
    let mut host = start();
    let later = host.notify(Agent, "later", empty());
    let discarded = host.notify(Agent, "discard-later", empty());
    assert!(host.holds(later) && host.holds(discarded));
    host.advance(Duration::from_millis(5));
    let sent = host.sent();
    assert_eq!((sent.len(), sent[0].ticket()), (1, later));
    assert!(!host.holds(later) && !host.holds(discarded));

    let now = host.notify(Agent, "discard", empty());
    assert!(!host.holds(now) && host.sent().is_empty());
    assert_eq!((host.waiting_handlers(), live_handles()), (0, 0));
}

#[test]
fn a_handler_may_go_on_after_it_has_passed_its_notification_on() {
    let mut host = start();
    let ticket = host.notify(Agent, "forward-and-work", empty());
    assert_eq!(host.next().ticket(), ticket);
    assert!(!host.holds(ticket));
    host.advance(Duration::from_millis(5));
    assert_eq!(host.next().method(), "worked");

    let ticket = host.notify(Agent, "discard-and-work", empty());
    assert!(!host.holds(ticket), "nothing behind it has to wait");
    host.advance(Duration::from_millis(5));
    assert_eq!(labels(&host.sent()), [(Client, "worked")]);
}

#[test]
fn errors_answer_requests_and_are_logged_for_notifications() {
    let mut host = start();
    host.request(Client, "swap", empty());
    assert_eq!(host.next().text(), r#"{"code":5,"message":"five","data":[1]}"#);
    let ticket = host.notify(Agent, "fail", empty());
    assert!(!host.holds(ticket) && host.sent().is_empty());
    let logs = host.logs();
    assert!(logs[0].0 == Level::Warn && logs[0].1.contains("no luck"), "{logs:?}");
}

#[test]
fn refusals_become_errors() {
    let mut host = start();
    host.deny(Agent, "secret");
    host.request(Client, "secret", empty());
    let error = host.next().error();
    assert!(error["message"].as_str().unwrap().contains("not allowed"), "{error}");

    host.limit_bytes(100);
    host.request(Client, "wait", empty());
    let sent = host.next();
    host.answer_text(&sent, Ok(&format!("\"{}\"", "x".repeat(200))));
    let error = host.next().error();
    assert!(error["message"].as_str().unwrap().contains("larger"), "{error}");

    host.limit_messages(1);
    host.request(Client, "both", empty());
    assert_eq!(
        labels(&host.sent()),
        [(Client, "one")],
        "the second of one turn is refused, and so is the error"
    );
    assert_eq!(live_handles(), 0);
}

#[test]
fn logs_reach_the_host() {
    let mut host = start();
    host.request(Client, "log", empty());
    assert_eq!(
        host.logs(),
        [(Level::Info, "one 1".to_owned()), (Level::Trace, "two".to_owned())]
    );
}

#[test]
fn a_session_cancel_after_its_prompt_has_left_is_passed_on() {
    let mut host = start();
    let params = serde_json::json!({"sessionId": "s1"});
    let prompt = host.request(Client, "session/prompt", params.clone());
    assert_eq!(host.next().ticket(), prompt);
    host.notify(Client, "session/cancel", params);
    assert_eq!(
        host.next().method(),
        "session/cancel",
        "the prompt is not held, so it is the real one"
    );
    host.request(Client, "cancelled", empty());
    assert_eq!(host.next().text(), "[]");
}

#[test]
fn a_copy_that_was_taken_for_a_notification_is_no_failure() {
    let mut host = start();
    let params = serde_json::json!({"sessionId": "s1"});
    let prompt = host.request(Client, "session/prompt", params.clone());
    assert_eq!(host.next().ticket(), prompt);
    // The prompt has left, so nothing tells the proxy that this is not the original.
    host.announce_session_cancel("s1");
    let cancel = host.notify(Client, "session/cancel", params);
    let sent = host.sent();
    assert_eq!(sent.iter().map(|sent| sent.ticket()).collect::<Vec<_>>(), [cancel]);
    let failures: Vec<_> = host
        .logs()
        .into_iter()
        .filter(|(level, _)| matches!(level, Level::Warn | Level::Error))
        .collect();
    assert_eq!(failures, []);
    assert_eq!(host.waiting_handlers(), 0);
}

#[test]
fn the_host_gets_no_answers_to_silly_requests() {
    let mut host = start();
    host.notify(Host, "host/unknown", empty());
    host.request(Host, "host/ask", empty());
    let answer = host.next();
    assert_eq!((answer.to(), answer.error()["code"].as_i64()), (Host, Some(-32601)));
    host.notify(Agent, "$/known", empty());
    assert_eq!(host.next().method(), "$/known");
}

#[test]
fn nothing_grows_with_the_number_of_messages() {
    let mut host = start();
    for _ in 0..10_000 {
        host.request(Client, "any", empty());
        host.notify(Agent, "session/update", empty());
        host.request(Client, "wait", empty());
        let sent = host.sent();
        host.answer(&sent[2], empty());
        host.sent();
    }
    assert_eq!((host.waiting_handlers(), live_handles()), (0, 0));
}
