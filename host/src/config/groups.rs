//! Named groups of proxies: a group stands in a chain, or in another group, like one proxy, and is its members in their order.

use super::reader::{Item, Reader, nearest};
use super::{is_name, join};
use crate::connection::ProxyOptions;
use std::collections::BTreeMap;
use toml::de::DeValue;

/// The most proxies of one chain: groups of groups grow fast.
const MAX_PROXIES: usize = 1_000;

/// How deeply groups may stand in groups.
const MAX_NESTING: usize = 16;

/// The groups of a file. Those that others need are read first, whatever the order in the file.
#[derive(Default)]
pub(super) struct Groups {
    /// Of all of them, in the order of the alphabet.
    names: Vec<String>,
    ready: BTreeMap<String, Vec<ProxyOptions>>,
}

impl Groups {
    /// Reads the table of all groups.
    ///
    /// # Errors
    ///
    /// What is wrong with one of them, with file and line; also a group that contains itself.
    pub(super) fn read(reader: &Reader<'_>, item: &Item<'_>) -> anyhow::Result<Self> {
        let mut groups = Self::default();
        for (name, _) in reader.table(item, "groups")? {
            if !is_name(name.get_ref()) {
                return Err(reader.wrong(
                    name.span(),
                    "a group's name must be one line of text without `/` or `=`",
                ));
            }
            groups.names.push(name.get_ref().to_string());
        }
        groups.names.sort();
        for name in groups.names.clone() {
            groups.resolve(reader, item, &name, &mut Vec::new())?;
        }
        Ok(groups)
    }

    fn resolve(
        &mut self,
        reader: &Reader<'_>,
        all: &Item<'_>,
        name: &str,
        open: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        if self.ready.contains_key(name) {
            return Ok(());
        }
        let Some(item) = reader.table(all, "groups")?.get(name) else {
            return Ok(());
        };
        let place = place_of(name);
        open.push(name.to_owned());
        if open.len() > MAX_NESTING {
            return Err(reader.wrong(item.span(), &format!("groups nest deeper than {MAX_NESTING} levels")));
        }
        for member in members(reader, item, &place)? {
            if let Some(needed) = group_of(reader, member)? {
                if open.iter().any(|group| group == needed) {
                    let way = open.join("\" → \"");
                    let what = format!("a group contains itself: \"{way}\" → \"{needed}\"");
                    return Err(reader.wrong(member.span(), &what));
                }
                self.resolve(reader, all, needed, open)?;
            }
        }
        open.pop();
        let proxies = self.members(reader, item, &place)?;
        self.ready.insert(name.to_owned(), proxies);
        Ok(())
    }

    /// Reads a list of proxies and groups; the groups must have been read.
    ///
    /// # Errors
    ///
    /// What is wrong with a member, with file and line.
    pub(super) fn members(
        &self,
        reader: &Reader<'_>,
        item: &Item<'_>,
        place: &str,
    ) -> anyhow::Result<Vec<ProxyOptions>> {
        let mut proxies = Vec::new();
        for member in members(reader, item, place)? {
            match group_of(reader, member)? {
                None => proxies.push(reader.proxy(member, place, &proxies)?),
                Some(name) => {
                    reader.only(
                        reader.table(member, place)?,
                        &format!("[[{place}]] with a `group`"),
                        &["group"],
                    )?;
                    let Some(group) = self.ready.get(name) else {
                        return Err(reader.wrong(member.span(), &self.unknown(name)));
                    };
                    join(name, group, &mut proxies);
                }
            }
            if proxies.len() > MAX_PROXIES {
                return Err(reader.wrong(
                    member.span(),
                    &format!("with all groups written out there are more than {MAX_PROXIES} proxies"),
                ));
            }
        }
        Ok(proxies)
    }

    /// What is said of a group that is not there.
    fn unknown(&self, name: &str) -> String {
        let known: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let hint = match (known.as_slice(), nearest(name, &known)) {
            ([], _) => "the file has no [groups]".to_owned(),
            (known, None) => format!("there are {}", known.join(", ")),
            (known, Some(nearest)) => format!("did you mean \"{nearest}\"? There are {}", known.join(", ")),
        };
        format!("there is no group \"{name}\"; {hint}")
    }

    /// All groups by their names.
    pub(super) fn all(self) -> BTreeMap<String, Vec<ProxyOptions>> {
        self.ready
    }
}

/// A group's place in the file, as TOML writes it.
fn place_of(name: &str) -> String {
    let bare = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    if name.chars().all(bare) {
        return format!("groups.{name}");
    }
    // A name has no control characters, which would need more than this.
    format!("groups.\"{}\"", name.replace('\\', r"\\").replace('"', "\\\""))
}

fn members<'a, 'i>(reader: &Reader<'_>, item: &'a Item<'i>, place: &str) -> anyhow::Result<Vec<&'a Item<'i>>> {
    let array = item.get_ref().as_array().ok_or_else(|| {
        reader.wrong(
            item.span(),
            &format!("`{place}` must be a list: each proxy is a table [[{place}]]"),
        )
    })?;
    Ok(array.iter().collect())
}

/// The group that a member stands for.
fn group_of<'a>(reader: &Reader<'_>, member: &'a Item<'_>) -> anyhow::Result<Option<&'a str>> {
    match member.get_ref() {
        DeValue::Table(table) => table.get("group").map(|name| reader.string(name, "group")).transpose(),
        _ => Ok(None),
    }
}
