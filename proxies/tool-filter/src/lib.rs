//! Hides or denies MCP servers and their tools by rules: takes servers out of the set-up of sessions, tools out of lists, and answers calls
//! that must not be made. It sits between whoever provides the servers and the agent, so it has to stand behind the proxies that do.
//!
//! Configuration, with what holds if it says nothing:
//!
//! ```json
//! {"rules": [], "otherwise": "allow", "unfiltered": "keep", "methods": []}
//! ```
//!
//! A rule is an object such as `{"do": "deny", "server": "files", "tool": "delete_*"}`; `README.md` says what can stand in it. This proxy
//! protects: a message that it does not understand and that could carry a call is refused, and a server that it has not seen in a
//! set-up is taken for any that a rule is about.

mod message;
mod rules;
mod servers;
mod strict;

use std::cell::RefCell;

use consort_proxy::Peer::{Agent, Client};
use consort_proxy::{Interests, Json, Notification, Outcome, Proxy, Request, RpcError, info, warn};

use message::{Message, Way};
use rules::{Action, Config, Rules, Unfiltered};
use servers::{IDS, Servers};
use strict::{Members, Unclear, elements};

/// Bytes of a set-up that is looked at: as much as the host looks at.
const MAX_SET_UP: u64 = 4 << 20;

/// Bytes of a message or of a list of tools that is looked at.
const MAX_MESSAGE: u64 = 16 << 20;

/// The proxy.
pub struct ToolFilter {
    rules: Rules,
    unfiltered: Unfiltered,
    methods: Vec<String>,
    servers: RefCell<Servers>,
}

impl Proxy for ToolFilter {
    fn start(config: Json) -> Result<(Self, Interests), String> {
        let config: Config = config.decode()?;
        let rules = Rules::new(&config)?;
        let filter = Self {
            rules,
            unfiltered: config.unfiltered,
            methods: config.methods,
            servers: RefCell::default(),
        };
        let interests = Interests::new()
            .set_ups()
            .intercept(Agent, "mcp/*")
            .intercept(Agent, "_mcp/*");
        Ok((filter, interests))
    }

    async fn request(&self, request: Request) -> Outcome {
        if request.source() == Client {
            return self.set_up(request);
        }
        match request.method().trim_start_matches('_') {
            "mcp/connect" => self.connect(request).await,
            "mcp/message" => self.message(request).await,
            "mcp/disconnect" => {
                self.disconnect(request.params());
                request.forward()
            }
            method => {
                let reason = format!("`{method}` is not known to the filter of tools, so it does not pass");
                Err(RpcError::new(RpcError::METHOD_NOT_FOUND, reason))
            }
        }
    }

    async fn notification(&self, notification: Notification) -> Outcome {
        let passes = match notification.method().trim_start_matches('_') {
            "mcp/disconnect" => {
                self.disconnect(notification.params());
                true
            }
            "mcp/message" => self.may_tell(notification.params()),
            _ => false,
        };
        match passes {
            true => notification.forward(),
            false => notification.discard(),
        }
    }
}

consort_proxy::export!(ToolFilter);

impl ToolFilter {
    /// A session is set up: without the servers that must not be in it.
    fn set_up(&self, request: Request) -> Outcome {
        let kept = self.look_at_servers(request.params());
        let out = kept.map_err(|Unclear(reason)| {
            RpcError::invalid_params(format!("the filter of tools does not understand this: {reason}"))
        })?;
        // From behind, so that places stay what they are.
        for place in out.into_iter().rev() {
            request.params().remove(&format!("/mcpServers/{place}"))?;
        }
        request.forward()
    }

    /// The places of servers that must not be in a session.
    fn look_at_servers(&self, params: &Json) -> Result<Vec<usize>, Unclear> {
        let text = read(params, MAX_SET_UP)?;
        let Some(entries) = Members::read(&text)?.get("mcpServers")? else {
            return Ok(Vec::new());
        };
        if entries.get() == "null" {
            return Ok(Vec::new());
        }
        let mut out = Vec::new();
        for (place, entry) in elements(entries.get())?.into_iter().enumerate() {
            let stays = self.stays(entry.get()).unwrap_or_else(|Unclear(reason)| {
                warn!("an MCP server is not in this session, since its entry is unclear: {reason}");
                false
            });
            if !stays {
                out.push(place);
            }
        }
        Ok(out)
    }

    /// Whether a server may be in a session.
    fn stays(&self, entry: &str) -> Result<bool, Unclear> {
        let entry = Members::read(entry)?;
        let name = entry.text("name")?.ok_or_else(|| Unclear("it has no `name`".into()))?;
        let over_acp = entry.text("type")?.as_deref() == Some("acp");
        let mut names = vec![name.clone()];
        if over_acp {
            let mut ids = Vec::new();
            for key in IDS {
                ids.extend(entry.text(key)?);
            }
            let mut servers = self.servers.borrow_mut();
            servers.is_called(&ids, &name);
            // It may have had other names before.
            names = servers.named(&entry)?.unwrap_or(names);
        }
        let about_tools = self.rules.are_about_tools_of(Some(&names));
        match self.rules.server(Some(&names)) {
            Action::Hide => {
                info!("the MCP server {name:?} is not in this session: a rule hides it");
                Ok(false)
            }
            // What is said to it cannot be seen, so nothing but its absence keeps it from being used.
            Action::Deny if !over_acp => {
                info!("the MCP server {name:?} is not in this session: it is denied");
                Ok(false)
            }
            Action::Allow if !over_acp && about_tools => {
                let stays = self.unfiltered == Unfiltered::Keep;
                let what = if stays {
                    "stays, with all of its tools"
                } else {
                    "is not in this session"
                };
                warn!(
                    "there are rules about tools of the MCP server {name:?}, which the agent reaches by itself; it {what}"
                );
                Ok(stays)
            }
            Action::Allow | Action::Deny => Ok(true),
        }
    }

    async fn connect(&self, mut request: Request) -> Outcome {
        let names = {
            let text = read(request.params(), MAX_MESSAGE).map_err(refused)?;
            let params = Members::read(&text).map_err(refused)?;
            self.servers.borrow().named(&params).map_err(refused)?
        };
        if self.rules.server(names.as_deref()) != Action::Allow {
            info!("a connection to the MCP server {names:?} was refused");
            return Err(RpcError::new(RpcError::NOT_FOUND, "there is no such MCP server"));
        }
        let result = request.forward_and_wait().await?;
        if let Some(names) = names {
            let text = read(&result, MAX_MESSAGE).map_err(refused)?;
            let connection = Members::read(&text).and_then(|members| members.text("connectionId"));
            if let Some(connection) = connection.map_err(refused)? {
                self.servers.borrow_mut().connected(&connection, &names);
            }
        }
        request.reply(result)
    }

    fn disconnect(&self, params: &Json) {
        if let Some(connection) = params.string("/connectionId") {
            self.servers.borrow_mut().disconnected(&connection);
        }
    }

    /// Reads what an agent says to a server, and which that is.
    fn read_message(&self, params: &Json) -> Result<(Message, Option<Vec<String>>), Unclear> {
        let text = read(params, MAX_MESSAGE)?;
        let params = Members::read(&text)?;
        let names = self.servers.borrow().named(&params)?;
        Ok((Message::read(&params)?, names))
    }

    async fn message(&self, mut request: Request) -> Outcome {
        let (message, names) = self.read_message(request.params()).map_err(|unclear| {
            info!("a message to an MCP server was refused: {}", unclear.0);
            refused(unclear)
        })?;
        let (names, way) = (names.as_deref(), message.way);
        let method = message.method.as_str();
        if self.rules.server(names) != Action::Allow {
            info!("{method:?} to the MCP server {names:?} was refused");
            let error = RpcError::new(RpcError::NOT_FOUND, "there is no such MCP server");
            return way.fail(request, error);
        }
        if !message::is_request(method) && !self.methods.iter().any(|known| known == method) {
            info!("{method:?} to the MCP server {names:?} was refused: it is no request of MCP's");
            let reason = format!("`{method}` is not known to the filter of tools, so it does not pass");
            return way.fail(request, RpcError::new(RpcError::METHOD_NOT_FOUND, reason));
        }
        if let Some(tool) = &message.tool {
            match self.rules.tool(names, tool) {
                Action::Allow => return request.forward(),
                Action::Hide => {
                    info!("a call of the tool {tool:?} of {names:?} was refused: it is hidden");
                    let error = RpcError::invalid_params(format!("there is no tool `{tool}`"));
                    return way.fail(request, error);
                }
                Action::Deny => {
                    info!("a call of the tool {tool:?} of {names:?} was refused: it is denied");
                    let reason = format!("The tool `{tool}` must not be used here: the user has denied it.");
                    return way.reply(request, message.failure(&reason)?);
                }
            }
        }
        if method != "tools/list" {
            return request.forward();
        }
        let result = request.forward_and_wait().await?;
        match self.filter_list(&result, names, way) {
            Ok(()) => request.reply(result),
            Err(Unclear(reason)) => {
                warn!("a list of tools of {names:?} was not passed on: {reason}");
                let reason = format!("the filter of tools does not understand the server's list: {reason}");
                way.fail(request, RpcError::internal(reason))
            }
        }
    }

    /// Takes the hidden tools out of the answer to `tools/list`.
    fn filter_list(&self, result: &Json, names: Option<&[String]>, way: Way) -> Result<(), Unclear> {
        let text = read(result, MAX_MESSAGE)?;
        let mut list = Members::read(&text)?;
        if way == Way::Wrapped {
            let Some(inner) = list.get("result")? else {
                return match list.get("error")? {
                    Some(error) if error.get() != "null" => Ok(()),
                    _ => Err(Unclear("it has neither `result` nor `error`".into())),
                };
            };
            list = Members::read(inner.get())?;
        }
        // Whatever else it holds could be tools to the agent.
        let tools = list.get("tools")?.ok_or_else(|| Unclear("it has no `tools`".into()))?;
        let hidden: Vec<usize> = elements(tools.get())?
            .into_iter()
            .enumerate()
            .filter(|(_, tool)| {
                let name = Members::read(tool.get()).and_then(|tool| tool.text("name"));
                !matches!(name, Ok(Some(name)) if self.rules.tool(names, &name) != Action::Hide)
            })
            .map(|(place, _)| place)
            .collect();
        for place in hidden.into_iter().rev() {
            let removed = result.remove(&format!("{}/tools/{place}", way.place()));
            removed.map_err(|error| Unclear(error.to_string()))?;
        }
        Ok(())
    }

    /// Whether a notification may go to a server.
    fn may_tell(&self, params: &Json) -> bool {
        match self.read_message(params) {
            Ok((message, names)) => {
                let known = message.method.starts_with("notifications/") || self.methods.contains(&message.method);
                let passes = known && message.tool.is_none() && self.rules.server(names.as_deref()) == Action::Allow;
                if !passes {
                    info!(
                        "a notification {:?} to the MCP server {names:?} was dropped",
                        message.method
                    );
                }
                passes
            }
            Err(Unclear(reason)) => {
                info!("a notification to an MCP server was dropped: {reason}");
                false
            }
        }
    }
}

/// The text of a message, if it can be looked at.
fn read(json: &Json, most: u64) -> Result<String, Unclear> {
    match json.size("") {
        Some(size) if size > most => Err(Unclear(format!(
            "it has {size} bytes; {most} are the most that is looked at"
        ))),
        _ => Ok(json.text()),
    }
}

fn refused(Unclear(reason): Unclear) -> RpcError {
    RpcError::invalid_params(format!("the filter of tools does not understand this: {reason}"))
}

#[cfg(test)]
mod tests;
