//! The agent process: started in a group of its own with a reduced environment, watched, and ended with all of its
//! descendants. Knows nothing of proxies or of what the lines mean.

mod environment;
mod process;

pub use environment::{AGENTS, INHERITED};
pub(crate) use process::ending;
pub use process::{Agent, StartError};

use std::ffi::OsString;
use std::path::PathBuf;

/// How the agent is started.
#[derive(Clone, Debug)]
pub struct AgentCommand {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub program: OsString,
    /// Its arguments, passed on exactly.
    pub arguments: Vec<OsString>,
    /// Variables that are set in addition to the inherited ones.
    pub environment: Vec<(OsString, OsString)>,
    /// Names of further variables to inherit; a `*` at the end stands for any ending.
    pub inherit: Vec<String>,
    /// The working directory; Consort's own if none.
    pub directory: Option<PathBuf>,
}

impl AgentCommand {
    /// A program without arguments or settings.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            inherit: Vec::new(),
            directory: None,
        }
    }
}
