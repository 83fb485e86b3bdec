//! The tools for notes, which belong to a directory. Owns their keys in the saved state: one for each note, so that two that are made at the
//! same time do not lose each other.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use consort_proxy::mcp::{Caller, Failure, Server};
use consort_proxy::schemars::{self, JsonSchema};
use consort_proxy::{Directories, Json, RpcError, host};
use serde::{Deserialize, Serialize};

use crate::{reads_only, session};

/// Notes in a directory.
const MAX_NOTES: usize = 100;

/// Bytes of a note.
const MAX_TEXT: usize = 4_000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Add {
    /// The note, in full sentences that make sense to somebody who knows nothing of this session.
    text: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Remove {
    /// The note's id, as `list_notes` gives it.
    id: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// A note, as it is kept.
#[derive(Serialize, Deserialize)]
struct Note {
    /// Directories can have the same key.
    directory: String,
    text: String,
}

/// Adds the tools.
pub(crate) fn offer(server: Server, directories: &Rc<Directories>) -> Server {
    let [one, two, three] = [(); 3].map(|()| directories.clone());
    server
        .tool(
            "add_note",
            "Keeps a note for later sessions in this project, such as a decision or something that was hard to find out",
            async move |add: Add, caller: Caller| keep(&directory(&one, &caller)?, add.text).await,
        )
        .tool_with(
            "list_notes",
            "Gives the notes that were made in this project, the oldest first, with their ids",
            reads_only(),
            async move |_: Nothing, caller: Caller| list(&directory(&two, &caller)?).await,
        )
        .tool(
            "remove_note",
            "Removes a note that is not true any more",
            async move |remove: Remove, caller: Caller| forget(&directory(&three, &caller)?, &remove.id).await,
        )
}

fn directory(directories: &Directories, caller: &Caller) -> Result<String, Failure> {
    directories
        .of(session(caller)?)
        .ok_or_else(|| "the directory of this session is not known any more; notes work again in a new session".into())
}

/// What the keys of a directory's notes begin with. A key is short, and a directory need not be.
fn prefix(directory: &str) -> String {
    // FNV-1a: it has to be the same always, and nothing more.
    let hash = directory.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("note:{hash:016x}:")
}

/// An id that sorts by time, and that no two notes have.
fn fresh_id() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let some = RandomState::new().build_hasher().finish();
    format!("{:012x}{:04x}", since.as_millis(), some & 0xffff)
}

/// The ids of a directory's notes, the oldest first.
async fn ids(directory: &str) -> Result<Vec<String>, Failure> {
    let prefix = prefix(directory);
    let keys = host::state::keys().await.map_err(explained)?;
    let ids = keys.iter().filter_map(|key| key.strip_prefix(&prefix));
    Ok(ids.map(str::to_owned).collect())
}

/// A note of this directory.
async fn read(directory: &str, id: &str) -> Result<Option<String>, Failure> {
    let key = format!("{}{id}", prefix(directory));
    let value = host::state::get(&key).await.map_err(explained)?;
    let note = value.and_then(|value| value.decode::<Note>().ok());
    Ok(note.filter(|note| note.directory == directory).map(|note| note.text))
}

async fn keep(directory: &str, text: String) -> Result<String, Failure> {
    if text.trim().is_empty() || text.len() > MAX_TEXT {
        return Err(format!("a note has to have between 1 and {MAX_TEXT} bytes").into());
    }
    if ids(directory).await?.len() >= MAX_NOTES {
        return Err(format!("there are {MAX_NOTES} notes, which is the most: remove some that are of no use").into());
    }
    let (id, directory) = (fresh_id(), directory.to_owned());
    let key = format!("{}{id}", prefix(&directory));
    let note = Json::encode(&Note { directory, text })?;
    host::state::set(&key, note).await.map_err(explained)?;
    Ok(format!("kept as {id}"))
}

async fn list(directory: &str) -> Result<String, Failure> {
    let mut text = String::new();
    for id in ids(directory).await? {
        if let Some(note) = read(directory, &id).await? {
            text.push_str(&format!("{id}: {note}\n"));
        }
    }
    match text.is_empty() {
        true => Ok("there are no notes".into()),
        false => Ok(text),
    }
}

async fn forget(directory: &str, id: &str) -> Result<String, Failure> {
    if id.len() > 64 || read(directory, id).await?.is_none() {
        return Err("there is no note with this id; `list_notes` gives those that there are".into());
    }
    let key = format!("{}{id}", prefix(directory));
    host::state::delete(&key).await.map_err(explained)?;
    Ok("removed".into())
}

fn explained(error: RpcError) -> Failure {
    match error.code() {
        RpcError::QUOTA => "there is no room for more notes: remove some that are of no use".into(),
        _ => error.into(),
    }
}
