//! MCP itself: which method gives what, in the revisions that there are. Must not know how requests come.

use serde_json::{Value, json};

use super::caller::Caller;
use super::failure::Failure;
use super::{Completing, Reply, Server, template};
use crate::error::RpcError;
use crate::json::{Json, escape};

/// Revisions that begin with `initialize`, the latest first.
const WITH_INITIALIZE: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

/// The revision that has no connections: each request says what `initialize` says otherwise.
const STATELESS: &str = "2026-07-28";

/// MCP's code for a revision that the server does not speak.
const UNSUPPORTED_VERSION: i64 = -32022;

/// The member of a request's `_meta` that names its revision.
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

/// The member of a request's `_meta` that says which lines for the log it wants, where there are no connections.
const LOG_KEY: &str = "io.modelcontextprotocol/logLevel";

/// The member of a result's `_meta` that names the server.
const SERVER_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// What MCP allows.
const MAX_SUGGESTIONS: usize = 100;

/// Answers a request.
pub(super) async fn answer(server: &Server, method: &str, params: &Json, caller: Caller) -> Result<Value, RpcError> {
    let stateless = match revision(params) {
        Some(version) if version == STATELESS => true,
        Some(version) if !WITH_INITIALIZE.contains(&version.as_str()) => return Err(unsupported(&version)),
        _ => false,
    };
    let mut result = match method {
        "initialize" => server.initialize(params),
        "server/discover" => server.discover(),
        "ping" => json!({}),
        "tools/list" => server.list(
            "tools",
            server
                .tools
                .iter()
                .filter(|tool| server.shows(tool))
                .map(|tool| &tool.shown),
        ),
        "tools/call" => server.call(params, caller).await?,
        "resources/list" => server.list_resources(caller).await?,
        "resources/templates/list" if server.has_resources() => server.list(
            "resourceTemplates",
            server.templates.iter().map(|template| &template.shown),
        ),
        "resources/read" => server.read(params, caller).await?,
        "prompts/list" => server.list("prompts", server.prompts.iter().map(|prompt| &prompt.shown)),
        "prompts/get" => server.get(params, caller).await?,
        "completion/complete" if server.complete.is_some() => server.suggest(params, caller).await?,
        _ => {
            let reason = format!("the MCP server `{}` has no method `{method}`", server.name);
            return Err(RpcError::new(RpcError::METHOD_NOT_FOUND, reason));
        }
    };
    if stateless || method == "server/discover" {
        result["resultType"] = "complete".into();
        if method.ends_with("/list") || matches!(method, "server/discover" | "resources/read") {
            // It may change with the next message.
            result["ttlMs"] = 0.into();
            result["cacheScope"] = "private".into();
        }
    }
    Ok(result)
}

/// The level of lines for the log that a request names, if it does.
pub(super) fn log_level(params: &Json) -> Option<String> {
    params.string(&format!("/_meta/{}", escape(LOG_KEY)))
}

/// The revision that a request names, if it does.
fn revision(params: &Json) -> Option<String> {
    params.string(&format!("/_meta/{}", escape(VERSION_KEY)))
}

fn unsupported(version: &str) -> RpcError {
    let reason = format!("MCP {version} is not spoken here");
    let data = json!({"supported": supported(), "requested": version});
    let error = RpcError::new(UNSUPPORTED_VERSION, reason);
    match Json::encode(&data) {
        Ok(data) => error.with_data(data),
        Err(_) => error,
    }
}

fn supported() -> Vec<&'static str> {
    std::iter::once(STATELESS).chain(WITH_INITIALIZE).collect()
}

impl Server {
    fn info(&self) -> Value {
        let mut info = json!({"name": self.name, "version": self.version});
        if let Some(title) = &self.title {
            info["title"] = title.clone().into();
        }
        info
    }

    fn capabilities(&self) -> Value {
        let mut capabilities = json!({"logging": {}});
        if !self.tools.is_empty() {
            capabilities["tools"] = json!({"listChanged": true});
        }
        if self.has_resources() {
            capabilities["resources"] = json!({});
        }
        if !self.prompts.is_empty() {
            capabilities["prompts"] = json!({});
        }
        if self.complete.is_some() {
            capabilities["completions"] = json!({});
        }
        capabilities
    }

    fn instructed(&self, mut result: Value) -> Value {
        if let Some(instructions) = &self.instructions {
            result["instructions"] = instructions.clone().into();
        }
        result
    }

    fn initialize(&self, params: &Json) -> Value {
        let asked = params.string("/protocolVersion").unwrap_or_default();
        let known = WITH_INITIALIZE.into_iter().find(|version| *version == asked);
        let version = known.unwrap_or(WITH_INITIALIZE[0]);
        let mut capabilities = self.capabilities();
        // Who has no connection cannot be told later.
        if self.has_resources() {
            capabilities["resources"]["subscribe"] = true.into();
        }
        self.instructed(json!({"protocolVersion": version, "capabilities": capabilities, "serverInfo": self.info()}))
    }

    fn discover(&self) -> Value {
        let meta = json!({SERVER_KEY: self.info()});
        self.instructed(json!({"supportedVersions": supported(), "capabilities": self.capabilities(), "_meta": meta}))
    }

    fn list<'a>(&self, name: &str, all: impl Iterator<Item = &'a Value>) -> Value {
        json!({name: all.collect::<Vec<_>>()})
    }

    async fn call(&self, params: &Json, caller: Caller) -> Result<Value, RpcError> {
        let name = params.string("/name").unwrap_or_default();
        let tool = self.tools.iter().find(|tool| tool.name == name && self.shows(tool));
        let Some(tool) = tool else {
            return Err(RpcError::invalid_params(format!("there is no tool `{name}`")));
        };
        match (tool.work)(params, caller).await {
            Ok(Reply { content, structured }) => {
                let mut result = json!({"content": content, "isError": false});
                if let Some(structured) = structured {
                    result["structuredContent"] = structured;
                }
                Ok(result)
            }
            Err(Failure::Tool(sentence)) => {
                Ok(json!({"content": [{"type": "text", "text": sentence}], "isError": true}))
            }
            Err(Failure::Protocol(error)) => Err(error),
        }
    }

    pub(super) fn has_resources(&self) -> bool {
        !self.resources.is_empty() || !self.finders.is_empty() || !self.templates.is_empty()
    }

    async fn list_resources(&self, caller: Caller) -> Result<Value, RpcError> {
        let mut all: Vec<Value> = self.resources.iter().map(|resource| resource.shown.clone()).collect();
        for finder in &self.finders {
            let found = (finder.list)(caller.clone()).await.map_err(protocol)?;
            all.extend(found.into_iter().map(|listed| listed.shown));
        }
        Ok(self.list("resources", all.iter()))
    }

    async fn read(&self, params: &Json, caller: Caller) -> Result<Value, RpcError> {
        let uri = params.string("/uri").unwrap_or_default();
        if let Some(resource) = self.resources.iter().find(|resource| resource.uri == uri) {
            let contents = (resource.read)(caller).await.map_err(protocol)?;
            let contents = contents.into_value(&uri, resource.shown["mimeType"].as_str());
            return Ok(json!({"contents": [contents]}));
        }
        for finder in &self.finders {
            if let Some(contents) = (finder.read)(uri.clone(), caller.clone()).await.map_err(protocol)? {
                return Ok(json!({"contents": [contents.into_value(&uri, None)]}));
            }
        }
        for template in &self.templates {
            let Some(variables) = template::variables(&template.uri, &uri) else {
                continue;
            };
            let found = (template.read)(variables, caller.clone()).await.map_err(protocol)?;
            if let Some(contents) = found {
                let contents = contents.into_value(&uri, template.shown["mimeType"].as_str());
                return Ok(json!({"contents": [contents]}));
            }
        }
        let reason = format!("there is no resource `{uri}`");
        Err(RpcError::new(RpcError::NOT_FOUND, reason))
    }

    async fn suggest(&self, params: &Json, caller: Caller) -> Result<Value, RpcError> {
        let text = |pointer| params.string(pointer).unwrap_or_default();
        let (of, known) = match text("/ref/type").as_str() {
            "ref/prompt" => {
                let of = text("/ref/name");
                let known = self.prompts.iter().any(|prompt| prompt.name == of);
                (of, known)
            }
            _ => {
                let of = text("/ref/uri");
                let known = self.templates.iter().any(|template| template.uri == of);
                (of, known)
            }
        };
        let Some(complete) = self.complete.as_ref().filter(|_| known) else {
            let reason = format!("there is neither a prompt nor a template `{of}` to complete");
            return Err(RpcError::invalid_params(reason));
        };
        let completing = Completing {
            of,
            name: text("/argument/name"),
            value: text("/argument/value"),
            others: params.decode_at("/context/arguments").unwrap_or_default(),
        };
        let mut values = complete(completing, caller).await.map_err(protocol)?;
        let total = values.len();
        values.truncate(MAX_SUGGESTIONS);
        Ok(json!({"completion": {"values": values, "total": total, "hasMore": total > MAX_SUGGESTIONS}}))
    }

    async fn get(&self, params: &Json, caller: Caller) -> Result<Value, RpcError> {
        let name = params.string("/name").unwrap_or_default();
        let Some(prompt) = self.prompts.iter().find(|prompt| prompt.name == name) else {
            return Err(RpcError::invalid_params(format!("there is no prompt `{name}`")));
        };
        let messages = (prompt.get)(params, caller).await.map_err(protocol)?;
        let message = |message: super::Message| json!({"role": message.role, "content": message.content});
        Ok(json!({"messages": messages.into_iter().map(message).collect::<Vec<_>>()}))
    }
}

/// Only tools tell the model what went wrong; elsewhere it is an error of the protocol.
fn protocol(failure: Failure) -> RpcError {
    match failure {
        Failure::Tool(sentence) => RpcError::internal(sentence),
        Failure::Protocol(error) => error,
    }
}
