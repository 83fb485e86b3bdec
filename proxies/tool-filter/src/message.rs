//! What an agent says to an MCP server, in both generations. Knows nothing of rules.

use consort_proxy::{Json, Outcome, Request, RpcError};
use serde_json::json;

use crate::strict::{Members, Unclear};

/// The revision whose results say what they are.
const STATELESS: &str = "2026-07-28";

/// Requests of MCP's clients. Whatever else is said could be a call in disguise.
const REQUESTS: [&str; 19] = [
    "initialize",
    "ping",
    "server/discover",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "logging/setLevel",
    "tasks/get",
    "tasks/result",
    "tasks/list",
    "tasks/cancel",
    "subscriptions/listen",
];

/// Whether MCP has such a request.
pub(crate) fn is_request(method: &str) -> bool {
    REQUESTS.contains(&method)
}

/// How an answer travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Over a connection: results and errors are those of the message that carries them.
    Plain,
    /// Without one: they stand in its result.
    Wrapped,
}

impl Way {
    /// Where a result begins.
    pub(crate) fn place(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Wrapped => "/result",
        }
    }

    /// Answers in the server's place.
    pub(crate) fn reply(self, request: Request, result: Json) -> Outcome {
        match self {
            Self::Plain => request.reply(result),
            Self::Wrapped => {
                let wrapped = consort_proxy::json!({});
                wrapped.add("/result", &result)?;
                request.reply(wrapped)
            }
        }
    }

    /// Answers with an error in the server's place.
    pub(crate) fn fail(self, request: Request, error: RpcError) -> Outcome {
        match self {
            Self::Plain => Err(error),
            Self::Wrapped => {
                let wrapped = json!({"error": {"code": error.code(), "message": error.message()}});
                request.reply(Json::encode(&wrapped)?)
            }
        }
    }
}

/// As much of a message as has to be known.
pub(crate) struct Message {
    pub(crate) way: Way,
    pub(crate) method: String,
    /// Of a call.
    pub(crate) tool: Option<String>,
    says_what_it_is: bool,
}

impl Message {
    pub(crate) fn read(params: &Members<'_>) -> Result<Self, Unclear> {
        let missing = |what: &str| Unclear(format!("it has no `{what}`"));
        let method = params.text("method")?.ok_or_else(|| missing("method"))?;
        let inner = match params.get("params")? {
            Some(inner) if inner.get() != "null" => Some(Members::read(inner.get())?),
            _ => None,
        };
        let tool = match (&inner, method.as_str()) {
            (Some(inner), "tools/call") => Some(inner.text("name")?.ok_or_else(|| missing("name"))?),
            (None, "tools/call") => return Err(missing("params")),
            _ => None,
        };
        let way = match params.get("connectionId")? {
            Some(_) => Way::Plain,
            None => Way::Wrapped,
        };
        let meta = inner.as_ref().and_then(|inner| inner.get("_meta").ok().flatten());
        let meta = meta.and_then(|meta| Members::read(meta.get()).ok());
        let revision = meta.and_then(|meta| meta.text("io.modelcontextprotocol/protocolVersion").ok().flatten());
        Ok(Self {
            way,
            method,
            tool,
            says_what_it_is: revision.as_deref() == Some(STATELESS),
        })
    }

    /// The result of a tool that fails, with a sentence for the agent's model.
    pub(crate) fn failure(&self, reason: &str) -> Result<Json, RpcError> {
        let mut result = json!({"content": [{"type": "text", "text": reason}], "isError": true});
        if self.says_what_it_is {
            result["resultType"] = "complete".into();
        }
        Ok(Json::encode(&result)?)
    }
}
