//! MCP servers that a proxy offers: tools, resources and prompts for any agent, whatever MCP transport it knows, since Consort bridges.
//! Owns what an author declares; how it is asked for is the business of the modules inside.
//!
//! ```
//! use consort_proxy::mcp::{Caller, Failure, Server};
//! use consort_proxy::{Interests, Json, Proxy};
//! use consort_proxy::schemars::{self, JsonSchema};
//! use serde::Deserialize;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Sum {
//!     /// What to add up.
//!     numbers: Vec<f64>,
//! }
//!
//! struct Calculator;
//!
//! impl Proxy for Calculator {
//!     fn start(_config: Json) -> Result<(Self, Interests), String> {
//!         let server = Server::new("calculator", "1.0").tool("sum", "Adds numbers up", async |sum: Sum, _: Caller| {
//!             match sum.numbers.is_empty() {
//!                 true => Err(Failure::from("there is nothing to add up")),
//!                 false => Ok(sum.numbers.iter().sum::<f64>().to_string()),
//!             }
//!         });
//!         Ok((Calculator, Interests::new().serve(server)))
//!     }
//! }
//! ```
//!
//! A server that is given to [`crate::Interests::serve`] adds itself to every session that the client sets up. The manifest has to wish for
//! `offer-tools`.

mod caller;
mod failure;
mod protocol;
mod result;
mod serving;
mod template;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use caller::{Caller, Level};
pub use failure::Failure;
pub use result::{Completing, Contents, Listed, Message, Reply, Structured};
pub(crate) use serving::{MESSAGES, Serving};

use crate::json::Json;

type Working<T> = Pin<Box<dyn Future<Output = Result<T, Failure>>>>;
type Work<T> = Box<dyn Fn(&Json, Caller) -> Working<T>>;

/// An MCP server: a name, and what it offers.
pub struct Server {
    name: String,
    version: String,
    title: Option<String>,
    instructions: Option<String>,
    each_session: bool,
    tools: Vec<Tool>,
    resources: Vec<Resource>,
    finders: Vec<Finder>,
    templates: Vec<Template>,
    prompts: Vec<Prompt>,
    complete: Option<Complete>,
    shared: Rc<Shared>,
}

/// What a server and its [`Handle`]s have in common.
#[derive(Default)]
struct Shared {
    /// Names of tools that are not offered at present.
    hidden: RefCell<Vec<String>>,
    /// Set where the server is served.
    serving: RefCell<Weak<Serving>>,
    /// Its place there.
    place: Cell<usize>,
}

struct Tool {
    name: String,
    /// How `tools/list` shows it.
    shown: Value,
    work: Work<Reply>,
}

struct Resource {
    uri: String,
    shown: Value,
    read: Box<dyn Fn(Caller) -> Working<Contents>>,
}

/// Resources that are not known beforehand.
struct Finder {
    list: Box<dyn Fn(Caller) -> Working<Vec<Listed>>>,
    read: Box<dyn Fn(String, Caller) -> Working<Option<Contents>>>,
}

/// Resources whose URIs are all of one kind.
struct Template {
    uri: String,
    shown: Value,
    read: Box<dyn Fn(Variables, Caller) -> Working<Option<Contents>>>,
}

/// What stands in a URI for each variable of its template.
type Variables = BTreeMap<String, String>;
type Complete = Box<dyn Fn(Completing, Caller) -> Working<Vec<String>>>;

struct Prompt {
    name: String,
    shown: Value,
    get: Work<Vec<Message>>,
}

/// The `arguments` in the params of a request; what is left out is an empty object.
fn arguments<A: DeserializeOwned>(params: &Json) -> Result<A, Failure> {
    let decoded = match params.size("/arguments") {
        Some(_) => params.decode_at("/arguments").map_err(|error| error.to_string()),
        None => serde_json::from_value(json!({})).map_err(|error| error.to_string()),
    };
    decoded.map_err(|error| Failure::from(format!("the arguments are not as this expects them: {error}")))
}

/// The JSON Schema of a type of arguments, as MCP wants it: of an object.
fn schema<A: JsonSchema>() -> Value {
    let mut schema = schemars::schema_for!(A).to_value();
    if let Some(members) = schema.as_object_mut() {
        // What a type is called in Rust says nothing to a model, and the dialect is MCP's own.
        members.remove("title");
        members.remove("$schema");
        members.entry("type").or_insert_with(|| "object".into());
    }
    schema
}

impl Server {
    /// A server without anything yet. Its name is what users and agents see, and has to be one of its own among the servers of a session.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            title: None,
            instructions: None,
            each_session: false,
            tools: Vec::new(),
            resources: Vec::new(),
            finders: Vec::new(),
            templates: Vec::new(),
            prompts: Vec::new(),
            complete: None,
            shared: Rc::default(),
        }
    }

    /// Also says what to call it for a person.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Also says how its tools are to be used together; agents show this to their model.
    #[must_use]
    pub fn instructions(mut self, instructions: impl Into<String>) -> Self {
        self.instructions = Some(instructions.into());
        self
    }

    /// Is another server for each session: its id is never the same for two of them, so no call comes over the connection of another
    /// session.
    #[must_use]
    pub fn each_session(mut self) -> Self {
        self.each_session = true;
        self
    }

    /// Also offers a tool. Its arguments are an `A`, from which the JSON Schema comes that the agent sees: document its fields, and what
    /// goes wrong with them is told to the model.
    #[must_use]
    pub fn tool<A, R, W>(self, name: &str, description: &str, work: W) -> Self
    where
        A: DeserializeOwned + JsonSchema + 'static,
        R: Into<Reply> + 'static,
        W: AsyncFn(A, Caller) -> Result<R, Failure> + 'static,
    {
        self.tool_with(name, description, json!({}), work)
    }

    /// The same with more members of the tool's description, such as `title` or `annotations`.
    #[must_use]
    pub fn tool_with<A, R, W>(mut self, name: &str, description: &str, more: Value, work: W) -> Self
    where
        A: DeserializeOwned + JsonSchema + 'static,
        R: Into<Reply> + 'static,
        W: AsyncFn(A, Caller) -> Result<R, Failure> + 'static,
    {
        let own = json!({"name": name, "description": description, "inputSchema": schema::<A>()});
        let work = Rc::new(work);
        self.tools.push(Tool {
            name: name.to_owned(),
            shown: merged(own, more),
            work: Box::new(move |params, caller| {
                let (work, arguments) = (work.clone(), arguments::<A>(params));
                Box::pin(async move { work(arguments?, caller).await.map(Into::into) })
            }),
        });
        self
    }

    /// Also offers a resource at a URI. `more` has further members of its description, such as `mimeType`.
    #[must_use]
    pub fn resource<W>(mut self, uri: &str, name: &str, more: Value, read: W) -> Self
    where
        W: AsyncFn(Caller) -> Result<Contents, Failure> + 'static,
    {
        let read = Rc::new(read);
        self.resources.push(Resource {
            uri: uri.to_owned(),
            shown: merged(json!({"uri": uri, "name": name}), more),
            read: Box::new(move |caller| {
                let read = read.clone();
                Box::pin(async move { read(caller).await })
            }),
        });
        self
    }

    /// Also offers resources that are not known beforehand: `list` says which there are for whoever asks, and `read` gives what stands at a
    /// URI, if it is one of them.
    #[must_use]
    pub fn resources<L, R>(mut self, list: L, read: R) -> Self
    where
        L: AsyncFn(Caller) -> Result<Vec<Listed>, Failure> + 'static,
        R: AsyncFn(String, Caller) -> Result<Option<Contents>, Failure> + 'static,
    {
        let (list, read) = (Rc::new(list), Rc::new(read));
        self.finders.push(Finder {
            list: Box::new(move |caller| {
                let list = list.clone();
                Box::pin(async move { list(caller).await })
            }),
            read: Box::new(move |uri, caller| {
                let read = read.clone();
                Box::pin(async move { read(uri, caller).await })
            }),
        });
        self
    }

    /// Also offers the resources whose URIs have this form, such as `db://{table}/rows/{row}`: `read` gives what stands at one, if there is
    /// such a one. It gets the variables as they stand in the URI; each is at least one character, and has no `/`.
    #[must_use]
    pub fn resource_template<R>(mut self, uri: &str, name: &str, more: Value, read: R) -> Self
    where
        R: AsyncFn(BTreeMap<String, String>, Caller) -> Result<Option<Contents>, Failure> + 'static,
    {
        let read = Rc::new(read);
        self.templates.push(Template {
            uri: uri.to_owned(),
            shown: merged(json!({"uriTemplate": uri, "name": name}), more),
            read: Box::new(move |variables, caller| {
                let read = read.clone();
                Box::pin(async move { read(variables, caller).await })
            }),
        });
        self
    }

    /// Also suggests how what the user has begun to write could go on: arguments of prompts, and variables of templates. The first
    /// hundred suggestions are given.
    #[must_use]
    pub fn completion<W>(mut self, complete: W) -> Self
    where
        W: AsyncFn(Completing, Caller) -> Result<Vec<String>, Failure> + 'static,
    {
        let complete = Rc::new(complete);
        self.complete = Some(Box::new(move |completing, caller| {
            let complete = complete.clone();
            Box::pin(async move { complete(completing, caller).await })
        }));
        self
    }

    /// Also offers a prompt, whose arguments are the fields of an `A`.
    #[must_use]
    pub fn prompt<A, W>(mut self, name: &str, description: &str, get: W) -> Self
    where
        A: DeserializeOwned + JsonSchema + 'static,
        W: AsyncFn(A, Caller) -> Result<Vec<Message>, Failure> + 'static,
    {
        let get = Rc::new(get);
        self.prompts.push(Prompt {
            name: name.to_owned(),
            shown: json!({"name": name, "description": description, "arguments": prompt_arguments(&schema::<A>())}),
            get: Box::new(move |params, caller| {
                let (get, arguments) = (get.clone(), arguments::<A>(params));
                Box::pin(async move { get(arguments?, caller).await })
            }),
        });
        self
    }

    /// A hand on the server, to be kept by the proxy: what it offers can change.
    pub fn handle(&self) -> Handle {
        Handle(Rc::downgrade(&self.shared))
    }

    fn shows(&self, tool: &Tool) -> bool {
        !self.shared.hidden.borrow().contains(&tool.name)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |tools: &[Tool]| tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>();
        let mut shown = formatter.debug_struct("Server");
        shown.field("name", &self.name).field("tools", &names(&self.tools));
        shown.finish_non_exhaustive()
    }
}

/// A hand on a server that is being served; see [`Server::handle`].
#[derive(Clone)]
pub struct Handle(Weak<Shared>);

impl Handle {
    /// Offers a tool, or does so no more. Agents that are connected are told if that changes something.
    pub fn offer(&self, tool: &str, offered: bool) {
        let Some(shared) = self.0.upgrade() else { return };
        let mut hidden = shared.hidden.borrow_mut();
        let before = hidden.len();
        hidden.retain(|name| name != tool);
        if !offered {
            hidden.push(tool.to_owned());
        }
        let changed = hidden.len() != before;
        drop(hidden);
        if changed && let Some(serving) = shared.serving.borrow().upgrade() {
            serving.changed(shared.place.get(), "notifications/tools/list_changed");
        }
    }

    /// What stands in a resource is something else now. Agents that have subscribed to it are told.
    pub fn updated(&self, uri: &str) {
        let Some(shared) = self.0.upgrade() else { return };
        if let Some(serving) = shared.serving.borrow().upgrade() {
            serving.updated(shared.place.get(), uri);
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Handle").finish_non_exhaustive()
    }
}

/// An object with the members of another one on top.
fn merged(mut object: Value, more: Value) -> Value {
    if let (Some(members), Value::Object(more)) = (object.as_object_mut(), more) {
        members.extend(more);
    }
    object
}

/// The arguments of a prompt, as MCP lists them.
fn prompt_arguments(schema: &Value) -> Vec<Value> {
    let required = |name: &String| {
        let required = schema["required"].as_array();
        required.is_some_and(|required| required.iter().any(|one| one == name))
    };
    let properties = schema["properties"].as_object().into_iter().flatten();
    let argument = |(name, property): (&String, &Value)| {
        let mut argument = json!({"name": name, "required": required(name)});
        if let Some(description) = property.get("description") {
            argument["description"] = description.clone();
        }
        argument
    };
    properties.map(argument).collect()
}
