//! What was said in a test, for when it fails.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// How many of the last lines are kept, and how much of each one, in bytes.
const LINES: usize = 100;
const LENGTH: usize = 400;

/// The last lines of a conversation. Clones write to the same transcript.
#[derive(Clone, Debug, Default)]
pub struct Transcript(Arc<Mutex<Vec<String>>>);

impl Transcript {
    /// Notes a line; `who` says who said what to whom.
    pub fn note(&self, who: &str, line: &[u8]) {
        let shown = String::from_utf8_lossy(&line[..line.len().min(LENGTH)]);
        let shown = shown.trim_end().escape_debug().to_string().replace("\\\"", "\"");
        let more = if line.len() > LENGTH {
            format!("… ({} bytes)", line.len())
        } else {
            String::new()
        };
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES {
            lines.remove(0);
        }
        lines.push(format!("{who} {shown}{more}"));
    }
}

impl fmt::Display for Transcript {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(formatter, "--- the conversation until here:")?;
        for line in &*lines {
            writeln!(formatter, "{line}")?;
        }
        write!(formatter, "---")
    }
}
