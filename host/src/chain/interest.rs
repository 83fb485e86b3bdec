//! Which messages a proxy wants.

use super::parcel::Direction;
use crate::grants::Pattern;
use crate::message::{How, Interest};

/// The interests of one proxy, by direction.
#[derive(Clone, Debug, Default)]
pub(super) struct Interests {
    patterns: [Vec<(Pattern, How)>; 2],
}

impl Interests {
    pub(super) fn new(interests: &[Interest]) -> Self {
        let mut patterns: [Vec<(Pattern, How)>; 2] = Default::default();
        for direction in [Direction::Down, Direction::Up] {
            patterns[direction.index()] = interests
                .iter()
                .filter(|interest| interest.source == direction.source())
                .map(|interest| (Pattern::new(&interest.method), interest.how))
                .collect();
        }
        Self { patterns }
    }

    /// Whether the proxy wants a message: taking part wins over looking on.
    pub(super) fn of(&self, direction: Direction, method: &str) -> Option<How> {
        let mut wanted = None;
        for (pattern, how) in &self.patterns[direction.index()] {
            if pattern.matches(method) {
                if *how == How::Intercept {
                    return Some(How::Intercept);
                }
                wanted = Some(How::Observe);
            }
        }
        wanted
    }

    /// Whether it takes part in anything at all.
    pub(super) fn intercepts(&self) -> bool {
        self.patterns.iter().flatten().any(|(_, how)| *how == How::Intercept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Peer;

    #[test]
    fn patterns_match_as_the_world_says() {
        let interest = |source, method: &str, how| Interest {
            source,
            method: method.into(),
            how,
        };
        let interests = Interests::new(&[
            interest(Peer::Client, "session/*", How::Intercept),
            interest(Peer::Client, "*", How::Observe),
            interest(Peer::Agent, "session/update", How::Observe),
            interest(Peer::Agent, "odd*", How::Intercept),
        ]);
        assert_eq!(interests.of(Direction::Down, "session/prompt"), Some(How::Intercept));
        assert_eq!(interests.of(Direction::Down, "sessions"), Some(How::Observe));
        assert_eq!(interests.of(Direction::Down, "initialize"), None);
        assert_eq!(interests.of(Direction::Down, "$/x"), None);
        assert_eq!(interests.of(Direction::Up, "session/update"), Some(How::Observe));
        assert_eq!(interests.of(Direction::Up, "session/other"), None);
        assert_eq!(interests.of(Direction::Up, "oddity"), None);
        assert_eq!(interests.of(Direction::Up, "odd*"), Some(How::Intercept));
    }
}
