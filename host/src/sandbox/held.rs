//! How much memory the JSON text behind one proxy's handles takes. What it wrote itself is counted apart from what it was given: with
//! the one it could fill the memory out of nothing. Text that several handles share counts for each of them.

use super::limits::MAX_HELD_MESSAGES;
use crate::limits::{Limit, Limits};

/// What stands behind one handle, or several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    /// Bytes that the proxy wrote.
    pub(super) written: usize,
    /// Bytes that it was given.
    pub(super) given: usize,
}

/// What stands behind all handles.
#[derive(Debug)]
pub(super) struct Held {
    now: Share,
    most: Share,
}

impl Held {
    /// Of a proxy that holds nothing yet.
    pub(super) fn new(limits: &Limits) -> Self {
        let message = limits.count(Limit::MessageSize);
        Self {
            now: Share::default(),
            most: Share {
                // As much as it may keep in its own memory, and at least one message.
                written: limits.count(Limit::Memory).max(message),
                given: message.saturating_mul(MAX_HELD_MESSAGES),
            },
        }
    }

    /// The proxy is given so many bytes. Not their number counts, but what it still holds from before.
    ///
    /// # Errors
    ///
    /// Says what it holds too much of.
    pub(super) fn deliver(&mut self, bytes: usize) -> Result<(), String> {
        self.most.given = self.most.given.max(bytes.saturating_mul(MAX_HELD_MESSAGES));
        if self.now.given > self.most.given {
            return Err(self.too_much_given());
        }
        self.now.given += bytes;
        Ok(())
    }

    /// The proxy makes a handle of what it has or has written.
    ///
    /// # Errors
    ///
    /// Says what it holds too much of.
    pub(super) fn add(&mut self, share: Share) -> Result<(), String> {
        self.exchange(Share::default(), share)
    }

    /// The proxy makes another text out of what stands behind a handle. With less than before nobody is worse off.
    ///
    /// # Errors
    ///
    /// Says what it would hold too much of; then it still holds the one from before.
    pub(super) fn exchange(&mut self, old: Share, new: Share) -> Result<(), String> {
        let written = self.now.written.saturating_sub(old.written) + new.written;
        let given = self.now.given.saturating_sub(old.given) + new.given;
        if written > self.most.written.max(self.now.written) {
            let most = self.most.written;
            return Err(format!("more than {most} bytes of its own behind JSON handles"));
        }
        if given > self.most.given.max(self.now.given) {
            return Err(self.too_much_given());
        }
        self.now = Share { written, given };
        Ok(())
    }

    /// The proxy gives something back.
    pub(super) fn remove(&mut self, share: Share) {
        self.now.written = self.now.written.saturating_sub(share.written);
        self.now.given = self.now.given.saturating_sub(share.given);
    }

    fn too_much_given(&self) -> String {
        format!("more than {} bytes of messages behind JSON handles", self.most.given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: Share = Share { written: 600, given: 0 };

    fn held() -> Held {
        let mut limits = Limits::default();
        limits.set(Limit::Memory, 1_500);
        limits.set(Limit::MessageSize, 100);
        Held::new(&limits)
    }

    #[test]
    fn what_is_written_is_bounded_by_the_memory() {
        let mut held = held();
        assert_eq!((held.add(WRITTEN), held.add(WRITTEN)), (Ok(()), Ok(())));
        let refused = held.add(WRITTEN).unwrap_err();
        assert!(refused.contains("1500 bytes of its own"), "{refused}");
        // What was refused does not count.
        let small = Share { written: 300, given: 0 };
        assert_eq!(held.exchange(small, WRITTEN), Ok(()));
        assert!(held.exchange(small, WRITTEN).is_err());
        assert_eq!(held.exchange(WRITTEN, small), Ok(()));
        held.remove(WRITTEN);
        assert_eq!(held.add(WRITTEN), Ok(()));
    }

    #[test]
    fn a_delivery_is_never_too_large_but_what_is_kept_of_them_may_be() {
        let mut held = held();
        for _ in 0..9 {
            assert_eq!(
                held.deliver(5_000),
                Ok(()),
                "what was held before is within eight of them"
            );
        }
        let refused = held.deliver(5_000).unwrap_err();
        assert!(refused.contains("40000 bytes of messages"), "{refused}");
        let given = Share {
            written: 0,
            given: 5_000,
        };
        assert!(held.add(given).is_err(), "nor a second handle");
        held.remove(given);
        assert_eq!(held.deliver(10), Ok(()));
        assert_eq!(held.add(WRITTEN), Ok(()), "what it writes counts apart");
    }
}
