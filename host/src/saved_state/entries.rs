//! Keys and values, and the file that they make: JSON, one entry a line, values byte for byte.

use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::io;

/// Bytes on disk of an entry beside key and value: a colon, a comma and a line end.
const AROUND: usize = 3;

/// The entries of one proxy.
#[derive(Debug, Default)]
pub(super) struct Entries(BTreeMap<String, Box<RawValue>>);

#[derive(Deserialize)]
struct Document {
    state: BTreeMap<String, Box<RawValue>>,
}

impl Entries {
    /// Reads a file's content.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let document: Document = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        Ok(Self(document.state))
    }

    /// A file's content. The proxy's name is there for people: the file's name has only a part of it.
    pub(super) fn to_bytes(&self, proxy: &str) -> Vec<u8> {
        let mut text = format!("{{\"proxy\":{},\"state\":{{", quoted(proxy));
        for (number, (key, value)) in self.0.iter().enumerate() {
            text.push_str(if number == 0 { "\n" } else { ",\n" });
            text.push_str(&quoted(key));
            text.push(':');
            text.push_str(value.get());
        }
        text.push_str("}}\n");
        text.into_bytes()
    }

    /// Bytes on disk.
    pub(super) fn size(&self) -> u64 {
        let sizes = self
            .0
            .iter()
            .map(|(key, value)| quoted(key).len() + value.get().len() + AROUND);
        sizes.sum::<usize>() as u64
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|value| value.get())
    }

    /// Sets a key to JSON text.
    ///
    /// # Errors
    ///
    /// If it is none.
    pub(super) fn set(&mut self, key: String, value: String) -> io::Result<()> {
        self.0.insert(key, RawValue::from_string(value)?);
        Ok(())
    }

    /// Says whether it was there.
    pub(super) fn remove(&mut self, key: &str) -> bool {
        self.0.remove(key).is_some()
    }

    pub(super) fn keys(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
