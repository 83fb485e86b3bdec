//! The ledger's rules, without WebAssembly.

use super::size::PATIENCE;
use super::*;

fn ledger(grants: &[&str]) -> Ledger {
    let limits = Limits::default();
    let policy = Policy::new(grants.iter().map(|grant| grant.parse().unwrap()));
    Ledger::new(limits, Arc::new(policy), Arc::new(Record::new(&limits, true)))
}

/// The same for messages of 100 bytes.
fn small(grants: &[&str]) -> Ledger {
    let mut ledger = ledger(grants);
    ledger.limits.set(Limit::MessageSize, 100);
    ledger
}

fn turn(source: Peer, ticket: Ticket, message: Message) -> Turn {
    Turn {
        source,
        ticket,
        message,
        copy: false,
        closed: Vec::new(),
        replay: false,
        session: None,
    }
}

fn request(id: Option<RequestId>, on_behalf_of: Option<Ticket>) -> Message {
    Message::Request(Request {
        id,
        on_behalf_of,
        method: "m".into(),
        params: None,
    })
}

fn notification(on_behalf_of: Option<Ticket>) -> Message {
    Message::Notification(Notification {
        on_behalf_of,
        method: "n".into(),
        params: None,
    })
}

fn answer(id: u64) -> Message {
    Message::Response(Response {
        id,
        outcome: Ok(Text::trusted("null")),
    })
}

fn refused(result: std::result::Result<(), Refusal>) -> &'static str {
    match result {
        Ok(()) => "sent",
        Err(Refusal::UnknownId) => "unknown-id",
        Err(Refusal::Closed) => "closed",
        Err(Refusal::Flooded) => "flooded",
        Err(_) => "other",
    }
}

#[test]
fn what_is_refused_counts_and_whoever_goes_on_with_it_is_ended() {
    let mut ledger = ledger(&["read-prompts"]);
    let most = Limits::default().count(Limit::Messages);
    for turn_number in 0..2 {
        ledger.begin(&turn(Peer::Client, turn_number, request(None, None)));
        for _ in 0..most {
            assert_eq!(refused(ledger.send(Peer::Agent, notification(None), None)), "other");
        }
        for _ in most..most * PATIENCE {
            assert_eq!(refused(ledger.send(Peer::Agent, notification(None), None)), "flooded");
            assert_eq!(ledger.keeps_on(), Ok(()));
        }
        assert_eq!(refused(ledger.send(Peer::Agent, notification(None), None)), "flooded");
        assert_eq!(ledger.keeps_on(), Err(Flood(most)));
    }
    let denied: u64 = ledger
        .record
        .news()
        .unwrap()
        .denials
        .iter()
        .map(|(_, times)| times)
        .sum();
    assert_eq!(denied, 2 * most as u64);
}

#[test]
fn what_goes_on_as_it_came_is_never_too_large() {
    let mut ledger = small(&["everything"]);
    let large = || Some(Text::trusted(format!("[{}]", "1,".repeat(150) + "1")));
    let with = |mut message: Message, text: Option<Text>| {
        match &mut message {
            Message::Request(request) => request.params = text,
            Message::Notification(notification) => notification.params = text,
            Message::Response(response) => response.outcome = Ok(text.unwrap()),
        }
        message
    };
    let changed = || Some(Text::trusted(format!("[{}]", "2,".repeat(150) + "2")));
    ledger.begin(&turn(Peer::Client, 1, with(request(None, None), large())));
    let mut send = |to, message, text| refused(ledger.send(to, with(message, text), None));
    assert_eq!(send(Peer::Agent, request(Some(7), Some(1)), changed()), "other");
    assert_eq!(
        send(Peer::Agent, request(Some(7), None), large()),
        "other",
        "one of its own"
    );
    assert_eq!(send(Peer::Agent, request(Some(7), Some(1)), large()), "sent");
    assert_eq!(
        send(Peer::Agent, request(Some(8), Some(1)), large()),
        "other",
        "a second time"
    );
    ledger.begin(&turn(Peer::Agent, 2, with(answer(7), large())));
    let mut send = |to, message, text| refused(ledger.send(to, with(message, text), None));
    assert_eq!(send(Peer::Client, answer(1), changed()), "other");
    assert_eq!(send(Peer::Client, answer(1), large()), "sent");
    ledger.begin(&turn(Peer::Agent, 3, with(notification(None), large())));
    let mut send = |to, message, text| refused(ledger.send(to, with(message, text), None));
    assert_eq!(send(Peer::Client, notification(Some(3)), changed()), "other");
    assert_eq!(send(Peer::Client, notification(Some(3)), large()), "sent");
}

#[test]
fn a_request_is_passed_on_once_and_answered_once() {
    let mut ledger = ledger(&["everything"]);
    assert_eq!(
        refused(ledger.send(Peer::Agent, request(Some(1), None), None)),
        "closed"
    );
    ledger.begin(&turn(Peer::Client, 5, request(None, None)));
    assert_eq!(
        refused(ledger.send(Peer::Client, request(None, Some(5)), None)),
        "unknown-id"
    );
    assert_eq!(
        refused(ledger.send(Peer::Agent, request(None, Some(6)), None)),
        "unknown-id"
    );
    assert_eq!(
        refused(ledger.send(Peer::Agent, request(None, None), None)),
        "unknown-id"
    );
    assert_eq!(refused(ledger.send(Peer::Agent, request(None, Some(5)), None)), "sent");
    assert_eq!(
        refused(ledger.send(Peer::Agent, request(None, Some(5)), None)),
        "unknown-id"
    );
    assert_eq!(refused(ledger.send(Peer::Agent, answer(5), None)), "unknown-id");
    assert_eq!(refused(ledger.send(Peer::Client, answer(5), None)), "sent");
    assert_eq!(refused(ledger.send(Peer::Client, answer(5), None)), "unknown-id");
}

#[test]
fn own_ids_are_free_again_after_the_response() {
    let mut ledger = ledger(&["everything"]);
    ledger.begin(&turn(Peer::Client, 5, request(None, None)));
    assert_eq!(
        refused(ledger.send(Peer::Agent, request(Some(1), Some(5)), None)),
        "sent"
    );
    assert_eq!(
        refused(ledger.send(Peer::Host, request(Some(1), Some(5)), None)),
        "unknown-id"
    );
    ledger.begin(&turn(Peer::Agent, 6, answer(1)));
    assert_eq!(
        refused(ledger.send(Peer::Agent, request(Some(1), Some(5)), None)),
        "sent"
    );
}

#[test]
fn a_notification_is_spent_when_sent_on_done_or_released() {
    let mut ledger = ledger(&["everything"]);
    let delivered = turn(Peer::Agent, 7, notification(None));
    ledger.begin(&delivered);
    assert_eq!(refused(ledger.send(Peer::Agent, answer(7), None)), "unknown-id");
    assert_eq!(refused(ledger.send(Peer::Agent, notification(Some(7)), None)), "sent");
    assert_eq!(refused(ledger.send(Peer::Client, notification(Some(7)), None)), "sent");
    assert_eq!(
        refused(ledger.send(Peer::Client, notification(Some(7)), None)),
        "unknown-id"
    );
    let delivered = turn(Peer::Agent, 8, notification(None));
    ledger.begin(&delivered);
    assert_eq!(ledger.end(&delivered, Receipt::Done).0.len(), 2);
    ledger.begin(&turn(Peer::Agent, 9, notification(None)));
    assert_eq!(
        refused(ledger.send(Peer::Client, notification(Some(8)), None)),
        "unknown-id"
    );
}

#[test]
fn copies_and_closed_tickets_give_no_rights() {
    let mut ledger = ledger(&["everything"]);
    let mut copy = turn(Peer::Client, 3, request(None, None));
    copy.copy = true;
    ledger.begin(&copy);
    assert_eq!(refused(ledger.send(Peer::Client, answer(3), None)), "unknown-id");
    ledger.begin(&turn(Peer::Client, 4, request(None, None)));
    let mut next = turn(Peer::Client, 5, request(None, None));
    next.closed.push(4);
    ledger.begin(&next);
    assert_eq!(refused(ledger.send(Peer::Client, answer(4), None)), "unknown-id");
}

#[test]
fn one_turn_is_bounded() {
    let mut ledger = ledger(&["everything"]);
    ledger.begin(&turn(Peer::Client, 1, request(None, None)));
    for _ in 0..1_000 {
        assert_eq!(refused(ledger.send(Peer::Client, notification(None), None)), "sent");
    }
    assert_eq!(refused(ledger.send(Peer::Client, notification(None), None)), "flooded");
}

fn message(method: &str, id: Option<RequestId>, on_behalf_of: Option<Ticket>, params: &str) -> Message {
    Message::Request(Request {
        id,
        on_behalf_of,
        method: method.into(),
        params: Some(Text::trusted(params.to_owned())),
    })
}

fn update(on_behalf_of: Option<Ticket>, params: &str) -> Message {
    Message::Notification(Notification {
        on_behalf_of,
        method: "session/update".into(),
        params: Some(Text::trusted(params.to_owned())),
    })
}

fn response(id: u64, result: &str) -> Message {
    Message::Response(Response {
        id,
        outcome: Ok(Text::trusted(result.to_owned())),
    })
}

/// What left in the turn at hand, a line each.
fn left(ledger: &mut Ledger) -> Vec<String> {
    std::mem::take(&mut ledger.sent)
        .into_iter()
        .map(|sent| match sent {
            Sent::Message(to, message) => {
                let text = message.text().map(Text::to_text).unwrap_or_default();
                let what = match &message {
                    Message::Request(request) => format!("{} id {:?}", request.method, request.id),
                    Message::Notification(notification) => notification.method.to_string(),
                    Message::Response(response) => format!("answer {}", response.id),
                };
                format!("{}: {what} {text}", to.name())
            }
            Sent::Release(ticket) => format!("release {ticket}"),
        })
        .collect()
}

fn denials(ledger: &Ledger) -> Vec<String> {
    let news = ledger.record.news().unwrap_or_default();
    news.denials.into_iter().map(|(denial, _)| denial.reason).collect()
}

#[test]
fn an_answer_without_the_right_to_it_makes_the_original_go_on() {
    let mut ledger = ledger(&["intercept:agent:session/request_permission"]);
    let asked = r#"{"sessionId":"s","options":[]}"#;
    ledger.begin(&turn(
        Peer::Agent,
        5,
        message("session/request_permission", None, None, asked),
    ));
    assert_eq!(refused(ledger.send(Peer::Agent, response(5, "{}"), None)), "other");
    assert_eq!(
        left(&mut ledger),
        [format!("client: session/request_permission id None {asked}")]
    );
    assert!(denials(&ledger)[0].contains("decide-permissions"));
    let again = message("session/request_permission", None, Some(5), asked);
    assert_eq!(refused(ledger.send(Peer::Client, again, None)), "unknown-id");
}

#[test]
fn an_answer_that_was_changed_without_the_right_to_it_is_given_as_it_came() {
    for late in [false, true] {
        let mut ledger = ledger(&["intercept:client:session/prompt"]);
        let prompt = r#"{"sessionId":"s","prompt":[]}"#;
        ledger.begin(&turn(Peer::Client, 5, message("session/prompt", None, None, prompt)));
        let onward = message("session/prompt", Some(1), Some(5), prompt);
        assert_eq!(refused(ledger.send(Peer::Agent, onward, None)), "sent");
        left(&mut ledger);
        let given = [r#"client: answer 5 {"stopReason":"end_turn"}"#];
        if late {
            // It answers before the answer is there.
            assert_eq!(refused(ledger.send(Peer::Client, response(5, "{}"), None)), "other");
            assert_eq!(left(&mut ledger), [""; 0]);
        }
        ledger.begin(&turn(Peer::Agent, 6, response(1, r#"{"stopReason":"end_turn"}"#)));
        if !late {
            assert_eq!(refused(ledger.send(Peer::Client, response(5, "{}"), None)), "other");
        }
        assert_eq!(left(&mut ledger), given);
        assert_eq!(
            refused(ledger.send(Peer::Client, response(5, "{}"), None)),
            "unknown-id"
        );
    }
}

#[test]
fn an_answer_as_it_came_needs_no_right() {
    let mut ledger = ledger(&["intercept:client:session/prompt"]);
    ledger.begin(&turn(Peer::Client, 5, message("session/prompt", None, None, "{}")));
    let onward = message("session/prompt", Some(1), Some(5), r#"{"prompt":[1]}"#);
    assert_eq!(refused(ledger.send(Peer::Agent, onward, None)), "sent");
    ledger.begin(&turn(Peer::Agent, 6, response(1, r#"{"a":1.10}"#)));
    assert_eq!(
        refused(ledger.send(Peer::Client, response(5, r#"{"a":1.10}"#), None)),
        "sent"
    );
    assert_eq!(denials(&ledger), [""; 0]);
    assert_eq!(
        ledger.record.take_changed(),
        [(Peer::Client, "session/prompt".into(), 1)]
    );
}

#[test]
fn a_change_without_the_right_to_it_makes_the_original_go_on() {
    let mut ledger = ledger(&["answer:client:session/prompt"]);
    let prompt = r#"{"sessionId":"s","prompt":[]}"#;
    ledger.begin(&turn(Peer::Client, 5, message("session/prompt", None, None, prompt)));
    let changed = message("session/prompt", Some(1), Some(5), r#"{"sessionId":"s","prompt":[1]}"#);
    assert_eq!(refused(ledger.send(Peer::Agent, changed, None)), "other");
    assert_eq!(left(&mut ledger), [format!("agent: session/prompt id None {prompt}")]);
    assert!(denials(&ledger)[0].contains("change-prompts"));
}

#[test]
fn another_session_is_out_of_reach() {
    let mut ledger = ledger(&["change-answers"]);
    let mut delivered = turn(Peer::Agent, 5, update(None, r#"{"sessionId":"a"}"#));
    delivered.session = Some("a".into());
    ledger.begin(&delivered);
    assert_eq!(
        refused(ledger.send(Peer::Client, update(Some(5), r#"{"sessionId":"b"}"#), None)),
        "other"
    );
    assert_eq!(left(&mut ledger), [r#"client: session/update {"sessionId":"a"}"#]);
    for (params, verdict) in [
        (r#"{"sessionId":"a"}"#, "sent"),
        (r#"{"sessionId":"b"}"#, "other"),
        (r#"{"sessionId":"a","sessionId":"b"}"#, "other"),
    ] {
        let sent = ledger.send(Peer::Client, update(None, params), None);
        assert_eq!(refused(sent), verdict, "{params}");
    }
}

#[test]
fn what_was_sent_on_once_is_of_the_proxy_s_own_making_the_second_time() {
    let mut ledger = ledger(&["change-prompts"]);
    ledger.begin(&turn(Peer::Client, 5, message("session/prompt", None, None, "{}")));
    assert_eq!(
        refused(ledger.send(Peer::Agent, message("session/prompt", Some(1), Some(5), "{}"), None)),
        "sent"
    );
    assert_eq!(
        refused(ledger.send(Peer::Agent, message("session/prompt", Some(2), Some(5), "{}"), None)),
        "other"
    );
    assert!(denials(&ledger)[0].contains("own-sessions"));
}

#[test]
fn the_host_s_services_want_grants_where_they_reach_further_than_the_proxy() {
    let mut ledger = ledger(&["file:AGENTS.md"]);
    ledger.record.show(&"a".into());
    ledger.begin(&turn(Peer::Client, 5, request(None, None)));
    let mut ask = |method: &str, params: &str| {
        let id = ledger.requests.len() as u64;
        refused(ledger.send(Peer::Host, message(method, Some(id), None, params), None))
    };
    assert_eq!(ask("host/sleep", "{}"), "sent");
    for (session, path, outcome) in [
        ("a", "AGENTS.md", "sent"),
        ("a", "./AGENTS.md", "sent"),
        ("a", ".env", "other"),
        ("b", "AGENTS.md", "other"),
    ] {
        let params = format!(r#"{{"sessionId":"{session}","path":"{path}"}}"#);
        assert_eq!(ask("host/file/read", &params), outcome, "{params}");
    }
    for (session, path, outcome) in [
        ("a", "", "sent"),
        ("a", "./", "sent"),
        ("a", "src", "other"),
        ("a", "..", "other"),
        ("b", "", "other"),
    ] {
        let params = format!(r#"{{"sessionId":"{session}","path":"{path}"}}"#);
        assert_eq!(ask("host/file/list", &params), outcome, "{params}");
    }
    assert_eq!(ask("host/file/list", r#"{"sessionId":"a"}"#), "sent");
    assert_eq!(ask("host/state/get", r#"{"key":"a"}"#), "other");
    assert_eq!(ask("host/unheard_of", "{}"), "sent");
}

#[test]
fn what_is_sent_in_the_place_of_a_message_wants_the_right_to_end_that() {
    let mut ledger = ledger(&["answer:client:note", "originate:agent:_x"]);
    let note = |ticket| {
        turn(
            Peer::Client,
            ticket,
            Message::Notification(Notification {
                on_behalf_of: None,
                method: "note".into(),
                params: None,
            }),
        )
    };
    let passed = |sent: Vec<Sent>| {
        sent.iter()
            .any(|sent| matches!(sent, Sent::Message(Peer::Agent, message) if format!("{message:?}").contains("note")))
    };
    let dropped = note(5);
    ledger.begin(&dropped);
    assert!(passed(ledger.end(&dropped, Receipt::Done).0));
    let released = note(6);
    ledger.begin(&released);
    ledger.release(6);
    assert!(passed(ledger.end(&released, Receipt::Kept).0));
    let replaced = note(7);
    ledger.begin(&replaced);
    assert_eq!(
        refused(ledger.send(Peer::Agent, message("_x", Some(1), Some(7), "{}"), None)),
        "other"
    );
    assert!(passed(ledger.end(&replaced, Receipt::Done).0));
    let denied = ledger.record.news().unwrap_or_default().denials;
    assert_eq!(denied.iter().map(|(_, times)| times).sum::<u64>(), 3);
}

#[test]
fn a_message_of_its_own_has_a_short_method() {
    let mut ledger = ledger(&[]);
    ledger.begin(&turn(Peer::Client, 5, request(None, None)));
    let long = message(&"m".repeat(MAX_METHOD + 1), Some(1), None, "{}");
    assert!(matches!(ledger.send(Peer::Agent, long, None), Err(Refusal::TooLarge)));
    assert!(ledger.record.news().is_none(), "it costs no memory");
    let short = message(&"m".repeat(MAX_METHOD), Some(1), None, "{}");
    assert!(matches!(ledger.send(Peer::Agent, short, None), Err(Refusal::Denied(_))));
}

#[test]
fn text_that_came_with_another_delivery_is_looked_at() {
    for origin in [None, Some(4)] {
        let mut ledger = ledger(&["change-answers"]);
        ledger.begin(&turn(Peer::Agent, 5, update(None, r#"{"sessionId":"a"}"#)));
        let other = update(Some(5), r#"{"sessionId":"b"}"#);
        assert_eq!(refused(ledger.send(Peer::Client, other, origin)), "other");
    }
}

#[test]
fn what_was_given_up_may_be_answered_with_an_error() {
    let mut ledger = ledger(&["intercept:client:session/prompt"]);
    ledger.begin(&turn(Peer::Client, 5, message("session/prompt", None, None, "{}")));
    let cancel = Message::Notification(Notification {
        on_behalf_of: None,
        method: "$/cancel_request".into(),
        params: Some(Text::trusted(r#"{"requestId":5}"#)),
    });
    let mut told = turn(Peer::Client, 6, cancel);
    told.copy = true;
    ledger.begin(&told);
    assert_eq!(refused(ledger.send(Peer::Client, response(5, "{}"), None)), "other");
    ledger.begin(&turn(Peer::Client, 7, message("session/prompt", None, None, "{}")));
    ledger.begin(&Turn {
        ticket: 8,
        ..told.clone()
    });
    let cancelled = Message::Response(Response {
        id: 7,
        outcome: Err(Text::trusted(r#"{"code":-32800,"message":"x"}"#)),
    });
    assert_eq!(
        refused(ledger.send(Peer::Client, cancelled.clone(), None)),
        "other",
        "it was not this one"
    );
    let mut told = told;
    if let Message::Notification(notification) = &mut told.message {
        notification.params = Some(Text::trusted(r#"{"requestId":9}"#));
    }
    ledger.begin(&turn(Peer::Client, 9, message("session/prompt", None, None, "{}")));
    ledger.begin(&told);
    let Message::Response(cancelled) = cancelled else {
        return;
    };
    let cancelled = Message::Response(Response { id: 9, ..cancelled });
    assert_eq!(refused(ledger.send(Peer::Client, cancelled, None)), "sent");
}
