//! `consort check`: a component tried out in a cage.

use consort_tests::Directory;
use consort_tests::command::{Outcome, run};
use consort_tests::guests::{guest, proxy};
use serde_json::Value;
use std::path::Path;

fn check(options: &[&str], file: &Path) -> Outcome {
    run(&[
        &["check", "--time", "600"],
        options,
        &[file.to_str().expect("paths are UTF-8")],
    ]
    .concat())
}

fn report(options: &[&str], file: &Path) -> (Value, Option<i32>) {
    let outcome = check(&[&["--json"], options].concat(), file);
    let report = serde_json::from_str(&outcome.output).unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
    (report, outcome.status)
}

#[test]
fn the_shipped_proxies_go_through_without_a_fault() {
    for name in ["context", "passthrough", "permission", "redact"] {
        let (report, status) = report(&["--grant", "everything", "--limit", "cpu=60 s"], &proxy(name));
        assert_eq!(report["faults"], serde_json::json!([]), "{name}");
        assert_eq!(status, Some(0), "{name}");
        assert!(report["memory"].as_u64() > Some(0), "{name}: {report}");
        assert!(report["timings"][0]["medianMicroseconds"].is_u64(), "{name}: {report}");
    }
}

#[test]
fn what_a_proxy_did_is_told_and_what_it_was_denied() {
    let outcome = check(&[], &guest("arrow"));
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    for words in [
        "changes the agent's answers",
        "takes session/update of the agent",
        "session/update from the agent (",
        "faults     none",
        "memory",
    ] {
        assert!(outcome.output.contains(words), "{words}: {}", outcome.output);
    }
    let (report, _) = report(&[], &proxy("permission"));
    let denied = report["denied"][0]["reason"].as_str().unwrap_or_default();
    assert!(denied.contains("decide-permissions"), "{report}");
    assert_eq!(report["interests"], serde_json::json!([]));
}

#[test]
fn a_proxy_that_fails_is_told_with_the_part_in_which_it_did() {
    let config = r#"{"on": "session/update", "source": "agent", "when": "handler", "text": "Done"}"#;
    let options = ["--grant", "everything", "--proxy-config", config];
    let outcome = check(&options, &guest("trap"));
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    assert!(outcome.output.contains("(trap)"), "{}", outcome.output);
    let (report, _) = report(&options, &guest("trap"));
    assert_eq!(report["faults"][0]["class"], "trap", "{report}");
    assert!(
        report["faults"][0]["part"]
            .as_str()
            .is_some_and(|part| !part.is_empty())
    );
}

/// The parts of the script in which a proxy had a fault, and the classes of its faults.
fn faults(report: &Value) -> (Vec<&str>, Vec<&str>) {
    let faults = report["faults"].as_array().map(Vec::as_slice).unwrap_or_default();
    let all = |key: &str| faults.iter().filter_map(|fault| fault[key].as_str()).collect();
    (all("part"), all("class"))
}

#[test]
fn a_proxy_that_always_fails_is_started_anew_for_each_part() {
    let options = ["--grant", "everything", "--proxy-config", r#"{"do": "always"}"#];
    let (report, status) = report(&options, &guest("hostile"));
    assert_eq!(status, Some(1));
    let (parts, classes) = faults(&report);
    assert!(parts.len() > 8 && parts.contains(&"many messages at once"), "{parts:?}");
    assert!(classes.iter().all(|class| *class == "trap"), "{classes:?}");
    assert_eq!(report["notPlayed"], serde_json::json!([]));
}

#[test]
fn a_turn_takes_two_seconds_at_most_unless_it_is_given_more_or_less() {
    let config = r#"{"on": "session/list"}"#;
    let options = ["--grant", "everything", "--proxy-config", config];
    let less = ["--limit", "time=100 ms"];
    for (options, words) in [
        (&options[..], "within 2 s"),
        (&[&options[..], &less].concat()[..], "within 100 ms"),
    ] {
        let (report, _) = report(options, &guest("spin"));
        assert_eq!(faults(&report).1, ["timeout"], "{report}");
        let cause = report["faults"][0]["cause"].as_str().unwrap_or_default();
        assert!(cause.contains(words), "{cause}");
    }
}

#[test]
fn what_cannot_be_tried_is_told_in_a_sentence() {
    let directory = Directory::new();
    let text = directory.file("text.wasm", "no component");
    let outcome = check(&[], &text);
    assert_eq!((outcome.status, outcome.output.as_str()), (Some(1), ""));
    assert!(outcome.error.contains("is text"), "{}", outcome.error);
    let outcome = check(&["--proxy-config", r#"{"nonsense": 1}"#], &proxy("redact"));
    assert_eq!(outcome.status, Some(1));
    assert!(outcome.error.contains("configuration"), "{}", outcome.error);
    for (options, words) in [
        (&["--grant", "rule-the-world"][..], "there is no grant"),
        (&["--limit", "memory=much"], "memory"),
        (&["--limit", "luck=1"], "no limit is named"),
        (&["--proxy-config", "{"], "not JSON"),
    ] {
        let outcome = check(options, &proxy("redact"));
        assert_ne!(outcome.status, Some(0));
        assert!(outcome.error.contains(words), "{words}: {}", outcome.error);
    }
}

#[test]
fn a_proxy_that_does_nothing_about_messages_has_a_fault_and_consort_has_none() {
    let config = r#"{"seed": 1, "mark": "a", "rate": 1000, "kinds": ["hold"]}"#;
    let (report, status) = report(&["--proxy-config", config], &guest("chaotic"));
    let faults = report["faults"].as_array().expect("they are a list");
    assert!(faults.iter().any(|fault| fault["class"] == "timeout"), "{faults:?}");
    assert!(faults.iter().all(|fault| fault["class"] != "host"), "{faults:?}");
    assert_eq!(status, Some(1));
    let outcome = check(&["--proxy-config", config], &guest("chaotic"));
    assert!(!outcome.output.contains("a fault of Consort"), "{}", outcome.output);
}
