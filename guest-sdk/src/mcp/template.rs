//! URIs with variables in braces, such as `db://{table}/rows/{row}`. Owns which URIs are of such a kind.

use std::collections::BTreeMap;

/// What stands in a URI in the places of a template's variables, if it is of that kind. A variable is at least one character, and no `/`;
/// it ends where the text behind it first begins.
pub(super) fn variables(template: &str, uri: &str) -> Option<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let mut pieces = template.split('{');
    let mut rest = uri.strip_prefix(pieces.next()?)?;
    for piece in pieces {
        let (name, text) = piece.split_once('}')?;
        let end = match text {
            "" => rest.len(),
            // The first character is the variable's own.
            text => {
                let second = rest.chars().next()?.len_utf8();
                rest[second..].find(text)? + second
            }
        };
        let (value, after) = rest.split_at(end);
        if value.is_empty() || value.contains('/') {
            return None;
        }
        found.insert(name.to_owned(), value.to_owned());
        rest = after.strip_prefix(text)?;
    }
    rest.is_empty().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_is_of_a_kind_or_not() {
        for (template, uri, expected) in [
            ("a://{id}/b", "a://1/b", Some(vec![("id", "1")])),
            ("a://{x}-{y}", "a://é-ü-u", Some(vec![("x", "é"), ("y", "ü-u")])),
            ("a://b", "a://b", Some(vec![])),
            ("a://{id}/b", "a:///b", None),
            ("a://{id}/b", "a://1/2/b", None),
            ("a://{id}/b", "a://1/b/c", None),
            ("a://{id}", "a://", None),
            ("a://{id", "a://1", None),
            ("a://{id}", "b://1", None),
        ] {
            let expected = expected.map(|all| {
                let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
                all.into_iter().map(pair).collect()
            });
            assert_eq!(variables(template, uri), expected, "{template} {uri}");
        }
    }
}
