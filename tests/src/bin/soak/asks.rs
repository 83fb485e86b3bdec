//! What the client answers to requests, and when.

use crate::script::Random;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Answers that wait for their time.
#[derive(Default)]
pub(crate) struct Answers {
    due: BTreeMap<(Instant, u64), Value>,
    count: u64,
}

impl Answers {
    /// Plans the answer to a request.
    pub(crate) fn plan(&mut self, request: &Value, random: &mut Random) {
        let params = &request["params"];
        let mut result = match request["method"].as_str() {
            Some("fs/read_text_file") => {
                let size = match random.below(500) {
                    0 => 1_000_000,
                    _ => random.below(3_000),
                };
                json!({"content": "y".repeat(usize::try_from(size).unwrap_or(0))})
            }
            _ => {
                let option = if random.below(20) == 0 { "reject" } else { "allow" };
                json!({"outcome": {"outcome": "selected", "optionId": option}})
            }
        };
        result["place"] = params["place"].clone();
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        let wait = match random.below(20) {
            0 => 200,
            1..12 => random.below(20),
            _ => 0,
        };
        self.count += 1;
        let due = Instant::now() + Duration::from_millis(wait);
        self.due.insert((due, self.count), answer);
    }

    /// The next answer whose time has come.
    pub(crate) fn take(&mut self) -> Option<Value> {
        let entry = self.due.first_entry()?;
        (entry.key().0 <= Instant::now()).then(|| entry.remove())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }
}
