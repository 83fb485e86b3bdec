//! JSON the naive way: a tree of spans, made by recursion, of text that is known to be valid. It looks nothing like the scanner
//! that it is compared with.

use std::ops::Range;

/// A value and where it stands.
pub struct Node {
    /// Its first byte to behind its last.
    pub span: Range<usize>,
    /// What it is.
    pub kind: Kind,
}

/// What a value is.
pub enum Kind {
    /// An object.
    Object(Vec<Member>),
    /// An array.
    Array(Vec<Node>),
    /// Anything else.
    Scalar,
}

/// A member of an object.
pub struct Member {
    /// Where its key begins.
    pub start: usize,
    /// The key decoded; none if it is no Unicode (half of a surrogate pair).
    pub key: Option<String>,
    /// The value.
    pub value: Node,
}

/// Whether text is exactly one JSON value.
pub fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// What JSON calls white space, taken off.
pub fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\r', '\n'])
}

/// Parses valid text.
pub fn parse(text: &str) -> Node {
    assert!(is_json(text), "the reference was asked about {text:?}");
    Parser { text, at: 0 }.value()
}

/// The tokens of a pointer, decoded.
pub fn tokens(pointer: &str) -> Option<Vec<String>> {
    if pointer.is_empty() {
        return Some(Vec::new());
    }
    let mut tokens = Vec::new();
    let mut token = None::<String>;
    let mut letters = pointer.chars();
    while let Some(letter) = letters.next() {
        if letter == '/' {
            tokens.extend(token.replace(String::new()));
            continue;
        }
        token.as_mut()?.push(match letter {
            '~' => match letters.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            other => other,
        });
    }
    tokens.extend(token);
    Some(tokens)
}

/// An array's index.
pub fn index(token: &str) -> Option<usize> {
    let number: usize = token.parse().ok()?;
    (number.to_string() == token).then_some(number)
}

impl Node {
    /// The child that a token leads to; of members with the same key the first.
    pub fn child(&self, token: &str) -> Option<&Node> {
        match &self.kind {
            Kind::Object(members) => members
                .iter()
                .find(|member| member.key.as_deref() == Some(token))
                .map(|member| &member.value),
            Kind::Array(elements) => elements.get(index(token)?),
            Kind::Scalar => None,
        }
    }

    /// What stands at a pointer.
    pub fn at(&self, tokens: &[String]) -> Option<&Node> {
        tokens.iter().try_fold(self, |node, token| node.child(token))
    }

    /// How deeply it nests.
    pub fn depth(&self) -> usize {
        match &self.kind {
            Kind::Scalar => 0,
            _ => 1 + self.children().map(Node::depth).max().unwrap_or(0),
        }
    }

    /// Whether all keys are Unicode and none is in its object twice.
    pub fn is_plain(&self) -> bool {
        let keys = match &self.kind {
            Kind::Object(members) => members.iter().enumerate().all(|(index, member)| {
                member.key.is_some() && members[..index].iter().all(|other| other.key != member.key)
            }),
            _ => true,
        };
        keys && self.children().all(Node::is_plain)
    }

    fn children(&self) -> Box<dyn Iterator<Item = &Node> + '_> {
        match &self.kind {
            Kind::Object(members) => Box::new(members.iter().map(|member| &member.value)),
            Kind::Array(elements) => Box::new(elements.iter()),
            Kind::Scalar => Box::new(std::iter::empty()),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    /// The next byte that is no white space, which stays where it is.
    fn next(&mut self) -> u8 {
        while matches!(self.text.as_bytes()[self.at], b' ' | b'\t' | b'\r' | b'\n') {
            self.at += 1;
        }
        self.text.as_bytes()[self.at]
    }

    /// Takes that byte if it is the one that is asked for.
    fn takes(&mut self, byte: u8) -> bool {
        let is = self.next() == byte;
        self.at += usize::from(is);
        is
    }

    fn value(&mut self) -> Node {
        let first = self.next();
        let start = self.at;
        let kind = match first {
            b'{' => Kind::Object(self.list(b'}', Self::member)),
            b'[' => Kind::Array(self.list(b']', Self::value)),
            b'"' => {
                self.string();
                Kind::Scalar
            }
            _ => {
                let rest = &self.text[start..];
                self.at += rest.find([',', ']', '}', ' ', '\t', '\r', '\n']).unwrap_or(rest.len());
                Kind::Scalar
            }
        };
        Node {
            span: start..self.at,
            kind,
        }
    }

    fn list<T>(&mut self, end: u8, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        self.at += 1;
        let mut all = Vec::new();
        while !self.takes(end) {
            if !all.is_empty() {
                assert!(self.takes(b','));
            }
            all.push(one(self));
        }
        all
    }

    fn member(&mut self) -> Member {
        self.next();
        let start = self.at;
        let key = serde_json::from_str(self.string()).ok();
        assert!(self.takes(b':'));
        Member {
            start,
            key,
            value: self.value(),
        }
    }

    fn string(&mut self) -> &str {
        let start = self.at;
        let mut escaped = false;
        for (offset, letter) in self.text[start..].char_indices().skip(1) {
            match letter {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => {
                    self.at = start + offset + 1;
                    return &self.text[start..self.at];
                }
                _ => {}
            }
        }
        unreachable!("valid text ends its strings")
    }
}
