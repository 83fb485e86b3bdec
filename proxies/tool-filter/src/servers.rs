//! Which servers there are, by the ids that messages name them with. Owns how much is remembered; what was forgotten is unknown, and rules
//! suspect the worst of it.

use std::collections::{BTreeMap, VecDeque};

use crate::strict::{Members, Unclear};

/// Servers and connections that are remembered.
const MAX_KNOWN: usize = 4_096;

/// Names of one server. One that has more is as good as unknown.
const MAX_NAMES: usize = 16;

/// Bytes of an id that is remembered.
const MAX_ID: usize = 512;

/// The members that are ids of a server, in a set-up and in messages.
pub(crate) const IDS: [&str; 3] = ["id", "serverId", "acpId"];

/// Servers by their ids, and connections to them.
#[derive(Default)]
pub(crate) struct Servers {
    names: Table<Vec<String>>,
    connections: Table<Vec<String>>,
}

impl Servers {
    /// A set-up brings a server with these ids under a name.
    pub(crate) fn is_called(&mut self, ids: &[String], name: &str) {
        for id in ids {
            let names = self.names.get_or_default(id);
            if let Some(names) = names
                && names.len() <= MAX_NAMES
                && !names.iter().any(|known| known == name)
            {
                names.push(name.to_owned());
            }
        }
    }

    /// A connection was made to a server that is called like this.
    pub(crate) fn connected(&mut self, connection: &str, names: &[String]) {
        if let Some(known) = self.connections.get_or_default(connection) {
            // A second one of the same name is both.
            known.extend_from_slice(names);
            known.sort();
            known.dedup();
        }
    }

    /// A connection is over.
    pub(crate) fn disconnected(&mut self, connection: &str) {
        self.connections.0.remove(connection);
    }

    /// All names of the server that these params name, in whatever way; none if it is not known.
    pub(crate) fn named(&self, params: &Members<'_>) -> Result<Option<Vec<String>>, Unclear> {
        let mut all = Vec::new();
        let mut named = false;
        for (key, table) in IDS
            .map(|key| (key, &self.names))
            .into_iter()
            .chain([("connectionId", &self.connections)])
        {
            let Some(id) = params.text(key)? else { continue };
            named = true;
            match table.0.get(&id) {
                Some(names) if !names.is_empty() && names.len() <= MAX_NAMES => all.extend_from_slice(names),
                _ => return Ok(None),
            }
        }
        match named {
            true => Ok(Some(all)),
            false => Err(Unclear("it names no server and no connection".into())),
        }
    }
}

/// A table that forgets what came first.
#[derive(Default)]
struct Table<T>(BTreeMap<String, T>, VecDeque<String>);

impl<T: Default> Table<T> {
    /// The entry of a key; none for a key that is too long.
    fn get_or_default(&mut self, key: &str) -> Option<&mut T> {
        if key.len() > MAX_ID {
            return None;
        }
        if !self.0.contains_key(key) {
            // Keys that are gone already leave room as well.
            while self.1.len() >= MAX_KNOWN
                && let Some(oldest) = self.1.pop_front()
            {
                self.0.remove(&oldest);
            }
            self.1.push_back(key.to_owned());
        }
        Some(self.0.entry(key.to_owned()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(servers: &Servers, json: &str) -> Option<Vec<String>> {
        servers.named(&Members::read(json).unwrap()).unwrap()
    }

    #[test]
    fn a_server_is_known_by_all_of_its_names() {
        let mut servers = Servers::default();
        servers.is_called(&["1".into(), "one".into()], "evil");
        servers.is_called(&["1".into()], "good");
        servers.is_called(&["2".into()], "other");
        servers.connected("c", &["evil".into(), "good".into()]);
        let evil_and_good = Some(vec!["evil".to_owned(), "good".to_owned()]);
        assert_eq!(named(&servers, r#"{"serverId":"1"}"#), evil_and_good);
        assert_eq!(named(&servers, r#"{"connectionId":"c"}"#), evil_and_good);
        assert_eq!(named(&servers, r#"{"acpId":"one"}"#), Some(vec!["evil".to_owned()]));
        let all = named(&servers, r#"{"serverId":"2","connectionId":"c"}"#).unwrap();
        assert!(all.contains(&"evil".to_owned()) && all.contains(&"other".to_owned()));
        assert_eq!(named(&servers, r#"{"serverId":"2","connectionId":"unknown"}"#), None);
        servers.disconnected("c");
        assert_eq!(named(&servers, r#"{"connectionId":"c"}"#), None);
        assert!(servers.named(&Members::read(r#"{"method":"ping"}"#).unwrap()).is_err());
    }

    #[test]
    fn what_is_too_much_is_unknown() {
        let mut servers = Servers::default();
        for number in 0..=MAX_NAMES {
            servers.is_called(&["1".into()], &number.to_string());
        }
        assert_eq!(named(&servers, r#"{"id":"1"}"#), None);
        for number in 0..=MAX_KNOWN {
            servers.is_called(&[format!("s{number}")], "x");
        }
        assert_eq!(named(&servers, r#"{"id":"s0"}"#), None);
        assert!(named(&servers, r#"{"id":"s1"}"#).is_some());
        assert!(servers.names.0.len() <= MAX_KNOWN);
        servers.is_called(&["x".repeat(MAX_ID + 1)], "x");
        assert!(servers.names.0.len() <= MAX_KNOWN);
    }
}
