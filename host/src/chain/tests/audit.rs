//! What the chain has taken down of a proxy that fails.

use crate::audit::{Audit, Level};
use crate::chain::Effect;
use crate::chain::bench::{Bench, everything, pass, prompt, registered};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_proxy_that_was_off_is_retried() {
    let file = std::env::temp_dir().join(format!("consort-chain-audit-{}.jsonl", std::process::id()));
    // What a test that failed has left under this number.
    let _ = std::fs::remove_file(&file);
    let audit = Arc::new(Audit::start(&file, Level::Events).unwrap());
    let recorder = audit.connection();
    let mut bench = Bench::new(vec![everything()]);
    bench.router.audit = recorder.clone();
    let mut wait = Duration::ZERO;
    while wait < Duration::from_secs(60) {
        bench.client(prompt(1, "a"));
        let (index, _) = bench.turn();
        bench.trap(index);
        let Some(Effect::Restart { after, .. }) = bench.effect() else {
            panic!("it is made anew");
        };
        wait = after;
        bench.router.proxy_restarted(0, Ok(registered(everything())));
        let (index, turn) = bench.turn();
        let sent = pass(&turn);
        bench.done(index, sent);
    }
    drop(bench);
    recorder.ended();
    audit.flush();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let events: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["event"].to_string())
        .collect();
    let mut expected = ["\"failed\"", "\"restarted\""].repeat(6);
    expected.extend([
        "\"failed\"",
        "\"bypassed\"",
        "\"retried\"",
        "\"restarted\"",
        "\"ended\"",
    ]);
    assert_eq!(events, expected);
}
