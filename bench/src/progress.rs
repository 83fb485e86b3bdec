//! What is being done, on a terminal only.

use std::io::{IsTerminal, Write};

/// A line on standard error that is written over again and again.
pub(crate) struct Progress {
    shown: bool,
    colour: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let shown = std::io::stderr().is_terminal();
        let colour = shown && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { shown, colour }
    }

    /// Whether anybody sees it.
    pub(crate) fn is_shown(&self) -> bool {
        self.shown
    }

    pub(crate) fn say(&self, what: &str) {
        if self.shown {
            let (dim, plain) = if self.colour { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
            // A terminal that is gone is no reason to stop.
            let _ = write!(std::io::stderr(), "\r\x1b[K{dim}{what}{plain}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.say("");
    }
}
