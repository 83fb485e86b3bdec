//! The skills of a session's directory: where they are, and what they say. Owns how much of them is read.

use std::cell::Cell;

use consort_proxy::host::{self, EntryKind, File, List};
use consort_proxy::{RpcError, debug, info, warn};

use crate::Config;
use crate::front_matter;

/// Bytes of a file in which the front matter has to be.
const HEAD: u64 = 8 << 10;

/// Files that are read at the same time.
const AT_ONCE: usize = 16;

/// Bytes of a name, and of a description.
const MAX_NAME: usize = 64;
const MAX_DESCRIPTION: usize = 1_024;

/// A skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Skill {
    pub(crate) name: String,
    pub(crate) description: String,
    /// Its folder, relative to the session's directory.
    pub(crate) folder: String,
}

/// Where skills come from.
pub(crate) struct Library {
    config: Config,
    /// The user has heard what to grant.
    told: Cell<bool>,
}

impl Library {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            told: Cell::new(false),
        }
    }

    /// All skills of a session, each name once. What cannot be read is told, and left out.
    pub(crate) async fn skills(&self, session: &str) -> Vec<Skill> {
        let mut folders = Vec::new();
        for folder in &self.config.folders {
            let room = self.config.max_skills - folders.len();
            folders.extend(self.folders_in(session, folder, room).await);
        }
        let mut skills: Vec<Skill> = Vec::new();
        for batch in folders.chunks(AT_ONCE) {
            // All of a batch are under way before the first is awaited.
            let mut reads = Vec::new();
            for folder in batch {
                let path = format!("{folder}/SKILL.md");
                reads.push((folder, host::read_file(session, &path, Some(HEAD))));
            }
            for (folder, read) in reads {
                let Some(skill) = described(folder, read.await) else {
                    continue;
                };
                match skills.iter().find(|known| known.name == skill.name) {
                    Some(known) => info!("the skill in {folder} is left out: {} has the same name", known.folder),
                    None => skills.push(skill),
                }
            }
        }
        skills
    }

    /// The folders in a folder of skills.
    async fn folders_in(&self, session: &str, folder: &str, room: usize) -> Vec<String> {
        let list = List::of(folder).max_entries(u64::try_from(self.config.max_skills).unwrap_or(u64::MAX));
        let listing = match host::list_files(session, &list).await {
            Ok(listing) => listing,
            Err(error) if error.code() == RpcError::NOT_FOUND => {
                debug!("there is no folder {folder}");
                return Vec::new();
            }
            Err(error) if error.code() == RpcError::DENIED => {
                if !self.told.replace(true) {
                    warn!("skills in {folder} are left out: grant them with `--grant skills=file:{folder}/**`");
                }
                return Vec::new();
            }
            Err(error) => {
                warn!("skills in {folder} are left out: {error}");
                return Vec::new();
            }
        };
        let entries = listing
            .entries
            .into_iter()
            .filter(|entry| entry.kind == EntryKind::Directory);
        let mut folders: Vec<String> = entries.map(|entry| entry.path).collect();
        if listing.truncated || folders.len() > room {
            warn!(
                "there are more skills than {}: the rest of {folder} is left out",
                self.config.max_skills
            );
        }
        folders.truncate(room);
        folders
    }

    /// What stands in a file of a skill.
    pub(crate) async fn text(&self, session: &str, skill: &Skill, file: &str) -> Result<String, RpcError> {
        let path = format!("{}/{file}", skill.folder);
        let File { mut text, truncated } = host::read_file(session, &path, Some(self.config.max_bytes)).await?;
        if truncated {
            text.push_str("\n[The rest of the file is left out.]\n");
        }
        Ok(text)
    }
}

/// A skill, from the beginning of its file.
fn described(folder: &str, head: Result<File, RpcError>) -> Option<Skill> {
    let head = match head {
        Ok(head) => head,
        Err(error) if error.code() == RpcError::NOT_FOUND => return None,
        Err(error) => {
            warn!("the skill in {folder} is left out: {error}");
            return None;
        }
    };
    let front = front_matter::read(&head.text);
    if let Some(complaint) = front.complaint {
        warn!("{folder}/SKILL.md: {complaint}");
    }
    let own = folder.rsplit('/').next().unwrap_or(folder);
    let name = one_line(front.name.as_deref().unwrap_or(own), MAX_NAME);
    let description = one_line(&front.description.unwrap_or_default(), MAX_DESCRIPTION);
    Some(Skill {
        name,
        description,
        folder: folder.to_owned(),
    })
}

/// A text in one line, of at most so many bytes.
fn one_line(text: &str, most: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line: String = words
        .join(" ")
        .chars()
        .filter(|character| !character.is_control())
        .collect();
    match line.len() > most {
        true => format!("{}…", &line[..line.floor_char_boundary(most)]),
        false => line,
    }
}
