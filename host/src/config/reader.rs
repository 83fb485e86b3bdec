//! Typed looks into a TOML document, with file and line in what is said of a mistake. Must not know what stands in a
//! configuration.

use crate::units::{bytes, shown};
use anyhow::anyhow;
use serde_json::{Map, Number, Value};
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub(super) type Table<'a> = DeTable<'a>;
pub(super) type Item<'a> = Spanned<DeValue<'a>>;

/// Reads a parsed document; keeps text and file for what it says about mistakes.
pub(super) struct Reader<'a> {
    pub(super) text: &'a str,
    pub(super) file: &'a Path,
}

impl Reader<'_> {
    /// A number of bytes, or a text like `16 MiB`.
    pub(super) fn size(&self, item: &Item<'_>, name: &str, allowed: RangeInclusive<u64>) -> anyhow::Result<u64> {
        let bytes = match item.get_ref() {
            DeValue::String(text) => bytes(text),
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        bytes.filter(|bytes| allowed.contains(bytes)).ok_or_else(|| {
            let range = format!("{} to {}", shown(*allowed.start()), shown(*allowed.end()));
            self.wrong(
                item.span(),
                &format!("`{name}` must be a size from {range}, such as \"16 MiB\""),
            )
        })
    }

    pub(super) fn table<'a, 'i>(&self, item: &'a Item<'i>, name: &str) -> anyhow::Result<&'a Table<'i>> {
        item.get_ref()
            .as_table()
            .ok_or_else(|| self.expected(item, name, "a table"))
    }

    pub(super) fn string<'a>(&self, item: &'a Item<'_>, name: &str) -> anyhow::Result<&'a str> {
        item.get_ref()
            .as_str()
            .ok_or_else(|| self.expected(item, name, "a string"))
    }

    pub(super) fn strings<T: From<String>>(&self, item: &Item<'_>, name: &str) -> anyhow::Result<Vec<T>> {
        let array = item
            .get_ref()
            .as_array()
            .ok_or_else(|| self.expected(item, name, "a list of strings"))?;
        array
            .iter()
            .map(|item| Ok(self.string(item, name)?.to_owned().into()))
            .collect()
    }

    pub(super) fn integer(&self, item: &Item<'_>, name: &str) -> anyhow::Result<u64> {
        item.get_ref()
            .as_integer()
            .and_then(|number| u64::from_str_radix(number.as_str(), number.radix()).ok())
            .ok_or_else(|| self.expected(item, name, "a whole number, not negative"))
    }

    pub(super) fn object(&self, table: &Table<'_>) -> anyhow::Result<Map<String, Value>> {
        table
            .iter()
            .map(|(key, item)| Ok((key.get_ref().to_string(), self.json(item)?)))
            .collect()
    }

    pub(super) fn json(&self, item: &Item<'_>) -> anyhow::Result<Value> {
        Ok(match item.get_ref() {
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Boolean(value) => Value::Bool(*value),
            DeValue::Datetime(moment) => Value::String(moment.to_string()),
            DeValue::Integer(number) => {
                let (text, radix) = (number.as_str(), number.radix());
                let value = i64::from_str_radix(text, radix)
                    .map(Number::from)
                    .or_else(|_| u64::from_str_radix(text, radix).map(Number::from));
                Value::Number(value.map_err(|_| self.wrong(item.span(), &format!("{text} is too large a number")))?)
            }
            DeValue::Float(number) => number
                .as_str()
                .parse()
                .ok()
                .and_then(Number::from_f64)
                .map(Value::Number)
                .ok_or_else(|| self.wrong(item.span(), &format!("{} has no place in JSON", number.as_str())))?,
            DeValue::Array(items) => Value::Array(
                items
                    .iter()
                    .map(|item| self.json(item))
                    .collect::<anyhow::Result<_>>()?,
            ),
            DeValue::Table(table) => Value::Object(self.object(table)?),
        })
    }

    /// A path of the file, relative to the file's folder or to the home directory.
    pub(super) fn path(&self, text: &str) -> PathBuf {
        let path = super::expand_home(text.into());
        match self.file.parent() {
            Some(folder) => folder.join(path),
            None => path,
        }
    }

    /// Complains about the first key that is not among the known ones.
    pub(super) fn only(&self, table: &Table<'_>, place: &str, known: &[&str]) -> anyhow::Result<()> {
        let unknown = table
            .iter()
            .map(|(key, _)| key)
            .filter(|key| !known.contains(&key.get_ref().as_ref()))
            .min_by_key(|key| key.span().start);
        let Some(key) = unknown else { return Ok(()) };
        let hint = match nearest(key.get_ref(), known) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("known are {}", known.join(", ")),
        };
        Err(self.wrong(
            key.span(),
            &format!("unknown key `{}` in {place}; {hint}", key.get_ref()),
        ))
    }

    pub(super) fn expected(&self, item: &Item<'_>, name: &str, what: &str) -> anyhow::Error {
        self.wrong(
            item.span(),
            &format!(
                "`{name}` must be {what}, not {}",
                match item.get_ref() {
                    DeValue::String(_) => "a string",
                    DeValue::Integer(_) | DeValue::Float(_) => "a number",
                    DeValue::Boolean(_) => "true or false",
                    DeValue::Datetime(_) => "a date",
                    DeValue::Array(_) => "a list",
                    DeValue::Table(_) => "a table",
                }
            ),
        )
    }

    pub(super) fn wrong(&self, span: Range<usize>, what: &str) -> anyhow::Error {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        anyhow!("{}:{line}: {what}", self.file.display())
    }
}

pub(super) fn one_line(text: &str) -> String {
    text.lines().collect::<Vec<_>>().join(", ")
}

/// The known name that the other one was probably meant to be.
pub(super) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|candidate| (distance(name, candidate), *candidate))
        // A third of the letters may be wrong, but not the only one.
        .filter(|(distance, candidate)| {
            let letters = candidate.chars().count();
            *distance <= letters.div_ceil(3) && *distance < letters
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many letters have to be inserted, removed or replaced to turn one word into the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut previous: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.chars().enumerate() {
        let mut current = vec![row + 1];
        for (column, candidate) in other.iter().enumerate() {
            let replaced = previous[column] + usize::from(letter != *candidate);
            current.push(replaced.min(previous[column + 1] + 1).min(current[column] + 1));
        }
        previous = current;
    }
    previous[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_or_none() {
        assert_eq!(nearest("inherit_env", &["env", "inherit-env"]), Some("inherit-env"));
        assert_eq!(nearest("proxy", &["agent", "proxies"]), Some("proxies"));
        assert_eq!(nearest("zzz", &["agent", "proxies"]), None);
        assert_eq!(nearest("x", &["a", "b"]), None);
    }
}
