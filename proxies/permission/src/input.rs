//! What a tool call works on, as far as its raw input says so. Owns which members are paths and commands: agents name them as they
//! like. Knows nothing of rules.

use serde_json::{Map, Value};

use crate::command::Command;

/// A tool call with more paths is not judged by them: every rule looks at each.
const MAX_PATHS: usize = 256;
/// In bytes, together. A path has 4 KiB at most.
const MAX_PATH_BYTES: usize = 64 << 10;
const MAX_COMMANDS: usize = 64;
/// In bytes, together. Long enough for a script that someone would read before he allows it.
const MAX_COMMAND_BYTES: usize = 8 << 10;

/// What was found in a tool call.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) paths: Vec<String>,
    pub(crate) commands: Vec<Command>,
    /// There are or may be others that could not be read.
    pub(crate) more_paths: bool,
    /// As `more_paths`, or something beside a command changes what it does: variables, or leave to do more.
    pub(crate) more_commands: bool,
    path_bytes: usize,
    command_bytes: usize,
}

enum Member {
    Path,
    /// An object with paths for names.
    ByPath,
    Command,
    Commands,
    Arguments,
    /// Changes what a command does.
    Circumstance,
    Other,
}

impl Member {
    fn of(name: &str) -> Self {
        let name: String = name
            .chars()
            .filter(|character| !"_-".contains(*character))
            .flat_map(char::to_lowercase)
            .collect();
        match name.as_str() {
            "command" | "cmd" | "commandline" | "shellcommand" | "bashcommand" | "script" => Self::Command,
            "commands" | "cmds" => Self::Commands,
            "args" | "argv" | "arguments" => Self::Arguments,
            "changes" | "filechanges" => Self::ByPath,
            // Where a command is run is not what it works on.
            "cwd" | "workdir" | "workingdir" | "workingdirectory" => Self::Other,
            "source" | "destination" | "target" | "from" | "to" | "uri" => Self::Path,
            name if [
                "path",
                "paths",
                "file",
                "files",
                "filename",
                "filenames",
                "dir",
                "directory",
                "folder",
            ]
            .iter()
            .any(|end| name.ends_with(end)) =>
            {
                Self::Path
            }
            name if name == "env"
                || [
                    "environment",
                    "sandbox",
                    "danger",
                    "escalat",
                    "elevat",
                    "permission",
                    "privilege",
                ]
                .iter()
                .any(|part| name.contains(part)) =>
            {
                Self::Circumstance
            }
            _ => Self::Other,
        }
    }
}

impl Found {
    /// Nothing of it can be judged.
    pub(crate) fn give_up(&mut self) {
        (self.more_paths, self.more_commands) = (true, true);
    }

    pub(crate) fn path(&mut self, path: &str) {
        if self.paths.iter().any(|known| known == path) {
            return;
        }
        self.path_bytes += path.len();
        if self.path_bytes > MAX_PATH_BYTES || self.paths.len() == MAX_PATHS {
            self.more_paths = true;
        } else {
            self.paths.push(path.to_owned());
        }
    }

    /// Looks through a raw input, or a part of it.
    pub(crate) fn search(&mut self, input: &Value) {
        match input {
            Value::Object(members) => self.search_members(members),
            Value::Array(elements) => elements.iter().for_each(|element| self.search(element)),
            // The paths of a patch are in its text.
            Value::String(text) => self.more_paths |= text.contains("*** Begin Patch") || text.contains("\n+++ "),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn search_members(&mut self, members: &Map<String, Value>) {
        let has_command = members.keys().any(|name| matches!(Member::of(name), Member::Command));
        for (name, value) in members {
            match (Member::of(name), value) {
                (Member::Path, _) => self.search_paths(value),
                (Member::ByPath, Value::Object(changes)) => {
                    for (path, change) in changes {
                        self.path(path);
                        self.search(change);
                    }
                }
                (Member::Command, _) => self.search_command(value, members),
                (Member::Commands, Value::Array(commands)) => {
                    commands
                        .iter()
                        .for_each(|command| self.search_command(command, members));
                }
                (Member::Commands, Value::String(_)) => self.search_command(value, members),
                (Member::Circumstance, value) if has_command && !is_empty(value) => self.more_commands = true,
                _ => self.search(value),
            }
        }
    }

    fn search_paths(&mut self, value: &Value) {
        match value {
            Value::String(path) => self.path(path),
            Value::Array(elements) => elements.iter().for_each(|element| self.search_paths(element)),
            _ => self.search(value),
        }
    }

    /// A command, with the arguments that may stand beside it.
    fn search_command(&mut self, command: &Value, beside: &Map<String, Value>) {
        let arguments: Vec<&Value> = beside
            .iter()
            .filter(|(name, value)| matches!(Member::of(name), Member::Arguments) && !value.is_null())
            .map(|(_, value)| value)
            .collect();
        let words = match (command, arguments.as_slice()) {
            (Value::Null, _) => return,
            (Value::String(line), []) => Some(Words::Line(line.clone())),
            (Value::String(line), [Value::String(more)]) => Some(Words::Line(format!("{line} {more}"))),
            (Value::Array(words), []) => strings(words).map(Words::List),
            (Value::String(line), [Value::Array(more)]) => {
                strings(more).map(|more| Words::List(std::iter::once(line.as_str()).chain(more).collect()))
            }
            _ => None,
        };
        let length = words.as_ref().map_or(0, Words::length);
        self.command_bytes += length;
        match words {
            Some(words) if self.command_bytes <= MAX_COMMAND_BYTES && self.commands.len() < MAX_COMMANDS => {
                self.commands.push(words.command());
            }
            _ => self.more_commands = true,
        }
    }
}

enum Words<'v> {
    Line(String),
    List(Vec<&'v str>),
}

impl Words<'_> {
    fn length(&self) -> usize {
        match self {
            Self::Line(line) => line.len(),
            Self::List(words) => words.iter().map(|word| word.len() + 1).sum(),
        }
    }

    fn command(&self) -> Command {
        match self {
            Self::Line(line) => Command::line(line),
            Self::List(words) => Command::words(words),
        }
    }
}

/// The strings of an array, if there is nothing else in it.
fn strings(values: &[Value]) -> Option<Vec<&str>> {
    values.iter().map(Value::as_str).collect()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(elements) => elements.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}
