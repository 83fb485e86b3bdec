//! Puts files such as `AGENTS.md`, and the date, in front of the first prompt of a session, or of every prompt.
//!
//! Configuration, with what holds if it says nothing:
//!
//! ```json
//! {"files": ["AGENTS.md"], "date": true, "every": "first", "maxBytes": 65536}
//! ```
//!
//! - `files`: paths relative to the session's working directory. The host reads them; a file that is not there is left out.
//! - `date`: whether today's date (UTC) comes with it.
//! - `every`: `"first"` for the first prompt of a session, `"prompt"` for every prompt. A session counts as new when this
//!   proxy sees its first prompt, so one that was loaded or resumed gets the files again: they may have changed since.
//! - `maxBytes`: how much of each file is used, at most 1 MiB.
//!
//! The context is a text block of its own at `/prompt/0`. The prompt itself is not copied here, so it may be of any size,
//! and no failure to read a file keeps it from the agent. A slash command goes as it is: the context comes with the prompt after
//! it.

mod date;

use consort_proxy::Peer::Client;
use consort_proxy::{Interests, Json, Outcome, Proxy, Request, RpcError, Sessions, debug, host, json, warn};
use serde::Deserialize;

/// The host reads no more of a file than that.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    files: Vec<String>,
    date: bool,
    every: Every,
    max_bytes: u64,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Every {
    First,
    Prompt,
}

impl Default for Config {
    fn default() -> Self {
        // 64 KiB: several times the largest AGENTS.md in common use, and a fraction of any model's window.
        Self {
            files: vec!["AGENTS.md".to_owned()],
            date: true,
            every: Every::First,
            max_bytes: 64 << 10,
        }
    }
}

/// The proxy.
pub struct Context {
    config: Config,
    /// Whether a session has its context.
    informed: Sessions<bool>,
}

impl Proxy for Context {
    fn start(config: Json) -> Result<(Self, Interests), String> {
        let config: Config = config.decode()?;
        if !(1..=MAX_BYTES).contains(&config.max_bytes) {
            return Err(format!(
                "maxBytes is {}, but has to be between 1 and {MAX_BYTES}",
                config.max_bytes
            ));
        }
        if let Some(file) = config.files.iter().find(|file| !host::is_inside(file)) {
            return Err(format!(
                "files: {file:?} is not inside the session's working directory; name it relative to that, without `..`"
            ));
        }
        let interests = Interests::new().intercept(Client, "session/prompt").session_ends();
        Ok((
            Self {
                config,
                informed: Sessions::new(),
            },
            interests,
        ))
    }

    async fn request(&self, request: Request) -> Outcome {
        let Some(session) = request.session_id() else {
            return request.forward();
        };
        if request.is_command() {
            return request.forward();
        }
        if self.config.every == Every::First && self.informed.with(&session, |informed| *informed) {
            return request.forward();
        }
        let context = self.context(&session).await;
        if !context.is_empty()
            && let Err(error) = request
                .params()
                .add("/prompt/0", json!({"type": "text", "text": context}))
        {
            warn!("a prompt goes without context: {error}");
        }
        let outcome = request.forward();
        if outcome.is_ok() {
            self.informed.with(&session, |informed| *informed = true);
        }
        outcome
    }
}

consort_proxy::export!(Context);

impl Context {
    async fn context(&self, session: &str) -> String {
        // All reads are under way before the first is awaited.
        let mut reads = Vec::new();
        for file in &self.config.files {
            reads.push((file, host::read_file(session, file, Some(self.config.max_bytes))));
        }
        let mut parts = Vec::new();
        if self.config.date {
            parts.push(format!("Today's date is {} (UTC).", date::today()));
        }
        for (path, read) in reads {
            match read.await {
                Ok(file) => {
                    let rest = if file.truncated {
                        "\n[The rest of the file is left out.]"
                    } else {
                        ""
                    };
                    parts.push(format!(
                        "The file {path} of this project says:\n\n{}{rest}",
                        file.text.trim_end()
                    ));
                }
                Err(error) if error.code() == RpcError::NOT_FOUND => debug!("there is no {path}"),
                Err(error) => warn!("{path} is left out: {error}"),
            }
        }
        parts.join("\n\n")
    }
}

#[cfg(test)]
mod tests;
