//! What can be made out of a line that is refused: its id, and whether it calls a method. Looks at each byte once, in as many
//! pieces as they come in, and remembers next to nothing, so that even what is never held as a whole gets its answer. Must not
//! judge: what it looks at may be no JSON at all.

use super::envelope::Id;
use serde_json::value::RawValue;

/// Bytes of a key or a value that are remembered. Longer ids are nobody's.
const REMEMBERED: usize = 1024;

/// Where in the outermost object the next byte stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Before its brace.
    #[default]
    Before,
    /// In a key, or before it.
    Key,
    /// In a value, or before it.
    Value,
    /// Behind the end, or in what is no object.
    Over,
}

/// A look at a line, in pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skim {
    place: Place,
    /// Objects and arrays that are open inside of the outermost one.
    depth: u64,
    in_string: bool,
    escaped: bool,
    /// The key or value at hand; none if it is not worth remembering.
    token: Option<Vec<u8>>,
    key: Vec<u8>,
    id: Option<Vec<u8>>,
    /// There are several ids: none of them counts.
    ambiguous: bool,
    method: bool,
    /// There is what only a message has: an outcome, or the version of JSON-RPC.
    message: bool,
}

impl Skim {
    /// A look at a whole line, or at its beginning.
    pub fn of(line: &[u8]) -> Self {
        let mut skim = Self::default();
        skim.feed(line);
        skim
    }

    /// Looks at all of a refused line: at each part of a batch, and at what stands behind a word on the same line.
    pub fn all_of(line: &[u8]) -> Vec<Self> {
        if line.trim_ascii_start().starts_with(b"[")
            && let Ok(parts) = serde_json::from_slice::<Vec<&RawValue>>(line)
        {
            return parts.into_iter().map(|part| Self::of(part.get().as_bytes())).collect();
        }
        let begin = memchr::memchr(b'{', line).unwrap_or(0);
        vec![Self::of(&line[begin..])]
    }

    /// Goes on with the next bytes.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.place == Place::Over {
                return;
            }
            if self.in_string && !self.escaped && self.token.is_none() {
                // Most of a long line is inside of strings that say nothing here.
                let Some(end) = memchr::memchr2(b'"', b'\\', bytes) else {
                    return;
                };
                self.next(bytes[end]);
                bytes = &bytes[end + 1..];
                continue;
            }
            self.next(byte);
            bytes = rest;
        }
    }

    /// The id of the request that the line is, if it is one and both can be made out.
    pub fn asked(&self) -> Option<Id> {
        let id = std::str::from_utf8(self.id.as_ref()?).ok()?;
        (self.method && !self.ambiguous).then(|| Id::parse(id))?
    }

    /// The number of the request that the line answers, if it is a response to one of Consort's.
    pub fn answered(&self) -> Option<u64> {
        let id = std::str::from_utf8(self.id.as_ref()?).ok()?;
        // Some peers keep numbers as floating point.
        let id = id.strip_suffix(".0").unwrap_or(id);
        (self.message && !self.method && !self.ambiguous).then(|| id.parse().ok())?
    }

    fn next(&mut self, byte: u8) {
        if self.in_string {
            self.remember(byte);
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match (self.place, byte) {
            (_, b' ' | b'\t' | b'\r' | b'\n') => {}
            (Place::Before, b'{') => self.begin(Place::Key),
            (Place::Before, _) => self.place = Place::Over,
            (_, b'"') => {
                self.in_string = true;
                self.remember(byte);
            }
            (_, b'{' | b'[') => {
                self.depth += 1;
                self.token = None;
            }
            (_, b'}' | b']') if self.depth > 0 => self.depth -= 1,
            (Place::Value, b'}') => {
                self.member();
                self.place = Place::Over;
            }
            (_, b'}' | b']') => self.place = Place::Over,
            (Place::Key, b':') if self.depth == 0 => {
                self.key = self.token.take().unwrap_or_default();
                match self.key.as_slice() {
                    b"\"method\"" => self.method = true,
                    b"\"result\"" | b"\"error\"" | b"\"jsonrpc\"" => self.message = true,
                    _ => {}
                }
                self.begin(Place::Value);
            }
            (Place::Value, b',') if self.depth == 0 => {
                self.member();
                self.begin(Place::Key);
            }
            _ => self.remember(byte),
        }
    }

    fn begin(&mut self, place: Place) {
        self.place = place;
        self.token = Some(Vec::new());
    }

    fn remember(&mut self, byte: u8) {
        match &mut self.token {
            Some(token) if token.len() < REMEMBERED => token.push(byte),
            token => *token = None,
        }
    }

    /// A member of the outermost object is complete.
    fn member(&mut self) {
        if self.key == b"\"id\"" {
            self.ambiguous |= self.id.is_some();
            self.id = self.token.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_answer_still_tells_its_id() {
        let answered = |line: &[u8]| Skim::of(line).answered();
        assert_eq!(answered(br#"{"jsonrpc":"2.0","id":5,"result":{"#), Some(5));
        assert_eq!(answered(b"{\"result\":\"\xff\",\"id\":5}"), Some(5));
        assert_eq!(answered(br#" { "result" : {"id":6,"x":["}"]} , "id" : 5 } "#), Some(5));
        assert_eq!(answered(br#"{"result":"\"id\":6,","id":5}"#), Some(5));
        assert_eq!(answered(br#"{"id":5.0,"result":{}}"#), Some(5));
        assert_eq!(answered(br#"{"id":5,"method":"x","params":7}"#), None);
        assert_eq!(answered(br#"{"params":7,"method":"x","id":5}"#), None);
        assert_eq!(answered(br#"{"level":30,"id":5,"msg":"a line of a log"}"#), None);
        assert_eq!(answered(br#"{"id":5,"id":6,"result":{}}"#), None);
        assert_eq!(answered(br#"{"jsonrpc":"2.0","id":5}"#), Some(5));
        assert_eq!(answered(b"a banner with {\"id\":5}"), None);
        assert_eq!(answered(br#"[{"id":5}]"#), None);
        assert_eq!(answered(b"{}"), None);
        assert_eq!(answered(b""), None);
    }

    #[test]
    fn answers_are_found_in_batches_and_behind_words() {
        let answered = |line: &[u8]| Skim::all_of(line).iter().filter_map(Skim::answered).collect::<Vec<_>>();
        assert_eq!(
            answered(br#" [{"id":1,"result":2},{"id":3,"method":"x"},4,{"error":{},"id":5}]"#),
            [1, 5]
        );
        assert_eq!(answered(br#"Loading...{"jsonrpc":"2.0","id":7,"result":1}"#), [7]);
        assert_eq!(answered(b"[{\"id\":1,\"result\":2},"), [1]);
        assert_eq!(answered(b"a banner"), [0_u64; 0]);
    }

    #[test]
    fn an_id_of_any_kind_is_found_wherever_it_stands() {
        for id in ["7", "-1", "\"a\\\"b\"", "null"] {
            let (long, nested) = ("x".repeat(5000), "[".repeat(300) + &"]".repeat(300));
            let line = format!(r#"{{"method":"m","params":{{"id":1,"t":"{long}","n":{nested}}},"id":{id}}}"#);
            for step in [1, 7, line.len()] {
                let mut skim = Skim::default();
                line.as_bytes().chunks(step).for_each(|piece| skim.feed(piece));
                assert_eq!(skim.asked(), Id::parse(id), "{id} in steps of {step}");
                assert_eq!(skim.answered(), None, "it calls a method");
            }
        }
    }
}
