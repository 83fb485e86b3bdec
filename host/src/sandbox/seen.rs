//! Where a proxy has looked last in a text: it nearly always looks beside that next, and edits what it has read.

use crate::wire::scan::{self, Found};
use crate::wire::text::Text;
use std::ops::Range;

/// Bytes of the longest pointer that is remembered: longer ones are rare, and a proxy could fill the memory with them.
const MAX_POINTER: usize = 256;

/// A pointer, and where it leads in one text.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pointer: String,
    found: Found,
}

impl Seen {
    /// Finds what stands at a pointer, from where the proxy has looked last if that is on the way; remembers it.
    pub(super) fn find(seen: &mut Option<Self>, text: &Text, pointer: String) -> Option<Range<usize>> {
        let known = seen.as_ref();
        if let Some(place) = known.and_then(|known| known.at(&pointer)) {
            return Some(place);
        }
        let below = known.and_then(|known| Some((known.found.container, known.beside(&pointer)?)));
        let (from, rest) = below.unwrap_or((0, &pointer));
        let found = scan::find_from(text, from, rest)?;
        let place = found.value.clone();
        if pointer.len() <= MAX_POINTER {
            *seen = Some(Self { pointer, found });
        }
        Some(place)
    }

    /// Where this pointer leads, if it is the one that is known.
    pub(super) fn at(&self, pointer: &str) -> Option<Range<usize>> {
        (!pointer.is_empty() && *pointer == *self.pointer).then(|| self.found.value.clone())
    }

    /// The rest of a pointer that leads through the same container.
    fn beside<'p>(&self, pointer: &'p str) -> Option<&'p str> {
        let container = self.pointer.rsplit_once('/')?.0;
        let rest = pointer.strip_prefix(container)?;
        rest.starts_with('/').then_some(rest)
    }

    /// The same in the text in which what stands there was replaced by so many bytes.
    pub(super) fn replaced(mut self, len: usize) -> Self {
        self.found.value.end = self.found.value.start + len;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_changes_nothing_but_the_way() {
        let json = r#" {"a": {"b": [1, {"c/d": "x", "e": {}}], "b": 2, "": {"": 3}}, "f~": "y", "ab": {"b": 4}} "#;
        let text = Text::trusted(json.trim().to_owned());
        let pointers = [
            "",
            "/",
            "/a",
            "/a/",
            "/a//",
            "/a/b",
            "/a/b/0",
            "/a/b/1",
            "/a/b/1/c~1d",
            "/a/b/1/e",
            "/a/b/1/e/x",
            "/a/b/2",
            "/a/b/-",
            "/f~0",
            "/f~",
            "/ab",
            "/ab/b",
            "/ab/c",
            "a",
            "/a/b/01",
        ];
        let mut seen = None;
        for first in pointers {
            for second in pointers {
                for pointer in [first, second, first] {
                    let found = Seen::find(&mut seen, &text, pointer.to_owned());
                    assert_eq!(
                        found,
                        scan::find(&text, pointer),
                        "{pointer:?} between {first:?} and {second:?}"
                    );
                }
            }
        }
    }
}
