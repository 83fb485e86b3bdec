//! Named groups of proxies: a group stands in a chain, or in another group, like one proxy, and is its members in their order.

use super::reader::{Item, Reader};
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
        let table = reader.table(item, "groups")?;
        for (name, _) in table {
            if !is_name(name.get_ref()) {
                return Err(reader.wrong(
                    name.span(),
                    "a group's name must be one line of text without `/` or `=`",
                ));
            }
            groups.resolve(reader, item, name.get_ref(), &mut Vec::new())?;
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
        open.push(name.to_owned());
        if open.len() > MAX_NESTING {
            return Err(reader.wrong(item.span(), &format!("groups nest deeper than {MAX_NESTING} levels")));
        }
        for member in members(reader, item, &format!("groups.{name}"))? {
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
        let proxies = self.members(reader, item, &format!("groups.{name}"))?;
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
                        let known: Vec<&str> = self.ready.keys().map(String::as_str).collect();
                        let known = match known.as_slice() {
                            [] => "the file has no [groups]".to_owned(),
                            known => format!("there are {}", known.join(", ")),
                        };
                        return Err(reader.wrong(member.span(), &format!("there is no group \"{name}\"; {known}")));
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

    /// All groups by their names.
    pub(super) fn all(self) -> BTreeMap<String, Vec<ProxyOptions>> {
        self.ready
    }
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
