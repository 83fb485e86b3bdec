//! The tools `search` and `list_files`. Owns how much is read at once and how much is told.

use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Duration;

use consort_proxy::glob::{Case, Glob};
use consort_proxy::host::{self, Entry, EntryKind, File, List};
use consort_proxy::mcp::{Caller, Failure, Server};
use consort_proxy::schemars::{self, JsonSchema};
use consort_proxy::{RpcError, debug};
use serde::Deserialize;

use crate::lines::{self, Wanted};
use crate::{Config, reads_only, session};

/// Files that are read at the same time.
const AT_ONCE: usize = 8;

/// How often a file is asked for again, and when.
const MAX_TRIES: usize = 100;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// Matches and entries that are told if the agent does not say how many, and at most.
const DEFAULT_RESULTS: usize = 100;
const MAX_RESULTS: usize = 1_000;

/// Bytes of all that is told, and of one line of it: what a model can read.
const MAX_TOLD: usize = 64 << 10;
const MAX_LINE: usize = 300;

/// How deep folders are searched: as deep as the host goes.
const DEPTH: u32 = 32;

/// Entries that are asked for at once.
const PAGE: u64 = 2_000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Search {
    /// The text to look for in each line, or a regular expression if `regex` is true.
    query: String,
    /// Whether `query` is a regular expression (without look-around and back-references).
    #[serde(default)]
    regex: bool,
    /// Whether upper and lower case are the same.
    #[serde(default)]
    ignore_case: bool,
    /// The folder to search, relative to the project; all of it if left out.
    #[serde(default)]
    path: Option<String>,
    /// Only files whose name matches this, such as `*.rs`.
    #[serde(default)]
    files: Option<String>,
    /// The most matches to give: 100 if left out, 1000 at most.
    #[serde(default)]
    max: Option<usize>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListFiles {
    /// The folder, relative to the project; the project itself if left out.
    #[serde(default)]
    path: Option<String>,
    /// How many folders deep: 1, the folder alone, if left out.
    #[serde(default)]
    depth: Option<u32>,
    /// Only what comes behind this path: the last one of a list that was cut.
    #[serde(default)]
    after: Option<String>,
    /// The most entries to give: 100 if left out, 1000 at most.
    #[serde(default)]
    max: Option<usize>,
}

/// Adds the tools.
pub(crate) fn offer(server: Server, config: Config) -> Server {
    let config = Rc::new(config);
    let searched = config.clone();
    server
        .tool_with(
            "search",
            "Searches the project's text files line by line and gives `path:line: text` for each match",
            reads_only(),
            async move |search: Search, caller: Caller| find(&searched, search, &caller).await,
        )
        .tool_with(
            "list_files",
            "Lists files and folders of the project; folders end with a slash, files come with their size in bytes",
            reads_only(),
            async move |list: ListFiles, caller: Caller| show(&config, list, &caller).await,
        )
}

/// What is told, up to a bound.
struct Told {
    text: String,
    count: usize,
    most: usize,
}

impl Told {
    fn new(max: Option<usize>) -> Self {
        Self {
            text: String::new(),
            count: 0,
            most: max.unwrap_or(DEFAULT_RESULTS).clamp(1, MAX_RESULTS),
        }
    }

    /// Adds a line; says whether there was room.
    fn add(&mut self, line: &str) -> bool {
        let fits = self.count < self.most && self.text.len() + line.len() < MAX_TOLD;
        if fits {
            self.text.push_str(line);
            self.text.push('\n');
            self.count += 1;
        }
        fits
    }
}

async fn find(config: &Config, search: Search, caller: &Caller) -> Result<String, Failure> {
    let session = session(caller)?;
    let wanted = Wanted::new(&search.query, search.regex, search.ignore_case)?;
    let glob = search.files.as_deref().map(lines::names).transpose()?;
    let folder = search.path.unwrap_or_default();
    let (files, mut all_seen) = searchable(config, session, &folder, glob.as_ref()).await?;
    let mut told = Told::new(search.max);
    let mut left_out = 0;
    let mut enough = false;
    let mut done = 0_usize;
    for batch in files.chunks(AT_ONCE) {
        // All of a batch are under way before the first is awaited.
        let reads: Vec<_> = batch
            .iter()
            .map(|path| (path, host::read_file(session, path, Some(config.max_file_bytes))))
            .collect();
        for (path, read) in reads {
            match patiently(read.await, || {
                host::read_file(session, path, Some(config.max_file_bytes))
            })
            .await
            {
                Ok(file) if !enough => {
                    for (number, line) in wanted.lines(&file.text) {
                        if !told.add(&format!("{path}:{number}: {}", shortened(line))) {
                            enough = true;
                            break;
                        }
                    }
                }
                Ok(_) => {}
                // Most are not text; others are gone by now.
                Err(error) => {
                    debug!("{path} is not searched: {error}");
                    left_out += 1;
                }
            }
        }
        done += batch.len();
        if enough {
            all_seen = true;
            break;
        }
        caller.progress(count(done), Some(count(files.len())), None);
    }
    let Told { mut text, count, .. } = told;
    if count == 0 {
        text.push_str("nothing matches\n");
    }
    if enough {
        text.push_str("(there are more matches: narrow the search, or ask for more with `max`)\n");
    }
    if !all_seen {
        let most = config.max_files;
        let _ = writeln!(
            text,
            "(only the first {most} files were searched: give a `path` or `files`)"
        );
    }
    if left_out > 0 {
        let _ = writeln!(text, "({left_out} files are no text or could not be read)");
    }
    Ok(text)
}

/// Reads again if the host had too much to do for this proxy: other searches are under way.
async fn patiently<R>(first: Result<File, RpcError>, again: impl Fn() -> R) -> Result<File, RpcError>
where
    R: Future<Output = Result<File, RpcError>>,
{
    let mut read = first;
    for _ in 0..MAX_TRIES {
        match &read {
            Err(error) if error.code() == RpcError::QUOTA => host::sleep(BETWEEN_TRIES).await?,
            _ => break,
        }
        read = again().await;
    }
    read
}

#[allow(clippy::cast_precision_loss, reason = "far fewer than a float can count")]
fn count(number: usize) -> f64 {
    number as f64
}

/// The files to search, and whether those are all.
async fn searchable(
    config: &Config,
    session: &str,
    folder: &str,
    glob: Option<&Glob>,
) -> Result<(Vec<String>, bool), Failure> {
    let list = List::of(folder).depth(DEPTH).skip(config.skip.iter()).max_entries(PAGE);
    let mut files = Vec::new();
    let mut page = list.clone();
    loop {
        let listing = host::list_files(session, &page).await.map_err(explained)?;
        let last = listing.entries.last().map(|entry| entry.path.clone());
        let is_wanted = |entry: &Entry| {
            let name = entry.path.rsplit('/').next().unwrap_or_default();
            entry.kind == EntryKind::File
                && entry.size.is_none_or(|size| size <= config.max_file_bytes)
                && glob.is_none_or(|glob| glob.matches(name, Case::Exact))
        };
        for entry in listing.entries {
            if is_wanted(&entry) {
                if files.len() == config.max_files {
                    return Ok((files, false));
                }
                files.push(entry.path);
            }
        }
        match last {
            Some(last) if listing.truncated => page = list.clone().after(last),
            _ => return Ok((files, !listing.truncated)),
        }
    }
}

async fn show(config: &Config, wanted: ListFiles, caller: &Caller) -> Result<String, Failure> {
    let mut told = Told::new(wanted.max);
    let mut list = List::of(wanted.path.unwrap_or_default())
        .depth(wanted.depth.unwrap_or(1))
        .skip(config.skip.iter())
        .max_entries(u64::try_from(told.most).unwrap_or(PAGE));
    if let Some(after) = wanted.after {
        list = list.after(after);
    }
    let listing = host::list_files(session(caller)?, &list).await.map_err(explained)?;
    let mut truncated = listing.truncated;
    for entry in &listing.entries {
        let line = match (entry.kind, entry.size) {
            (EntryKind::Directory, _) => format!("{}/", entry.path),
            (_, Some(size)) => format!("{} ({size})", entry.path),
            (_, None) => entry.path.clone(),
        };
        if !told.add(&line) {
            truncated = true;
            break;
        }
    }
    let Told { mut text, count, .. } = told;
    if count == 0 {
        text.push_str("there is nothing\n");
    }
    if truncated {
        text.push_str("(there is more: go on with `after` as the last path, or ask for more with `max`)\n");
    }
    Ok(text)
}

/// Tells the model what went wrong, and the user what to grant.
fn explained(error: RpcError) -> Failure {
    match error.code() {
        RpcError::DENIED => {
            let grant = "the user has not allowed this: Consort's option `--grant tools=file:**` does";
            format!("{} ({grant})", error.message()).into()
        }
        _ => error.into(),
    }
}

fn shortened(line: &str) -> String {
    let line = line.trim_end();
    match line.len() > MAX_LINE {
        true => format!("{}…", &line[..line.floor_char_boundary(MAX_LINE)]),
        false => line.to_owned(),
    }
}
