//! Whoever uses a server: which session it is, and what can be said to it while it waits.

use serde_json::{Value, json};

use crate::error::RpcError;
use crate::json::Json;
use crate::peer::Peer;

/// How what is said finds its way.
#[derive(Clone, Debug)]
pub(super) enum Way {
    /// Over a connection that was made.
    Connection(String),
    /// Along with one request to a server, without any connection.
    Request { server: String, request: String },
}

impl Way {
    /// The params of `mcp/message` that carry this.
    pub(super) fn params(&self, method: &str, params: &Value) -> Value {
        match self {
            Self::Connection(connection) => json!({"connectionId": connection, "method": method, "params": params}),
            Self::Request { server, request } => {
                json!({"serverId": server, "requestId": request, "method": method, "params": params})
            }
        }
    }
}

/// Whoever has asked a server for something.
#[derive(Clone, Debug)]
pub struct Caller {
    pub(super) session: Option<String>,
    pub(super) way: Way,
    pub(super) progress: Option<Value>,
    /// The least that a line for the log has to matter; none if no lines are wanted.
    pub(super) least: Option<Severity>,
}

/// How much a line has to matter: a place among the levels of MCP.
pub(super) type Severity = usize;

/// The levels of MCP, the least first.
const LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

/// The severity of a level, if there is one of this name.
pub(super) fn severity(level: &str) -> Option<Severity> {
    LEVELS.iter().position(|one| *one == level)
}

/// How much a line for the agent's log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Level {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
}

impl Caller {
    /// The ACP session that it asks in; none if the host cannot tell: before the session's set-up is answered, and with an agent that reaches
    /// servers over ACP itself if the server is there in several sessions and not one of [`each_session`](super::Server::each_session).
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Tells how far the work is. Nothing happens if nobody wants to know.
    pub fn progress(&self, done: f64, total: Option<f64>, message: Option<&str>) {
        let Some(token) = &self.progress else { return };
        let mut params = json!({"progressToken": token, "progress": done});
        if let Some(total) = total {
            params["total"] = total.into();
        }
        if let Some(message) = message {
            params["message"] = message.into();
        }
        self.tell("notifications/progress", &params);
    }

    /// A line for the agent's log. Nothing happens if it does not want such lines.
    pub fn log(&self, level: Level, text: &str) {
        let severity = level as Severity;
        if self.least.is_some_and(|least| severity >= least) {
            self.tell(
                "notifications/message",
                &json!({"level": LEVELS[severity], "data": text}),
            );
        }
    }

    fn tell(&self, method: &str, params: &Value) {
        if let Err(refusal) = tell(&self.way, method, params) {
            crate::debug!("{method} was not sent: {refusal}");
        }
    }

    /// Asks the agent for what MCP clients offer: `sampling/createMessage`, `elicitation/create` or `roots/list`.
    ///
    /// # Errors
    /// What the agent answers, or that there is no connection to ask over: agents of MCP 2026-07-28 have none.
    pub async fn request(&self, method: &str, params: Value) -> Result<Json, RpcError> {
        match &self.way {
            Way::Connection(_) => {
                Peer::Agent
                    .request("mcp/message", encoded(&self.way.params(method, &params))?)
                    .await
            }
            Way::Request { .. } => {
                let reason = format!("`{method}` needs a connection, and this agent asks without one");
                Err(RpcError::new(RpcError::METHOD_NOT_FOUND, reason))
            }
        }
    }
}

/// Sends a notification of a server.
pub(super) fn tell(way: &Way, method: &str, params: &Value) -> Result<(), RpcError> {
    Ok(Peer::Agent.notify("mcp/message", encoded(&way.params(method, params))?)?)
}

fn encoded(value: &Value) -> Result<Json, RpcError> {
    Ok(Json::encode(value)?)
}
