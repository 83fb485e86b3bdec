//! Tells any agent of the project's skills (`SKILL.md`): an index in front of the first prompt of a session, and their texts through an MCP
//! server, as the tool `skill` and as resources.
//!
//! Configuration, with what holds if it says nothing:
//!
//! ```json
//! {"folders": [".agents/skills", ".claude/skills"], "index": true, "maxSkills": 64, "maxBytes": 131072}
//! ```
//!
//! - `folders`: where skills are, relative to the session's directory: `FOLDER/NAME/SKILL.md`. Of two with one name, the first is taken.
//! - `index`: whether the index is put into the prompt. Agents that know skills themselves do without.
//! - `maxSkills`: how many there can be.
//! - `maxBytes`: how much of a file is given, at most 1 MiB.
//!
//! The host reads the files, as far as the grants `file:…` go; no failure to read one keeps a prompt from the agent.

mod front_matter;
mod library;

use std::rc::Rc;

use consort_proxy::Peer::Client;
use consort_proxy::mcp::{Caller, Contents, Failure, Listed, Server};
use consort_proxy::schemars::{self, JsonSchema};
use consort_proxy::{Interests, Json, Outcome, Proxy, Request, RpcError, Sessions, host, json, warn};
use serde::Deserialize;

use library::{Library, Skill};

/// The host reads no more of a file than that at the size that is asked for here.
const MAX_BYTES: u64 = 1 << 20;

/// An index of more would be no help.
const MAX_SKILLS: usize = 500;

/// Bytes of the index: a fraction of any model's window.
const MAX_INDEX: usize = 16 << 10;

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    folders: Vec<String>,
    index: bool,
    max_skills: usize,
    max_bytes: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            folders: vec![".agents/skills".to_owned(), ".claude/skills".to_owned()],
            index: true,
            max_skills: 64,
            max_bytes: 128 << 10,
        }
    }
}

impl Config {
    fn check(&self) -> Result<(), String> {
        if !(1..=MAX_BYTES).contains(&self.max_bytes) {
            return Err(format!(
                "maxBytes is {}, but has to be between 1 and {MAX_BYTES}",
                self.max_bytes
            ));
        }
        if !(1..=MAX_SKILLS).contains(&self.max_skills) {
            return Err(format!(
                "maxSkills is {}, but has to be between 1 and {MAX_SKILLS}",
                self.max_skills
            ));
        }
        if self.folders.is_empty() || self.folders.len() > 16 {
            return Err("folders has to name between 1 and 16 folders".into());
        }
        match self.folders.iter().find(|folder| !host::is_inside(folder)) {
            Some(folder) => Err(format!(
                "folders: {folder:?} is not inside the session's directory; name it relative to that, without `..`"
            )),
            None => Ok(()),
        }
    }
}

/// The proxy.
pub struct Skills {
    library: Rc<Library>,
    index: bool,
    /// Whether a session has its index.
    informed: Sessions<bool>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// The skill's name.
    name: String,
    /// A file in the skill's folder that its text refers to; the skill itself if left out.
    #[serde(default)]
    file: Option<String>,
}

impl Proxy for Skills {
    fn start(config: Json) -> Result<(Self, Interests), String> {
        let config: Config = config.decode()?;
        config.check()?;
        let index = config.index;
        let library = Rc::new(Library::new(config));
        let interests = Interests::new()
            .intercept(Client, "session/prompt")
            .session_ends()
            .serve(server(&library));
        let skills = Self {
            library,
            index,
            informed: Sessions::new(),
        };
        Ok((skills, interests))
    }

    async fn request(&self, request: Request) -> Outcome {
        let Some(session) = request.session_id().filter(|_| request.method() == "session/prompt") else {
            return request.forward();
        };
        if !self.index || request.is_command() || self.informed.with(&session, |informed| *informed) {
            return request.forward();
        }
        let index = index(&self.library.skills(&session).await);
        if let Some(index) = index
            && let Err(error) = request
                .params()
                .add("/prompt/0", json!({"type": "text", "text": index}))
        {
            warn!("a prompt goes without the index of skills: {error}");
        }
        let outcome = request.forward();
        if outcome.is_ok() {
            self.informed.with(&session, |informed| *informed = true);
        }
        outcome
    }
}

consort_proxy::export!(Skills);

/// The server that gives the texts. It is another one for each session, so that the session of a call is known with every agent.
fn server(library: &Rc<Library>) -> Server {
    let [called, listed, read] = [(); 3].map(|()| library.clone());
    Server::new("skills", env!("CARGO_PKG_VERSION"))
        .title("Skills of the project")
        .each_session()
        .tool_with(
            "skill",
            "Gives the text of one of the project's skills, or a file that belongs to it. Read a skill before doing what it is about",
            serde_json::json!({"annotations": {"readOnlyHint": true, "openWorldHint": false}}),
            async move |wanted: Wanted, caller: Caller| give(&called, wanted, &caller).await,
        )
        .resources(
            async move |caller: Caller| {
                let skills = listed.skills(session(&caller)?).await;
                Ok(skills.iter().map(resource).collect())
            },
            async move |wanted: String, caller: Caller| {
                let session = session(&caller)?;
                let skills = read.skills(session).await;
                match skills.iter().find(|skill| uri(skill) == wanted) {
                    Some(skill) => Ok(Some(Contents::Text(read.text(session, skill, "SKILL.md").await?))),
                    None => Ok(None),
                }
            },
        )
}

fn session(caller: &Caller) -> Result<&str, Failure> {
    let unknown = "Consort does not know yet which session this is; try again when the session has begun";
    caller.session().ok_or_else(|| unknown.into())
}

async fn give(library: &Library, wanted: Wanted, caller: &Caller) -> Result<String, Failure> {
    let session = session(caller)?;
    let file = wanted.file.as_deref().unwrap_or("SKILL.md");
    if !host::is_inside(file) {
        return Err("`file` has to be a path inside the skill's folder, without `..`".into());
    }
    let skills = library.skills(session).await;
    let Some(skill) = skills.iter().find(|skill| skill.name == wanted.name) else {
        let names: Vec<&str> = skills.iter().map(|skill| skill.name.as_str()).collect();
        let known = match names.is_empty() {
            true => "there are none in this project".to_owned(),
            false => format!("there are {}", names.join(", ")),
        };
        return Err(format!("there is no such skill; {known}").into());
    };
    match library.text(session, skill, file).await {
        Ok(text) => Ok(format!("(from the folder {} of the project)\n\n{text}", skill.folder)),
        Err(error) if error.code() == RpcError::NOT_FOUND => Err("the skill has no such file".into()),
        Err(error) => Err(error.into()),
    }
}

fn resource(skill: &Skill) -> Listed {
    let more = serde_json::json!({"description": skill.description, "mimeType": "text/markdown"});
    Listed::new(uri(skill), &skill.name, more)
}

/// Where a skill's text is a resource.
fn uri(skill: &Skill) -> String {
    let mut uri = "skill:///".to_owned();
    for byte in skill.folder.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => uri.push(char::from(byte)),
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri.push_str("/SKILL.md");
    uri
}

/// The text in front of the prompt; none if there is nothing to say.
fn index(skills: &[Skill]) -> Option<String> {
    if skills.is_empty() {
        return None;
    }
    let mut text = "This project has skills: instructions for certain tasks. When a task fits one of them, read it before you begin, \
                    with the tool `skill` of the MCP server `skills`, or as the file SKILL.md in its folder.\n"
        .to_owned();
    for (shown, skill) in skills.iter().enumerate() {
        let Skill {
            name,
            description,
            folder,
        } = skill;
        let line = match description.is_empty() {
            true => format!("\n- {name} (in {folder})"),
            false => format!("\n- {name} (in {folder}): {description}"),
        };
        if text.len() + line.len() > MAX_INDEX {
            text.push_str(&format!("\n- and {} more", skills.len() - shown));
            break;
        }
        text.push_str(&line);
    }
    Some(text)
}

#[cfg(test)]
mod tests;
