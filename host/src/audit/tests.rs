//! The audit by itself, one rule a test.

use super::*;
use crate::fault::{Class, Phase};
use std::fs;

/// A folder that is removed at the end, and the file in it.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("consort-audit-{test}-{}", std::process::id()));
        // What a test that failed has left under this number.
        let _ = fs::remove_dir_all(&folder);
        Self(folder)
    }

    fn start(&self, level: Level) -> Arc<Audit> {
        Arc::new(Audit::start(&self.0.join("audit.jsonl"), level).unwrap())
    }

    fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.0.join("audit.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn events(&self) -> Vec<String> {
        let name = |line: &Value| line["event"].as_str().unwrap().to_owned();
        self.lines().iter().map(name).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn each_event_is_a_line_with_time_process_and_connection() {
    let folder = Folder::new("events");
    let audit = folder.start(Level::Events);
    let (one, other) = (audit.connection(), audit.connection());
    one.started(Some("p"), json!({ "file": "p.wasm", "grants": ["read-prompts"] }));
    one.granted("p", json!({ "grant": "read-prompts" }));
    one.failed("p", &Fault::new(Class::Trap, Phase::Receive, "it panicked\nhere"));
    one.restarted("p");
    one.off("p", OnFailure::Closed, Duration::from_secs(60));
    one.retried("p");
    other.ended();
    one.ended();
    one.ended();
    audit.flush();
    let lines = folder.lines();
    assert_eq!(
        folder.events(),
        [
            "started",
            "granted",
            "failed",
            "restarted",
            "closed",
            "retried",
            "ended",
            "ended"
        ]
    );
    for line in &lines {
        assert_eq!(line["pid"], std::process::id(), "{line}");
        assert!(line["time"].as_str().unwrap() > "2024-", "{line}");
    }
    assert_eq!(lines[0]["grants"], json!(["read-prompts"]));
    assert_eq!(
        (&lines[2]["phase"], &lines[2]["class"], &lines[2]["cause"]),
        (&json!("receive"), &json!("trap"), &json!("it panicked\nhere"))
    );
    assert!(lines[4]["until"].as_str().unwrap() > lines[4]["time"].as_str().unwrap());
    assert_eq!(lines[7]["connection"], lines[0]["connection"]);
    assert_ne!(lines[6]["connection"], lines[0]["connection"]);
}

#[test]
fn what_was_counted_is_written_at_the_end() {
    let folder = Folder::new("counted");
    let audit = folder.start(Level::Events);
    let recorder = audit.connection();
    for _ in 0..5 {
        recorder.denied("p", "terminal/create", "not granted", 1);
        recorder.changes("p", "session/prompt", Peer::Agent, 1);
        recorder.shut_out("p", "session/update");
    }
    // By a signal, as far as it can tell.
    drop(recorder);
    drop(audit);
    let lines = folder.lines();
    let counts: Vec<_> = lines
        .iter()
        .map(|line| (line["event"].as_str().unwrap(), line["count"].as_u64()))
        .collect();
    assert_eq!(&counts[..2], [("denied", Some(1)), ("shut-out", Some(1))]);
    let mut rest = counts[2..5].to_vec();
    rest.sort_unstable();
    assert_eq!(rest, [("changes", Some(5)), ("denied", Some(4)), ("shut-out", Some(4))]);
    assert_eq!((counts[5], &lines[5]["early"]), (("ended", None), &json!(true)));
}

#[test]
fn digests_of_changes_are_written_if_they_are_asked_for() {
    let folder = Folder::new("digests");
    let audit = folder.start(Level::Changes);
    let recorder = audit.connection();
    let before = Text::trusted("abc");
    recorder.digests("p", "session/prompt", Peer::Agent, Some(&before), None);
    recorder.ended();
    audit.flush();
    let lines = folder.lines();
    assert_eq!(folder.events(), ["changed", "ended"]);
    assert_eq!((&lines[0]["to"], &lines[0]["after"]), (&json!("agent"), &Value::Null));
    assert_eq!(
        lines[0]["before"],
        json!({"bytes": 3, "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"})
    );
}

#[test]
fn what_does_not_fit_is_dropped_and_counted() {
    let folder = Folder::new("full");
    let audit = folder.start(Level::Changes);
    let recorder = audit.connection();
    // As if the disk had stalled with as much waiting.
    audit.shared.lines.store(MAX_LINES, Ordering::Relaxed);
    audit.shared.texts.store(MAX_TEXTS, Ordering::Relaxed);
    recorder.restarted("p");
    recorder.digests("p", "m", Peer::Client, None, None);
    audit.shared.lines.store(0, Ordering::Relaxed);
    recorder.retried("p");
    audit.flush();
    assert_eq!(folder.events(), ["dropped", "retried"]);
    assert_eq!(folder.lines()[0]["count"], 2);
}

#[test]
fn a_file_that_cannot_be_written_does_no_harm() {
    let audit = Arc::new(Audit::start(Path::new("/dev/null/audit.jsonl"), Level::Events).unwrap());
    audit.connection().ended();
    audit.flush();
    assert!(audit.shared.dropped.load(Ordering::Relaxed) > 0);
}

#[test]
fn without_a_file_nothing_is_recorded() {
    let recorder = Recorder::default();
    recorder.started(None, Value::Null);
    recorder.denied("p", "m", "d", 1);
    recorder.digests("p", "m", Peer::Agent, None, None);
    recorder.ended();
}
