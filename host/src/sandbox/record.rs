//! What is kept of a proxy over the lives of its instances: the sessions that it was shown, what it has used lately, and what it
//! tried and changed, for the audit.

use crate::grants::{OwnServers, Profile};
use crate::limits::{Limit, Limits};
use crate::message::{Change, Denial, Peer};
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Sessions that are remembered as shown; the oldest are forgotten beyond that, and messages of the proxy's own are refused
/// in them until it is shown them again.
const MAX_SESSIONS: usize = 10_000;

/// Bytes of a session's id that is remembered.
const MAX_SESSION: usize = 4 * 1024;

/// What a proxy invents, in the place of the methods' names: it must not push out what matters.
pub(crate) const INVENTED: &str = "(other methods)";

/// Such names that are told apart nevertheless.
pub(crate) const MAX_INVENTED: usize = 32;

/// Reasons that are told apart for one method.
const MAX_REASONS: usize = 8;

/// Bytes of the reason of a denial; the rest is cut. A proxy may have written most of it.
const MAX_REASON: usize = 4 * 1024;

/// Changes with their texts that wait for the audit, and their bytes; more are counted.
const MAX_CHANGES: usize = 64;
const MAX_CHANGE_BYTES: usize = 4 * 1024 * 1024;

/// Methods whose changes are counted one by one; a proxy can send messages of any name.
const MAX_METHODS: usize = 64;

/// What stands for the others.
const OTHERS: &str = "(others)";

/// What is kept of one proxy.
#[derive(Debug)]
pub struct Record {
    /// The MCP servers that it serves.
    pub servers: Arc<OwnServers>,
    kept: Mutex<Kept>,
    news: AtomicBool,
    /// Whether each change is kept with its texts.
    keeps_texts: bool,
}

#[derive(Debug)]
struct Kept {
    sessions: HashSet<Arc<str>>,
    order: VecDeque<Arc<str>>,
    cpu: Bucket,
    messages: Bucket,
    bytes: Bucket,
    /// Each with how often: one for each peer and known method, and one for each peer and all others.
    denials: Vec<(Denial, u64)>,
    /// By where they came from and their method.
    changed: Vec<(Peer, Arc<str>, u64)>,
    changes: Vec<Change>,
    change_bytes: usize,
    lost_changes: u64,
}

/// What is new since the last look.
#[derive(Debug, Default)]
pub struct News {
    /// What was denied, with how often.
    pub denials: Vec<(Denial, u64)>,
    /// Changes with their texts.
    pub changes: Vec<Change>,
    /// Changes whose texts were not kept.
    pub lost_changes: u64,
}

/// Something that may be used up to an amount a minute. It fills up again all the time.
#[derive(Debug)]
struct Bucket {
    /// In thousandths.
    spent: u64,
    a_minute: u64,
    since: Instant,
}

impl Bucket {
    fn new(a_minute: u64) -> Self {
        Self {
            spent: 0,
            a_minute: a_minute.saturating_mul(1_000),
            since: Instant::now(),
        }
    }

    fn drain(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since).as_micros();
        let back = passed * u128::from(self.a_minute) / 60_000_000;
        if back > 0 {
            self.spent = self.spent.saturating_sub(u64::try_from(back).unwrap_or(u64::MAX));
            self.since = now;
        }
    }

    /// Uses an amount in thousandths; says whether there was enough.
    fn charge(&mut self, amount: u64, now: Instant) -> bool {
        self.drain(now);
        self.spent = self.spent.saturating_add(amount);
        self.spent <= self.a_minute
    }
}

impl Record {
    pub(super) fn new(limits: &Limits, keeps_texts: bool) -> Self {
        Self {
            servers: Arc::default(),
            kept: Mutex::new(Kept {
                sessions: HashSet::default(),
                order: VecDeque::new(),
                cpu: Bucket::new(limits.get(Limit::CpuPerMinute)),
                messages: Bucket::new(limits.get(Limit::MessagesPerMinute)),
                bytes: Bucket::new(limits.get(Limit::BytesPerMinute)),
                denials: Vec::new(),
                changed: Vec::new(),
                changes: Vec::new(),
                change_bytes: 0,
                lost_changes: 0,
            }),
            news: AtomicBool::new(false),
            keeps_texts,
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The proxy is shown a session.
    pub(super) fn show(&self, session: &Arc<str>) {
        if session.len() > MAX_SESSION {
            return;
        }
        let mut kept = self.kept();
        if kept.sessions.insert(session.clone()) {
            kept.order.push_back(session.clone());
            if kept.order.len() > MAX_SESSIONS
                && let Some(oldest) = kept.order.pop_front()
            {
                kept.sessions.remove(&oldest);
            }
        }
    }

    /// Whether it was shown a session.
    pub(super) fn knows(&self, session: &str) -> bool {
        self.kept().sessions.contains(session)
    }

    /// It computed for so many microseconds; says whether that is within its minute.
    pub(super) fn compute(&self, microseconds: u64) -> bool {
        self.kept().cpu.charge(microseconds, Instant::now())
    }

    /// Others computed for it for so many microseconds.
    pub(crate) fn work(&self, microseconds: u64) {
        // Its next turn finds out whether that was too much.
        self.compute(microseconds);
    }

    /// It sent so many messages of its own, with so many bytes; says which limit that is too much for.
    pub(super) fn originate(&self, messages: u64, bytes: u64) -> Result<(), Limit> {
        let now = Instant::now();
        let mut kept = self.kept();
        let messages = kept.messages.charge(messages.saturating_mul(1_000), now);
        let bytes = kept.bytes.charge(bytes.saturating_mul(1_000), now);
        match (messages, bytes) {
            (false, _) => Err(Limit::MessagesPerMinute),
            (_, false) => Err(Limit::BytesPerMinute),
            _ => Ok(()),
        }
    }

    /// It was not allowed to do something.
    pub(super) fn deny(&self, mut denial: Denial) {
        if denial.reason.len() > MAX_REASON {
            denial.reason.truncate(denial.reason.floor_char_boundary(MAX_REASON));
            denial.reason.shrink_to_fit();
        }
        let mut kept = self.kept();
        let denials = &mut kept.denials;
        let alike = |one: &Denial, two: &Denial| one.peer == two.peer && one.method == two.method;
        let known = Profile::knows(&denial.method);
        let (count, most) = match known {
            true => (
                denials.iter().filter(|(other, _)| alike(other, &denial)).count(),
                MAX_REASONS,
            ),
            false => (
                denials
                    .iter()
                    .filter(|(other, _)| !Profile::knows(&other.method))
                    .count(),
                MAX_INVENTED,
            ),
        };
        if let Some((_, times)) = denials.iter_mut().find(|(other, _)| *other == denial) {
            *times += 1;
        } else if count < most {
            denials.push((denial, 1));
        } else {
            if !known {
                denial.method = INVENTED.into();
            }
            // Of a known method the last reason stands for the rest.
            match denials.iter_mut().rfind(|(other, _)| alike(other, &denial)) {
                Some((_, times)) => *times += 1,
                None => denials.push((denial, 1)),
            }
        }
        self.news.store(true, Ordering::Release);
    }

    /// It sent on something else than it got.
    pub(super) fn change(&self, change: impl FnOnce() -> Change, source: Peer, method: &Arc<str>) {
        let mut kept = self.kept();
        let full = kept.changed.len() >= MAX_METHODS;
        let same = |(from, known, _): &&mut (Peer, Arc<str>, u64)| *from == source && *known == *method;
        match kept.changed.iter_mut().find(same) {
            Some((_, _, count)) => *count += 1,
            None if full => match kept.changed.iter_mut().find(|(_, known, _)| &**known == OTHERS) {
                Some((_, _, count)) => *count += 1,
                None => kept.changed.push((source, OTHERS.into(), 1)),
            },
            None => kept.changed.push((source, method.clone(), 1)),
        }
        if self.keeps_texts {
            let change = change();
            let size = change.size();
            if kept.changes.len() < MAX_CHANGES && kept.change_bytes + size <= MAX_CHANGE_BYTES {
                kept.change_bytes += size;
                kept.changes.push(change);
            } else {
                kept.lost_changes += 1;
            }
            self.news.store(true, Ordering::Release);
        }
    }

    /// What is new, if anything is.
    pub fn news(&self) -> Option<News> {
        if !self.news.load(Ordering::Acquire) || !self.news.swap(false, Ordering::AcqRel) {
            return None;
        }
        let mut kept = self.kept();
        kept.change_bytes = 0;
        Some(News {
            denials: std::mem::take(&mut kept.denials),
            changes: std::mem::take(&mut kept.changes),
            lost_changes: std::mem::take(&mut kept.lost_changes),
        })
    }

    /// How many messages it has changed since the last look, by where they came from and their method.
    pub fn take_changed(&self) -> Vec<(Peer, Arc<str>, u64)> {
        let mut changed = std::mem::take(&mut self.kept().changed);
        changed.sort_unstable_by(|one, two| (one.0.index(), &one.1).cmp(&(two.0.index(), &two.1)));
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_bucket_fills_up_again() {
        let mut bucket = Bucket::new(60);
        let begun = bucket.since;
        assert!(bucket.charge(60_000, begun));
        assert!(!bucket.charge(1, begun));
        // Many looks in between lose nothing.
        for step in 0..1_000 {
            bucket.drain(begun + Duration::from_millis(10 * step));
        }
        assert!(bucket.charge(9_000, begun + Duration::from_secs(10)));
        assert!(!bucket.charge(2_000, begun + Duration::from_secs(10)));
    }

    #[test]
    fn sessions_are_remembered_up_to_a_bound() {
        let record = Record::new(&Limits::default(), false);
        for number in 0..=MAX_SESSIONS {
            record.show(&number.to_string().into());
        }
        assert!(!record.knows("0") && record.knows("1") && record.knows(&MAX_SESSIONS.to_string()));
        let long = "s".repeat(MAX_SESSION + 1);
        record.show(&long.as_str().into());
        assert!(!record.knows(&long));
    }

    #[test]
    fn denials_and_changes_are_bounded_and_counted() {
        let record = Record::new(&Limits::default(), true);
        assert!(record.news().is_none());
        let deny = |method: &str, reason: &str| {
            record.deny(Denial {
                peer: Peer::Client,
                method: method.into(),
                reason: reason.repeat(1 << 20),
            });
        };
        for number in 0..100 {
            deny(&format!("_invented/{number}"), "r");
        }
        for reason in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "a"] {
            deny("terminal/create", reason);
        }
        for number in 0..MAX_METHODS + 2 {
            let method: Arc<str> = number.to_string().into();
            let change = || Change {
                source: Peer::Client,
                method: "m".into(),
                before: None,
                after: None,
            };
            record.change(change, Peer::Client, &method);
        }
        let news = record.news().unwrap();
        let times = |method: &str| -> Vec<u64> {
            let of = news.denials.iter().filter(|(denial, _)| &*denial.method == method);
            of.map(|(_, times)| *times).collect()
        };
        assert_eq!(times(INVENTED), [100 - MAX_INVENTED as u64]);
        assert_eq!(times("terminal/create"), [2, 1, 1, 1, 1, 1, 1, 3]);
        assert!(news.denials.iter().all(|(denial, _)| denial.reason.len() == MAX_REASON));
        assert_eq!(news.changes.len(), MAX_CHANGES);
        assert_eq!(news.lost_changes as usize, MAX_METHODS + 2 - MAX_CHANGES);
        let changed = record.take_changed();
        assert_eq!(changed.len(), MAX_METHODS + 1);
        assert!(
            changed
                .iter()
                .any(|(_, method, count)| &**method == OTHERS && *count == 2)
        );
        assert!(record.take_changed().is_empty());
    }
}
