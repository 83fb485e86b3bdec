//! What is measured: the name, the unit and what each figure depends on.

use serde::Serialize;

/// A figure.
#[derive(Debug, Serialize)]
pub(crate) struct Metric {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    /// What it is measured over.
    pub(crate) over: &'static str,
}

macro_rules! metrics {
    ($($name:ident: $id:literal, $title:literal, $unit:literal, $over:literal;)*) => {
        $(pub(crate) static $name: Metric = Metric { id: $id, title: $title, unit: $unit, over: $over };)*
        /// All of them, in the order of the table.
        pub(crate) static ALL: &[&Metric] = &[$(&$name),*];
    };
}

metrics! {
    ROUND_TRIP: "round-trip", "prompt round trip, each proxy edits the answer: p50", "µs", "proxies";
    ROUND_TRIP_99: "round-trip-p99", "prompt round trip, each proxy edits the answer: p99", "µs", "proxies";
    ROUND_TRIP_ALL: "round-trip-all", "prompt round trip, each proxy edits prompt and answer: p50", "µs", "proxies";
    ROUND_TRIP_ALL_99: "round-trip-all-p99", "prompt round trip, each proxy edits prompt and answer: p99", "µs", "proxies";
    PERMISSION: "permission", "permission round trip, each proxy edits the question: p50", "µs", "proxies";
    PERMISSION_99: "permission-p99", "permission round trip, each proxy edits the question: p99", "µs", "proxies";
    UPDATES: "updates", "updates, each proxy edits each", "1/s", "proxies";
    CPU: "cpu", "CPU time of the conductor and its proxies for an update", "µs", "proxies";
    FLIGHT_64: "in-flight-64", "prompts with 64 sessions at once", "1/s", "proxies";
    FLIGHT_256: "in-flight-256", "prompts with 256 sessions at once", "1/s", "proxies";
    EARLY: "early", "answers that came before their own turn's updates, of a thousand", "‰", "proxies";
    OVERTAKEN: "overtaken", "answers overtaken by later updates, of a thousand", "‰", "proxies";
    MEMORY_IDLE: "memory-idle", "memory of conductor and proxies, idle after the start (PSS)", "MiB", "proxies";
    MEMORY_RESIDENT: "memory-idle-rss", "the same with shared pages counted in each process (RSS)", "MiB", "proxies";
    MEMORY_PEAK: "memory-peak", "memory of conductor and proxies, peak under load (PSS)", "MiB", "proxies";
    THREADS: "threads", "threads of conductor and proxies", "", "proxies";
    PROCESSES: "processes", "processes of conductor and proxies", "", "proxies";
    UNINTERESTED_TRIP: "uninterested-round-trip", "prompt round trip past uninterested proxies: p50", "µs", "proxies";
    UNINTERESTED_UPDATES: "uninterested-updates", "updates past uninterested proxies", "1/s", "proxies";
    UNINTERESTED_CPU: "uninterested-cpu", "CPU time for an update past uninterested proxies", "µs", "proxies";
    START_WARM: "start-warm", "start to the answer of `initialize`, proxies compiled before", "ms", "proxies";
    START_COLD: "start-cold", "start to the answer of `initialize`, nothing compiled before", "ms", "proxies";
    BIG_1: "big-1", "prompt of 1 MiB, each proxy adds a block: p50", "ms", "proxies";
    BIG_16: "big-16", "prompt of 16 MiB, each proxy adds a block: p50", "ms", "proxies";
    SKIPPED_1: "big-1-skipped", "prompt of 1 MiB past uninterested proxies: p50", "ms", "proxies";
    SKIPPED_16: "big-16-skipped", "prompt of 16 MiB past uninterested proxies: p50", "ms", "proxies";
    STALLED_PEAK: "stalled-peak", "memory while the client reads nothing of 100 MiB: peak (PSS)", "MiB", "proxies";
    STALLED_AFTER: "stalled-after", "memory once the client has read all (PSS)", "MiB", "proxies";
    MANY_START: "many-start", "time to start so many chains of two proxies in one process, a chain", "ms", "chains";
    MANY_MEMORY: "many-memory", "memory of so many chains of two proxies in one process, a chain (PSS)", "KiB", "chains";
    MANY_THREADS: "many-threads", "threads of a process with so many chains", "", "chains";
    MANY_TRIP: "many-round-trip", "prompt through each of so many chains in one process, one after the other: p50", "µs", "chains";
    GROWTH_SESSIONS: "growth-sessions", "prompt round trip with so many sessions, 1 proxy: p50", "µs", "sessions";
    GROWTH_SESSIONS_CPU: "growth-sessions-cpu", "CPU time for a prompt and its answer with so many sessions, 1 proxy", "µs", "sessions";
    GROWTH_REQUESTS: "growth-requests", "prompt round trip with so many unanswered prompts, 1 proxy: p50", "µs", "unanswered";
    GROWTH_REQUESTS_CPU: "growth-requests-cpu", "CPU time for a prompt and its answer with so many unanswered, 1 proxy", "µs", "unanswered";
    GROWTH_SIZE_NONE: "growth-size-none", "prompt of so many KiB, no proxy: p50", "µs", "KiB";
    GROWTH_SIZE_EDITED: "growth-size-edited", "prompt of so many KiB, 8 proxies that each add a block: p50", "µs", "KiB";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_there_twice() {
        let mut ids: Vec<_> = ALL.iter().map(|metric| metric.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), ALL.len());
    }
}
