//! Maps of what every message looks up under numbers that Consort itself gives. Nobody outside chooses the keys, so the hash may be one that
//! takes a fraction of the time of the standard library's; names, and numbers that others choose, belong into that one's.

use std::collections::HashMap;

/// A map with the quick hash.
pub(crate) type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
