//! Patterns with wildcards, for lists of anything: characters, or the segments of a path. Owns the matching, in time of pattern times
//! text whatever both are, since an agent may send what is meant to keep a matcher busy.
//!
//! ```
//! use consort_proxy::glob::{Case, Glob};
//!
//! let sources = Glob::new("*.rs");
//! assert!(sources.matches("lib.rs", Case::Exact));
//! assert!(sources.matches("LIB.RS", Case::Ignored));
//! assert!(!sources.matches("lib.rs.bak", Case::Exact));
//! ```

/// A part of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token<T> {
    /// Any number of items, also none.
    Many,
    /// One item that matches this.
    One(T),
}

/// Whether a pattern matches items to their end. A match may begin before the item and in the place of the pattern that `enter`
/// says yes to.
pub fn matches<T, I>(
    pattern: &[Token<T>],
    items: impl IntoIterator<Item = I>,
    enter: impl Fn(usize, usize) -> bool,
    one: impl Fn(&T, &I) -> bool,
) -> bool {
    // Whether what came so far may stand in front of each place of the pattern. The last one is its end.
    let mut places = vec![false; pattern.len() + 1];
    let mut next = places.clone();
    let open = |places: &mut Vec<bool>, before: usize| {
        for place in 0..places.len() {
            places[place] |= enter(before, place);
            if places[place] && pattern.get(place).is_some_and(|token| matches!(token, Token::Many)) {
                places[place + 1] = true;
            }
        }
    };
    let mut count = 0;
    for item in items {
        open(&mut places, count);
        next.fill(false);
        for (place, token) in pattern.iter().enumerate().filter(|(place, _)| places[*place]) {
            match token {
                Token::Many => next[place] = true,
                Token::One(wanted) => next[place + 1] |= one(wanted, &item),
            }
        }
        std::mem::swap(&mut places, &mut next);
        count += 1;
    }
    open(&mut places, count);
    places[pattern.len()]
}

/// For `enter`: the whole pattern has to match all items.
pub fn whole(before: usize, place: usize) -> bool {
    before == 0 && place == 0
}

/// Whether letters of either case are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// They are not.
    Exact,
    /// They are.
    Ignored,
}

/// A pattern for text: `*` is any number of characters, `?` is one, everything else is itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(Vec<Token<Option<char>>>);

impl Glob {
    /// Every text is one.
    pub fn new(pattern: &str) -> Self {
        let mut tokens: Vec<_> = pattern
            .chars()
            .map(|character| match character {
                '*' => Token::Many,
                '?' => Token::One(None),
                other => Token::One(Some(other)),
            })
            .collect();
        tokens.dedup_by(|token, before| *token == Token::Many && *before == Token::Many);
        Self(tokens)
    }

    /// Whether it matches all of a text.
    pub fn matches(&self, text: &str, case: Case) -> bool {
        self.matches_from(text, case, |before| before == 0)
    }

    /// Whether it matches a text from one of the characters to the end: one that has as many in front of it as `begins` says yes to.
    pub fn matches_from(&self, text: &str, case: Case, begins: impl Fn(usize) -> bool) -> bool {
        matches(
            &self.0,
            text.chars(),
            |before, place| place == 0 && begins(before),
            |wanted, character| wanted.is_none_or(|wanted| same(wanted, *character, case)),
        )
    }
}

/// Whether there is a wildcard in a pattern.
pub fn is_wild(pattern: &str) -> bool {
    pattern.contains(['*', '?'])
}

fn same(one: char, other: char, case: Case) -> bool {
    one == other || case == Case::Ignored && one.to_lowercase().eq(other.to_lowercase())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a glob means, without regard to time.
    fn meaning(pattern: &[char], text: &[char]) -> bool {
        match (pattern, text) {
            ([], text) => text.is_empty(),
            (['*', pattern @ ..], []) => meaning(pattern, text),
            (['*', rest @ ..], [_, later @ ..]) => meaning(rest, text) || meaning(pattern, later),
            (['?', pattern @ ..], [_, text @ ..]) => meaning(pattern, text),
            ([wanted, pattern @ ..], [found, text @ ..]) => wanted == found && meaning(pattern, text),
            (_, []) => false,
        }
    }

    proptest! {
        #[test]
        fn a_glob_means_what_it_says(pattern in "[ab*?]{0,8}", text in "[abé]{0,10}") {
            let characters = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(
                Glob::new(&pattern).matches(&text, Case::Exact),
                meaning(&characters(&pattern), &characters(&text))
            );
        }

        #[test]
        fn a_text_without_wildcards_matches_itself_alone(pattern in "[^*?]{0,12}", text in "[^*?]{0,12}") {
            prop_assert!(Glob::new(&pattern).matches(&pattern, Case::Exact));
            prop_assert_eq!(Glob::new(&pattern).matches(&text, Case::Exact), pattern == text);
        }

        #[test]
        fn case_can_be_ignored(text in "[a-zäé*]{0,12}") {
            prop_assert!(Glob::new(&text).matches(&text.to_uppercase(), Case::Ignored));
        }

        #[test]
        fn a_match_from_somewhere_is_a_match_of_the_rest(pattern in "[ab*?]{0,6}", text in "[ab]{0,8}", from in 0_usize..9) {
            let from = from.min(text.len());
            let glob = Glob::new(&pattern);
            let rest = glob.matches(&text[from..], Case::Exact);
            prop_assert_eq!(glob.matches_from(&text, Case::Exact, |before| before == from), rest);
        }
    }

    #[test]
    fn a_hostile_text_takes_no_longer_than_any() {
        // With backtracking, this would not end before the sun does.
        let glob = Glob::new(&format!("{}b", "a*".repeat(100)));
        assert!(!glob.matches(&"a".repeat(4096), Case::Exact));
    }
}
