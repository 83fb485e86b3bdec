//! What proxies say, as log lines: cut to length, escaped, and at a limited rate. Never reaches standard output.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::Level;

/// Bytes of output that are taken at once, whether or not they may be written.
pub(crate) const LOG_BYTES: usize = 64 * 1024;

/// Bytes of a proxy's last words that go into an error.
const LAST_WORDS: usize = 300;

/// How long before a fault last words belong to it.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// Bytes that a log line takes beside its text: the time, the level, the name.
const LINE_COST: usize = 64;

/// Bytes of one log line; the rest is cut.
const LOG_LINE: usize = 4 * 1024;

/// The log of one proxy.
#[derive(Clone, Debug)]
pub struct ProxyLog {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    proxy: Arc<str>,
    line: Vec<u8>,
    /// The last line of its output, and when it came.
    last: Option<(Instant, String)>,
    /// Bytes of log lines that it may write at once, and each second.
    rate: usize,
    allowed: usize,
    refilled: Instant,
    dropped: usize,
}

impl ProxyLog {
    /// The log of the proxy with this name, which may write so many bytes a second.
    pub fn new(proxy: Arc<str>, rate: usize) -> Self {
        Self {
            shared: Arc::new(Mutex::new(Shared {
                proxy,
                line: Vec::new(),
                last: None,
                rate,
                allowed: rate,
                refilled: Instant::now(),
                dropped: 0,
            })),
        }
    }

    /// Takes raw output; lines come out when they are complete.
    pub fn output(&self, bytes: &[u8]) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let ends = part.ends_with(b"\n");
            let room = LOG_LINE.saturating_sub(shared.line.len());
            shared.line.extend_from_slice(&part[..part.len().min(room)]);
            if ends {
                shared.flush();
            }
        }
    }

    /// What the proxy has just said on its own output: the message of a panic, if it has died of one.
    pub fn last_words(&self) -> Option<String> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let (when, text) = shared.last.as_ref()?;
        (when.elapsed() < LAST_MOMENT && !text.is_empty()).then(|| text.clone())
    }

    /// Takes one message as one line.
    pub fn message(&self, level: Level, text: &str) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let cut = text.floor_char_boundary(LOG_LINE);
        shared.write(level, &text[..cut]);
    }

    /// Writes out a line that has no end yet: what a proxy says last before it dies.
    pub fn flush(&self) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if !shared.line.is_empty() {
            shared.flush();
        }
    }
}

impl Shared {
    fn flush(&mut self) {
        let line = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        let shown = text.floor_char_boundary(LAST_WORDS);
        self.last = Some((Instant::now(), printable(&text[..shown])));
        self.write(Level::WARN, text);
    }

    fn write(&mut self, level: Level, text: &str) {
        if text.is_empty() {
            return;
        }
        let now = Instant::now();
        let refill = now.duration_since(self.refilled).as_millis() as usize * self.rate / 1000;
        if refill > 0 {
            self.allowed = self.allowed.saturating_add(refill).min(self.rate);
            self.refilled = now;
        }
        let text = printable(text);
        let cost = text.len() + LINE_COST;
        if cost > self.allowed {
            self.dropped += 1;
            return;
        }
        self.allowed -= cost;
        if self.dropped > 0 {
            tracing::warn!(target: "proxy", "{}: {} lines of its output were dropped", self.proxy, self.dropped);
            self.dropped = 0;
        }
        match level {
            Level::ERROR => tracing::error!(target: "proxy", "{}: {text}", self.proxy),
            Level::WARN => tracing::warn!(target: "proxy", "{}: {text}", self.proxy),
            Level::INFO => tracing::info!(target: "proxy", "{}: {text}", self.proxy),
            Level::DEBUG => tracing::debug!(target: "proxy", "{}: {text}", self.proxy),
            Level::TRACE => tracing::trace!(target: "proxy", "{}: {text}", self.proxy),
        }
    }
}

/// Characters of a name that somebody else has chosen.
const MAX_NAME: usize = 200;

/// A name that somebody else has chosen, for a line: escaped, and no longer than a person would read.
pub(crate) fn named(name: &str) -> String {
    match name.char_indices().nth(MAX_NAME) {
        Some((end, _)) => format!("{}…", printable(&name[..end])),
        None => printable(name),
    }
}

/// Whether a character is no sign to be seen: it moves a cursor, ends a line, or turns the direction of what follows.
pub(crate) fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Escapes what is not to be seen, so that a line stays one line, moves no cursor, and reads as it is written.
pub(crate) fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if is_unseen(character) && character != '\t' {
            safe.extend(character.escape_default());
        } else {
            safe.push(character);
        }
    }
    safe
}
