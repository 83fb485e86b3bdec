//! Masks secrets: in prompts on their way to the agent, and in streamed text on its way to the editor. A secret becomes
//! `[redacted:github-token]` or the like; everything else stays as it came, byte for byte.
//!
//! Configuration, with what holds if it says nothing:
//!
//! ```json
//! {"patterns": {}, "off": [], "maxTextBytes": 2097152}
//! ```
//!
//! - `patterns`: regular expressions by name, such as `{"ticket": "TICKET-[0-9]{6}"}`. A match becomes `[redacted:ticket]`. Classes
//!   like `\w` and `(?i)` know ASCII letters only; there are no look-arounds.
//! - `off`: names of built-in rules to leave out; see the table in `rules.rs`.
//! - `maxTextBytes`: texts of more bytes are not searched but refused (in a prompt) or masked whole (on the way up), since the
//!   search needs memory of about four times that.
//!
//! A secret may be split over chunks. What may be the beginning of one is held back, at most 4 KiB for each stream of text,
//! and goes out with the next chunk, before the turn's answer, or (outside of turns, and after a cancellation) when no text came for
//! a second or two. Tool calls, plans and images do not bring it out and may so overtake the last word before them: the rest of a
//! secret may follow behind them, and editors put the two together. Only text is searched: text blocks and embedded text resources
//! in prompts, message and thought chunks, plans, and text and diffs in tool calls. Not searched are images and audio, files that the agent reads by
//! itself, raw inputs and outputs of tools, and what the agent asks the editor (permissions, files, terminals).

mod rules;
mod session;
mod stream;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::Context;
use std::time::Duration;

use consort_proxy::Peer::{Agent, Client};
use consort_proxy::{Interests, Json, Notification, Outcome, Proxy, Request, RpcError, Sessions, host, json};
use serde::Deserialize;

use rules::Rules;
use session::{Place, Session};

/// Prompts and tool calls have a handful of blocks. Looking at each takes the host longer the more there are.
const MAX_BLOCKS: usize = 10_000;
/// Names in an update are short; longer ones are not read.
const MAX_NAME: u64 = 1024;
/// Where a chunk has its text.
const CHUNK_TEXT: &str = "/update/content/text";
/// Where it has that of an embedded resource.
const CHUNK_RESOURCE: &str = "/update/content/resource/text";
/// Outside of any turn, text comes out when none followed for so long. Nothing else would bring it out.
const IDLE: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    patterns: BTreeMap<String, String>,
    off: Vec<String>,
    max_text_bytes: u64,
}

impl Default for Config {
    fn default() -> Self {
        // Four times that fits into a proxy's memory of 16 MiB.
        Self {
            patterns: BTreeMap::new(),
            off: Vec::new(),
            max_text_bytes: 2 << 20,
        }
    }
}

/// The proxy.
pub struct Redact {
    rules: Rules,
    max_text_bytes: u64,
    sessions: Sessions<Session>,
}

impl Proxy for Redact {
    fn start(config: Json) -> Result<(Self, Interests), String> {
        let config: Config = config.decode()?;
        let rules = Rules::new(&config.off, &config.patterns)?;
        let interests = Interests::new()
            .intercept(Client, "session/prompt")
            .intercept(Client, "session/load")
            .intercept(Agent, "session/update")
            .session_ends();
        Ok((
            Self {
                rules,
                max_text_bytes: config.max_text_bytes,
                sessions: Sessions::new(),
            },
            interests,
        ))
    }

    /// A turn, or a session that is loaded: when the answer comes, no text may be held back any more.
    async fn request(&self, mut request: Request) -> Outcome {
        if request.method() == "session/prompt" {
            self.mask_prompt(request.params())?;
        }
        let turn = request.session_id().map(|session| Turn::begin(self, session));
        let result = request.forward_and_wait().await;
        if let Some(turn) = turn {
            turn.end();
        }
        request.reply(result?)
    }

    async fn notification(&self, update: Notification) -> Outcome {
        let session = update.session_id();
        let params = update.params();
        let kind = name(params, "/update/sessionUpdate").unwrap_or_default();
        match (kind.as_str(), session) {
            ("agent_message_chunk" | "agent_thought_chunk" | "user_message_chunk", Some(session)) => {
                return self.chunk(session, kind, update).await;
            }
            // Without a session there is no stream that it could be a part of.
            ("agent_message_chunk" | "agent_thought_chunk" | "user_message_chunk", None) => {
                for text in [CHUNK_TEXT, CHUNK_RESOURCE] {
                    self.mask_or_drop(params, text)?;
                }
            }
            // What is held back of a message stays so: editors join its chunks across these, and so a split secret.
            ("tool_call" | "tool_call_update", _) => self.mask_tool_call(params)?,
            ("plan", _) => self.mask_plan(params)?,
            _ => {}
        }
        update.forward()
    }
}

consort_proxy::export!(Redact);

/// A short string.
fn name(json: &Json, pointer: &str) -> Option<String> {
    json.size(pointer).filter(|size| *size <= MAX_NAME)?;
    json.string(pointer)
}

/// Text of that many bytes cannot be searched.
struct TooLarge(u64);

impl Redact {
    /// Masks the string at the pointer, if one is there.
    fn mask_at(&self, json: &Json, pointer: &str) -> Result<Result<(), TooLarge>, RpcError> {
        match json.size(pointer) {
            Some(size) if size > self.max_text_bytes => return Ok(Err(TooLarge(size))),
            Some(_) => {}
            None => return Ok(Ok(())),
        }
        if let Some(masked) = json.string(pointer).and_then(|text| stream::mask(&self.rules, &text)) {
            json.replace(pointer, masked)?;
        }
        Ok(Ok(()))
    }

    fn mask_prompt(&self, params: &Json) -> Result<(), RpcError> {
        for index in 0.. {
            let block = format!("/prompt/{index}");
            if params.size(&block).is_none() {
                break;
            }
            if index >= MAX_BLOCKS {
                let why = format!("redact: the prompt has more than {MAX_BLOCKS} blocks, which are too many to search");
                return Err(RpcError::invalid_params(why));
            }
            for text in ["/text", "/resource/text"] {
                if let Err(TooLarge(size)) = self.mask_at(params, &format!("{block}{text}"))? {
                    return Err(RpcError::invalid_params(format!(
                        "redact: a text of {size} bytes in the prompt is too large to be searched for secrets; attach it as a link, \
                         or raise maxTextBytes ({})",
                        self.max_text_bytes
                    )));
                }
            }
        }
        Ok(())
    }

    fn mask_tool_call(&self, params: &Json) -> Result<(), RpcError> {
        self.mask_or_drop(params, "/update/title")?;
        let too_many = || {
            let text = format!("[redacted: more than {MAX_BLOCKS} parts are too many to search for secrets]");
            json!([{"type": "content", "content": {"type": "text", "text": text}}])
        };
        let texts = ["/content/text", "/content/resource/text", "/oldText", "/newText"];
        self.mask_list(params, "/update/content", &texts, too_many)
    }

    fn mask_plan(&self, params: &Json) -> Result<(), RpcError> {
        let too_many = || {
            let text = format!("[redacted: more than {MAX_BLOCKS} steps are too many to search for secrets]");
            json!([{"content": text, "priority": "medium", "status": "pending"}])
        };
        self.mask_list(params, "/update/entries", &["/content"], too_many)
    }

    /// Masks these texts of each element of a list. A list that is too long becomes another one.
    fn mask_list(
        &self,
        json: &Json,
        list: &str,
        texts: &[&str],
        too_many: impl FnOnce() -> Json,
    ) -> Result<(), RpcError> {
        if json.size(&format!("{list}/{MAX_BLOCKS}")).is_some() {
            return Ok(json.replace(list, too_many())?);
        }
        for index in 0..MAX_BLOCKS {
            let pointer = format!("{list}/{index}");
            let Some(element) = json.get(&pointer) else {
                break;
            };
            for text in texts.iter().filter(|text| element.size(text).is_some()) {
                self.mask_or_drop(json, &format!("{pointer}{text}"))?;
            }
        }
        Ok(())
    }

    /// As [`Self::mask_at`]; text that is too large is masked whole.
    fn mask_or_drop(&self, json: &Json, pointer: &str) -> Result<(), RpcError> {
        if let Err(TooLarge(size)) = self.mask_at(json, pointer)? {
            json.replace(pointer, too_large(size))?;
        }
        Ok(())
    }

    async fn chunk(&self, session: String, kind: String, update: Notification) -> Outcome {
        let params = update.params();
        let place = Place {
            kind,
            message: name(params, "/update/messageId"),
        };
        if let Some(size) = params.size(CHUNK_TEXT).filter(|size| *size > self.max_text_bytes) {
            params.replace(CHUNK_TEXT, too_large(size))?;
            return update.forward();
        }
        let Some(text) = params.string(CHUNK_TEXT) else {
            // An embedded resource has its text elsewhere, and is a text of its own.
            self.mask_or_drop(params, CHUNK_RESOURCE)?;
            return update.forward();
        };
        let pushed = self
            .sessions
            .with(&session, |state| state.push(&self.rules, place, params, &text))?;
        self.send(pushed.crowded_out);
        // A half of an emoji's escape was decoded to something else, and only stays what it is where nothing has to change.
        if pushed.text != text {
            params.replace(CHUNK_TEXT, &pushed.text)?;
        }
        let outcome = match pushed.text.is_empty() && !text.is_empty() {
            true => update.discard(),
            false => update.forward(),
        };
        if pushed.starts_timer {
            // Where the chunk was refused, this handler still has it, and others may wait behind it. The next chunk tries again.
            match outcome.is_ok() {
                true => self.watch(&session).await,
                false => self.sessions.with(&session, |state| state.timer = false),
            }
        }
        outcome
    }

    /// Waits until no turn will bring out what is held back of a session, and then until no more text comes.
    async fn watch(&self, session: &str) {
        loop {
            let turns_end = |context: &mut Context<'_>| self.sessions.with(session, |state| state.poll_turns(context));
            if !poll_fn(turns_end).await {
                return;
            }
            // Without timers, all there is goes out at once: nothing may be held for ever.
            let slept = host::sleep(IDLE).await.is_ok();
            let idle = self
                .sessions
                .with(session, |state| state.pause_if_idle(&self.rules, slept));
            if let Some(chunks) = idle {
                return self.send(chunks);
            }
        }
    }

    fn send(&self, chunks: Vec<Json>) {
        for chunk in chunks {
            if let Err(refusal) = Client.notify("session/update", chunk) {
                consort_proxy::error!("the end of a text is lost: {refusal}");
            }
        }
    }
}

fn too_large(size: u64) -> String {
    format!("[redacted: {size} bytes of text are too many to search for secrets]")
}

/// A request during which the agent streams. Its answer brings out what is held back. A cancellation does not, since the agent may
/// be in the middle of a secret and goes on until it hears of it.
struct Turn<'a> {
    proxy: &'a Redact,
    session: String,
}

impl<'a> Turn<'a> {
    fn begin(proxy: &'a Redact, session: String) -> Self {
        proxy.sessions.with(&session, |state| state.turns += 1);
        Self { proxy, session }
    }

    /// The answer is there.
    fn end(self) {
        let chunks = self
            .proxy
            .sessions
            .with(&self.session, |state| state.answer(&self.proxy.rules));
        self.proxy.send(chunks);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.proxy.sessions.with(&self.session, Session::end_turn);
    }
}

#[cfg(test)]
mod tests;
