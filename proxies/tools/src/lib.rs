//! An MCP server with a few tools over the session's directory: `search`, `list_files`, and notes that persist.
//!
//! Configuration, with what holds if it says nothing:
//!
//! ```json
//! {"skip": ["target", "node_modules", …], "maxFiles": 5000, "maxFileBytes": 524288, "notes": true}
//! ```
//!
//! - `skip`: names of folders that are not entered. What begins with a dot never is.
//! - `maxFiles`: how many files a search looks into.
//! - `maxFileBytes`: larger files are not searched.
//! - `notes`: whether the tools for notes are offered.
//!
//! Files are read by the host, as far as the grants `file:…` go. Notes belong to the directory of the session that they were made in; they
//! are the host's saved state, so they survive restarts, and all sessions in that directory share them.

mod files;
mod lines;
mod notes;

use std::rc::Rc;

use consort_proxy::mcp::{Caller, Failure, Server};
use consort_proxy::{Directories, Interests, Json, Outcome, Proxy, Request};
use serde::Deserialize;
use serde_json::json;

/// The host reads no more than that of several files at once.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// More than that takes longer than anybody waits.
const MAX_FILES: usize = 50_000;

/// Folders that are made by programs, and hold thousands of files that nobody means to search.
const MADE_BY_PROGRAMS: [&str; 9] = [
    "target",
    "node_modules",
    "dist",
    "build",
    "out",
    "vendor",
    "venv",
    "__pycache__",
    "coverage",
];

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    skip: Vec<String>,
    max_files: usize,
    max_file_bytes: u64,
    notes: bool,
}

impl Default for Config {
    fn default() -> Self {
        // 512 KiB: any file that a person wrote, and few that a program made.
        Self {
            skip: MADE_BY_PROGRAMS.map(str::to_owned).to_vec(),
            max_files: 5_000,
            max_file_bytes: 512 << 10,
            notes: true,
        }
    }
}

impl Config {
    fn check(&self) -> Result<(), String> {
        if !(1..=MAX_FILE_BYTES).contains(&self.max_file_bytes) {
            let given = self.max_file_bytes;
            return Err(format!(
                "maxFileBytes is {given}, but has to be between 1 and {MAX_FILE_BYTES}"
            ));
        }
        if !(1..=MAX_FILES).contains(&self.max_files) {
            let given = self.max_files;
            return Err(format!("maxFiles is {given}, but has to be between 1 and {MAX_FILES}"));
        }
        if self.skip.len() > 256 {
            return Err(format!(
                "skip names {} folders, but can name 256 at most",
                self.skip.len()
            ));
        }
        match self.skip.iter().find(|name| name.is_empty() || name.contains('/')) {
            Some(name) => Err(format!(
                "skip: {name:?} is not the name of a folder; paths do not work there"
            )),
            None => Ok(()),
        }
    }
}

/// The proxy.
pub struct Tools {
    /// The directory of each session.
    directories: Rc<Directories>,
}

impl Proxy for Tools {
    fn start(config: Json) -> Result<(Self, Interests), String> {
        let config: Config = config.decode()?;
        config.check()?;
        let directories = Rc::new(Directories::new());
        let notes = config.notes;
        let server = files::offer(server(), config);
        let server = match notes {
            true => notes::offer(server, &directories),
            false => server,
        };
        let interests = Interests::new().set_ups();
        Ok((Self { directories }, interests.session_ends().serve(server)))
    }

    async fn request(&self, request: Request) -> Outcome {
        self.directories.set_up(request).await
    }
}

consort_proxy::export!(Tools);

/// The server, without tools yet. It is another one for each session, so that the session of a call is known with every agent.
fn server() -> Server {
    Server::new("tools", env!("CARGO_PKG_VERSION"))
        .title("Tools of the project")
        .each_session()
}

/// What is said of tools that change nothing.
fn reads_only() -> serde_json::Value {
    json!({"annotations": {"readOnlyHint": true, "openWorldHint": false}})
}

fn session(caller: &Caller) -> Result<&str, Failure> {
    let unknown = "Consort does not know yet which session this is; try again when the session has begun";
    caller.session().ok_or_else(|| unknown.into())
}

#[cfg(test)]
mod tests;
