//! Turns that are taken before the chain asks for them.

use super::super::bench::{Bench, chunk, everything, incoming, pass, prompt};
use crate::message::{Message, Ticket, Turn};
use serde_json::json;

fn tickets(turns: &[Turn]) -> Vec<Ticket> {
    turns.iter().map(|turn| turn.ticket).collect()
}

#[test]
fn what_waits_behind_a_notification_comes_next_under_the_tickets_told() {
    let mut bench = Bench::new(vec![everything()]);
    for number in 0..5 {
        bench.agent(chunk("s", number));
    }
    let (index, first) = bench.turn();
    assert!(
        bench.router.turns_ahead(index, &first, 9..=9, 1 << 20).is_empty(),
        "fewer than are worth it"
    );
    assert!(
        bench.router.turns_ahead(index, &first, 1..=9, 10).is_empty(),
        "no more bytes than that"
    );
    let ahead = bench.router.turns_ahead(index, &first, 1..=3, 1 << 20);
    assert_eq!(ahead.len(), 3);
    assert!(
        ahead
            .iter()
            .all(|turn| turn.source == first.source && turn.session == first.session)
    );
    let numbers: Vec<_> = ahead
        .iter()
        .filter_map(|turn| turn.message.text())
        .map(|text| text.to_text())
        .collect();
    assert!(
        numbers[0].contains("\"n\":1") && numbers[2].contains("\"n\":3"),
        "{numbers:?}"
    );
    assert!(
        bench.router.turns_ahead(index, &first, 1..=3, 1 << 20).is_empty(),
        "one row at a time"
    );
    // What comes meanwhile comes after them, wherever it waits.
    bench.client(prompt(1, "t"));
    let mut turn = first;
    for next in &ahead {
        assert!(bench.router.may_come(index, next.ticket));
        bench.done(index, pass(&turn));
        assert!(!bench.router.may_come(index, turn.ticket));
        (_, turn) = bench.turn();
        assert_eq!(turn.ticket, next.ticket);
    }
    bench.done(index, pass(&turn));
    let (_, turn) = bench.turn();
    assert!(matches!(turn.message, Message::Request(_)), "then what had come");
    bench.done(index, pass(&turn));
    bench.pass_all();
    assert_eq!(bench.at_client().len(), 5);
}

#[test]
fn what_was_not_taken_of_a_row_waits_for_its_turn_as_ever() {
    let mut bench = Bench::new(vec![everything()]);
    for number in 0..4 {
        bench.agent(chunk("s", number));
    }
    let (index, first) = bench.turn();
    let ahead = tickets(&bench.router.turns_ahead(index, &first, 1..=9, 1 << 20));
    bench.client(prompt(1, "t"));
    bench.router.row_over(index, |ticket| ticket == ahead[0]);
    bench.done(index, pass(&first));
    let (_, second) = bench.turn();
    assert_eq!(second.ticket, ahead[0]);
    bench.done(index, pass(&second));
    let (_, turn) = bench.turn();
    assert!(matches!(turn.message, Message::Request(_)), "it had come before");
    bench.done(index, pass(&turn));
    bench.pass_all();
    assert_eq!(bench.at_client().len(), 4);
}

#[test]
fn what_has_ended_is_told_to_the_instance_and_not_to_a_turn_that_it_had_before() {
    let mut bench = Bench::new(vec![everything()]);
    for number in 0..2 {
        bench.agent(chunk("s", number));
    }
    bench.client(prompt(1, "t"));
    let (index, first) = bench.turn();
    bench.done(index, pass(&first));
    let (_, asked) = bench.turn();
    assert!(matches!(asked.message, Message::Request(_)));
    bench.done(index, pass(&asked));
    let id = bench.at_agent()[0]["id"].clone();
    bench.agent(json!({"id": id, "result": {}}));
    let (_, mut second) = bench.turn();
    assert_eq!(second.closed, [asked.ticket]);
    bench.router.tell_later(index, std::mem::take(&mut second.closed));
    bench.done(index, pass(&second));
    bench.agent(chunk("s", 3));
    let (_, third) = bench.turn();
    assert_eq!(third.closed, [asked.ticket]);
}

#[test]
fn nothing_is_taken_ahead_of_what_may_be_held() {
    let mut bench = Bench::new(vec![everything()]);
    bench.client(prompt(1, "s"));
    bench.client(chunk("s", 1));
    let (index, turn) = bench.turn();
    assert!(matches!(turn.message, Message::Request(_)));
    assert!(
        bench.router.turns_ahead(index, &turn, 1..=9, 1 << 20).is_empty(),
        "behind a request"
    );
    bench.done(index, pass(&turn));
    bench.pass_all();
    bench.agent(chunk("s", 2));
    let (index, turn) = bench.turn();
    bench.kept(index, Vec::new());
    bench.agent(chunk("s", 3));
    bench.agent(chunk("t", 4));
    let (index, other) = bench.turn();
    assert!(
        bench.router.turns_ahead(index, &other, 1..=9, 1 << 20).is_empty(),
        "behind what is kept"
    );
    assert!(bench.router.may_come(index, turn.ticket));
}

#[test]
fn after_a_fault_the_message_does_not_come_any_more_and_those_behind_it_do() {
    let mut bench = Bench::new(vec![everything()]);
    for number in 0..3 {
        bench.agent(chunk("s", number));
    }
    let (index, first) = bench.turn();
    let ahead = bench.router.turns_ahead(index, &first, 1..=9, 1 << 20);
    bench.trap(index);
    assert_eq!(bench.at_client().len(), 1, "the message of the failed turn");
    assert!(!bench.router.may_come(index, first.ticket));
    assert_eq!(ahead.len(), 2);
    assert!(
        ahead.iter().all(|turn| bench.router.may_come(index, turn.ticket)),
        "the new instance gets them"
    );
}

#[test]
fn only_what_gets_to_no_inbox_is_taken_in_together() {
    let mut bench = Bench::new(vec![everything(), Vec::new(), everything(), Vec::new()]);
    let waits = |bench: &Bench, value| bench.router.would_wait(&incoming(&value));
    assert!(!waits(&bench, chunk("s", 1)), "nothing is held");
    bench.agent(chunk("s", 1));
    assert!(waits(&bench, chunk("s", 2)), "past whoever is not interested");
    assert!(!waits(&bench, chunk("t", 3)), "another session gets to the inbox");
    assert!(!waits(&bench, prompt(4, "s")), "so may a request");
    let (index, turn) = bench.turn();
    bench.done(index, pass(&turn));
    assert!(!waits(&bench, chunk("s", 5)), "the last proxy is free again");
}
