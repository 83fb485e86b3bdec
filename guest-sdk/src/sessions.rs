//! State that a proxy keeps for each session. Owns its bounds: a session that ends or was not used for long is forgotten.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use crate::runtime::{self, Forget};

/// State of type `T` for each session, usable from `&self`.
///
/// State that was made in [`crate::Proxy::start`] (or later) goes when the proxy sees `session/close` or `session/delete` for
/// its session; [`crate::Interests::session_ends`] makes it see them. It also goes when there are too many: the session that was not
/// used for longest first.
///
/// ```
/// use consort_proxy::Sessions;
///
/// let prompts = Sessions::<u32>::new();
/// let count = prompts.with("s1", |count| {
///     *count += 1;
///     *count
/// });
/// assert_eq!(count, 1);
/// ```
pub struct Sessions<T>(Rc<RefCell<Table<T>>>);

struct Table<T> {
    capacity: usize,
    uses: u64,
    /// The state, and the use that it was last used in.
    states: BTreeMap<String, (u64, T)>,
}

/// More sessions than any editor has open, few enough for a small memory.
const CAPACITY: usize = 1024;

impl<T: Default + 'static> Sessions<T> {
    /// Room for 1,024 sessions.
    pub fn new() -> Self {
        Self::with_capacity(CAPACITY)
    }

    /// Room for so many sessions, at least one.
    pub fn with_capacity(capacity: usize) -> Self {
        let table = Table {
            capacity: capacity.max(1),
            uses: 0,
            states: BTreeMap::new(),
        };
        let shared = Rc::new(RefCell::new(table));
        let weak: Weak<RefCell<Table<T>>> = Rc::downgrade(&shared);
        runtime::register(weak);
        Self(shared)
    }

    /// Works on a session's state, which begins as `T::default()`.
    ///
    /// # Panics
    /// If `work` uses the same `Sessions` again.
    pub fn with<R>(&self, session: &str, work: impl FnOnce(&mut T) -> R) -> R {
        let mut table = self.0.borrow_mut();
        let table = &mut *table;
        table.uses += 1;
        if let Some((used, state)) = table.states.get_mut(session) {
            *used = table.uses;
            return work(state);
        }
        if table.states.len() >= table.capacity {
            let oldest = table
                .states
                .iter()
                .min_by_key(|(_, (used, _))| *used)
                .map(|(session, _)| session.clone());
            oldest.and_then(|session| table.states.remove(&session));
        }
        let (_, state) = table
            .states
            .entry(session.to_owned())
            .or_insert_with(|| (table.uses, T::default()));
        work(state)
    }

    /// Takes a session's state out, if there is any.
    pub fn remove(&self, session: &str) -> Option<T> {
        self.0.borrow_mut().states.remove(session).map(|(_, state)| state)
    }

    /// How many sessions have state.
    pub fn len(&self) -> usize {
        self.0.borrow().states.len()
    }

    /// Whether no session has state.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Default + 'static> Default for Sessions<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> std::fmt::Debug for Sessions<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Sessions").finish_non_exhaustive()
    }
}

impl<T> Forget for RefCell<Table<T>> {
    fn forget(&self, session: &str) {
        let state = self.borrow_mut().states.remove(session);
        drop(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_that_was_not_used_for_longest_goes_first() {
        let sessions = Sessions::<u32>::with_capacity(2);
        sessions.with("a", |state| *state = 1);
        sessions.with("b", |state| *state = 2);
        sessions.with("a", |_| ());
        sessions.with("c", |state| *state = 3);
        assert_eq!(
            (
                sessions.len(),
                sessions.remove("a"),
                sessions.remove("b"),
                sessions.remove("c")
            ),
            (2, Some(1), None, Some(3))
        );
        assert!(sessions.is_empty());
    }
}
