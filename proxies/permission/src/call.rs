//! The tool call that a permission is asked for, as far as a rule can judge it. Owns where it stands in the params of
//! `session/request_permission`, and how much of it is read. Knows nothing of rules.

use consort_proxy::Json;
use serde::Deserialize;
use serde_json::Value;

use crate::command::Command;
use crate::input::Found;

/// Larger params are not looked into at all.
const MAX_PARAMS: u64 = 8 << 20;
/// As JSON; a file that is written whole is in there.
const MAX_INPUT: u64 = 512 << 10;
const MAX_LOCATIONS: u64 = 64 << 10;
const MAX_CONTENT: usize = 64;
/// As JSON: names and paths are short, and what is longer is not read.
const MAX_NAME: u64 = 64;
const MAX_TITLE: u64 = 8 << 10;
const MAX_PATH: u64 = 8 << 10;

/// A tool's kind, as version 1 of ACP names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Read,
    Edit,
    Delete,
    Move,
    Search,
    Execute,
    Think,
    Fetch,
    SwitchMode,
    Other,
}

/// Something that a request may leave out, since an earlier message had it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Field<T> {
    Absent,
    /// It is there, but is nothing that is known here.
    Unknown,
    Is(T),
}

/// What a tool call says of itself.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) kind: Field<Kind>,
    pub(crate) title: Field<String>,
    /// Whether a raw input came with it.
    pub(crate) has_input: bool,
    pub(crate) found: Found,
}

impl Call {
    /// None if the params are too large to be looked into.
    pub(crate) fn read(params: &Json) -> Option<Self> {
        params.size("").filter(|size| *size <= MAX_PARAMS)?;
        let mut found = Found::default();
        let Some(call) = params.get("/toolCall") else {
            return Some(Self {
                kind: Field::Absent,
                title: Field::Absent,
                has_input: false,
                found,
            });
        };
        let kind = field(&call, "/kind", MAX_NAME);
        let title: Field<String> = field(&call, "/title", MAX_TITLE);
        let has_input = search_input(&call, &mut found);
        search_locations(&call, &mut found);
        search_content(&call, &mut found);
        Some(Self {
            kind,
            title,
            has_input,
            found,
        })
    }

    /// The title as a command, which it is in calls of the kind `execute` with nothing else to judge them by.
    pub(crate) fn title_as_command(&self) -> Option<Command> {
        match &self.title {
            Field::Is(title) => Some(Command::title(title)),
            Field::Absent | Field::Unknown => None,
        }
    }
}

/// What names the tool call in a line of the log.
pub(crate) fn id(params: &Json) -> String {
    match field(params, "/toolCall/toolCallId", 2 * MAX_NAME) {
        Field::Is::<String>(id) => format!("{id:?}"),
        Field::Absent | Field::Unknown => "(without a short id)".to_owned(),
    }
}

fn field<T: serde::de::DeserializeOwned>(json: &Json, pointer: &str, most: u64) -> Field<T> {
    match json.size(pointer) {
        None => Field::Absent,
        Some(size) if size > most => Field::Unknown,
        Some(_) => match json.decode_at::<Option<T>>(pointer) {
            Ok(Some(value)) => Field::Is(value),
            Ok(None) => Field::Absent,
            Err(_) => Field::Unknown,
        },
    }
}

fn search_input(call: &Json, found: &mut Found) -> bool {
    match field(call, "/rawInput", MAX_INPUT) {
        Field::Absent => return false,
        Field::Is(input @ Value::Object(_)) => found.search(&input),
        // What cannot be taken apart may be anything.
        Field::Is(_) | Field::Unknown => found.give_up(),
    }
    true
}

fn search_locations(call: &Json, found: &mut Found) {
    #[derive(Deserialize)]
    struct Location {
        path: String,
    }
    match field::<Vec<Location>>(call, "/locations", MAX_LOCATIONS) {
        Field::Absent => {}
        Field::Unknown => found.more_paths = true,
        Field::Is(locations) => locations.iter().for_each(|location| found.path(&location.path)),
    }
}

/// Diffs. Their texts, which may be large, are not read.
fn search_content(call: &Json, found: &mut Found) {
    for index in 0..=MAX_CONTENT {
        let Some(content) = call.get(&format!("/content/{index}")) else {
            return;
        };
        match field::<String>(&content, "/path", MAX_PATH) {
            Field::Absent => {}
            Field::Unknown => found.more_paths = true,
            Field::Is(path) => found.path(&path),
        }
    }
    found.more_paths = true;
}
