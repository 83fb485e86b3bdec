//! Patterns of method names, and what two of them have in common.

use std::fmt;
use std::sync::Arc;

/// Which methods are meant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// This one.
    Exact(Arc<str>),
    /// All that begin like this, which ends with `/`.
    Prefix(Arc<str>),
    /// All.
    Every,
}

impl Pattern {
    /// A pattern as it is written: a method, `prefix/*` or `*`.
    pub fn new(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some("") => Self::Every,
            Some(prefix) if prefix.ends_with('/') => Self::Prefix(prefix.into()),
            _ => Self::Exact(text.into()),
        }
    }

    /// Whether a method is meant. Patterns with a `*` never mean `initialize` and what begins with `$/`.
    pub fn matches(&self, method: &str) -> bool {
        let reserved = || method == "initialize" || method.starts_with("$/");
        match self {
            Self::Exact(exact) => method == &**exact,
            Self::Prefix(prefix) => method.starts_with(&**prefix) && !reserved(),
            Self::Every => !reserved(),
        }
    }

    /// What both mean, if there can be such a method.
    pub fn meet(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Exact(method), pattern) | (pattern, Self::Exact(method)) => {
                pattern.matches(method).then(|| Self::Exact(method.clone()))
            }
            (Self::Every, pattern) | (pattern, Self::Every) => Some(pattern.clone()),
            (Self::Prefix(one), Self::Prefix(two)) if one.starts_with(&**two) => Some(self.clone()),
            (Self::Prefix(one), Self::Prefix(two)) if two.starts_with(&**one) => Some(other.clone()),
            (Self::Prefix(_), Self::Prefix(_)) => None,
        }
    }

    /// Whether everything is meant that the other one means.
    pub fn covers(&self, other: &Self) -> bool {
        self.meet(other).as_ref() == Some(other)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(exact) => formatter.write_str(exact),
            Self::Prefix(prefix) => write!(formatter, "{prefix}*"),
            Self::Every => formatter.write_str("*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_match_as_the_world_says() {
        assert!(Pattern::new("session/*").matches("session/prompt"));
        assert!(!Pattern::new("session/*").matches("sessions"));
        assert!(!Pattern::new("*").matches("initialize"));
        assert!(!Pattern::new("*").matches("$/x"));
        assert!(!Pattern::new("$/*").matches("$/x"));
        assert!(Pattern::new("initialize").matches("initialize"));
        assert!(Pattern::new("odd*").matches("odd*"));
        assert!(!Pattern::new("odd*").matches("oddity"));
    }

    fn pattern() -> impl Strategy<Value = Pattern> {
        "(\\*|a|a/\\*|a/b|a/b/\\*|a/b/c|b/\\*|initialize|\\$/x)".prop_map(|text| Pattern::new(&text))
    }

    proptest! {
        #[test]
        fn what_two_have_in_common_is_meant_by_both(one in pattern(), two in pattern(), method in "(a|a/b|a/b/c|b/x|initialize|\\$/x)") {
            let meet = one.meet(&two);
            let both = one.matches(&method) && two.matches(&method);
            prop_assert_eq!(meet.as_ref().is_some_and(|meet| meet.matches(&method)), both);
            if one.covers(&two) && two.matches(&method) {
                prop_assert!(one.matches(&method));
            }
        }

        #[test]
        fn what_is_written_is_read_again(pattern in pattern()) {
            prop_assert_eq!(Pattern::new(&pattern.to_string()), pattern);
        }
    }
}
