//! Maps of what every message looks up. Their hash is seeded anew in each process, so that nobody outside can aim at one place, and takes
//! a fraction of the time that the standard library's takes.

use std::collections::{HashMap, HashSet};

/// A map with the quick hash.
pub(crate) type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// A set with the quick hash.
pub(crate) type Set<K> = HashSet<K, foldhash::fast::RandomState>;
