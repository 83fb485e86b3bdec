//! The agent's side of a connection: started, read, and its end told.

use super::Ending;
use super::driver::{DRAIN, Driver, LINES};
use super::streams::{Refused, parsed};
use crate::agent::{Agent, ending};
use crate::wire::envelope::{Incoming, error_text};
use crate::wire::lines::LineBuffer;

/// Lines of the agent that were no messages and are kept for an error.
const KEPT_JUNK: usize = 3;

impl Driver {
    pub(super) fn start_agent(&mut self) {
        if let Some(sentence) = &self.broken {
            return self.router.agent_started(Err(error_text(-32603, sentence, None)));
        }
        let Some(command) = &self.options.agent else {
            // Behind the chain is the conductor that it is a proxy of.
            return self.router.agent_started(Ok(()));
        };
        match Agent::start(command) {
            Ok(agent) => {
                self.agent_exit = Some(agent.watch());
                self.agent = Some(agent);
                self.agent_lines = LineBuffer::new(self.options.max_line);
                self.agent_open = true;
                self.junk.clear();
                self.ending = Ending::default();
                self.agents += 1;
                self.router.agent_started(Ok(()));
            }
            Err(error) => {
                tracing::error!("{}", error.sentence);
                self.router
                    .agent_started(Err(error_text(-32603, &error.sentence, None)));
                self.ending.failure = Some(error.sentence);
                self.ending.agent_missing = error.missing;
            }
        }
    }

    pub(super) async fn agent_lines(&mut self) {
        let mut together = 0;
        while let Some(line) = self.agent_lines.next_line() {
            let line = parsed(line, self.options.max_line);
            let waits = matches!(&line, Ok(message) if self.router.would_wait(message));
            together = if waits && together < LINES { together + 1 } else { 0 };
            if together == 0 {
                self.work().await;
            }
            self.agent_line(line);
        }
        self.work().await;
    }

    fn agent_line(&mut self, line: Result<Incoming, Box<Refused>>) {
        match line {
            Ok(message) => self.router.from_agent(message),
            Err(refused) => {
                let Refused {
                    malformed,
                    skims,
                    quoted,
                } = *refused;
                let name = self.agent.as_ref().map_or("agent", |agent| agent.name());
                tracing::warn!(target: "agent", "{name}: a line that is no message ({}): {quoted}", malformed.reason);
                self.router.agent_malformed(&malformed, &skims);
                if self.junk.len() == KEPT_JUNK {
                    self.junk.remove(0);
                }
                self.junk.push(quoted);
            }
        }
    }

    /// The agent's output has ended: so has the agent.
    pub(super) async fn agent_closed(&mut self) {
        if let Some(line) = self.agent_lines.last_line() {
            self.agent_line(parsed(line, self.options.max_line));
            self.work().await;
        }
        self.agent_open = false;
        let Some(mut agent) = self.agent.take() else { return };
        let status = tokio::time::timeout(DRAIN, agent.exited()).await.ok();
        let what = match status {
            Some(status) => ending(status),
            None => "closed its standard output".into(),
        };
        self.agent_gone(agent, &what).await;
    }

    pub(super) async fn agent_gone(&mut self, mut agent: Agent, what: &str) {
        let errors = agent.last_errors(DRAIN).await;
        let mut sentence = format!("the agent `{}` {what}", agent.name());
        if let Some(last) = errors.last() {
            sentence.push_str(&format!("; the last line of its standard error was: {last}"));
        }
        if !self.junk.is_empty() {
            sentence.push_str(&format!("; it printed what is no message: {}", self.junk.join(" | ")));
        }
        if self.client_open {
            tracing::error!("{sentence}");
        }
        let data = serde_json::json!({ "agent": agent.name(), "stderr": errors });
        self.agent_open = false;
        self.router.agent_ended(error_text(-32603, &sentence, Some(data)));
        drop(agent);
    }
}
