//! The processes of a conductor: what they use, and their end. The agent at the far end is none of them.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::collections::HashMap;
use std::fs;

/// What the processes of a tree use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Memory in bytes, pages shared with others counted in part (PSS).
    pub(crate) memory: f64,
    /// The same, pages shared with others counted in each (RSS).
    pub(crate) resident: f64,
    pub(crate) threads: f64,
    pub(crate) processes: f64,
}

/// A process and all that it has started, but for our agent.
pub(crate) fn members(root: u32) -> Vec<u32> {
    let mut all = descendants(root);
    all.retain(|pid| !is_agent(*pid));
    all
}

/// A process and all that it has started, it first.
pub(crate) fn descendants(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>()
            && let Some(fields) = stat(pid)
            && let Some(parent) = fields.get(1).and_then(|field| field.parse().ok())
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut all = vec![root];
    let mut at = 0;
    while at < all.len() {
        if let Some(more) = children.get(&all[at]) {
            all.extend(more);
        }
        at += 1;
    }
    all
}

fn is_agent(pid: u32) -> bool {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = command.split(|byte| *byte == 0).collect();
    words.len() == 3 && words[0].ends_with(b"consort-bench") && words[1] == b"agent"
}

/// The fields behind the command's name, which may have anything in it.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_ascii_whitespace().map(str::to_owned).collect())
}

/// What processes use together. One that has ended counts for nothing.
pub(crate) fn usage(pids: &[u32]) -> Usage {
    let mut usage = Usage::default();
    for pid in pids {
        let Some(fields) = stat(*pid) else { continue };
        usage.threads += fields
            .get(17)
            .and_then(|field| field.parse::<f64>().ok())
            .unwrap_or(0.0);
        usage.processes += 1.0;
        usage.memory += memory(*pid);
        usage.resident += rollup(*pid, "Rss:");
    }
    usage
}

/// The CPU time of all threads of processes, in microseconds. `/proc/PID/stat` would have it in hundredths of a second; this leaves out
/// threads that have ended, which none of those that carry messages does.
pub(crate) fn cpu(pids: &[u32]) -> f64 {
    let mut nanoseconds = 0.0;
    for pid in pids {
        for thread in fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            let first = text.split_ascii_whitespace().next();
            nanoseconds += first.and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        }
    }
    nanoseconds / 1e3
}

/// The memory of a process in bytes, pages shared with others counted in part.
pub(crate) fn memory(pid: u32) -> f64 {
    rollup(pid, "Pss:")
}

fn rollup(pid: u32, key: &str) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) * 1024.0
}

/// Ends a process and all that it has started, at once.
pub(crate) fn kill(root: u32) {
    let all = descendants(root);
    let pid = |pid: u32| i32::try_from(pid).ok().and_then(Pid::from_raw);
    // Some are gone before the signal comes; that is what is wanted.
    if let Some(root) = pid(root) {
        let _ = kill_process_group(root, Signal::KILL);
    }
    for one in all.into_iter().filter_map(pid) {
        let _ = kill_process(one, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_something() {
        let own = std::process::id();
        let usage = usage(&[own]);
        assert!(
            usage.memory > 100_000.0
                && usage.resident >= usage.memory
                && usage.threads >= 1.0
                && usage.processes == 1.0,
            "{usage:?}"
        );
        assert_eq!(members(own)[0], own);
    }

    #[test]
    fn what_computes_uses_time() {
        // Not this process: its threads, other tests, may end meanwhile.
        let mut busy = std::process::Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap();
        let mut used = 0.0;
        for _ in 0..200 {
            std::thread::sleep(std::time::Duration::from_millis(10));
            used = cpu(&[busy.id()]);
            if used > 1e3 {
                break;
            }
        }
        kill(busy.id());
        busy.wait().unwrap();
        assert!(used > 1e3, "{used}");
    }

    #[test]
    fn a_tree_ends_as_a_whole() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 600 & sleep 600"])
            .spawn()
            .unwrap();
        let mut all = Vec::new();
        for _ in 0..200 {
            all = descendants(child.id());
            if all.len() == 3 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(all.len(), 3);
        kill(child.id());
        child.wait().unwrap();
        let ended = |pid: &u32| stat(*pid).is_none_or(|fields| fields[0] == "Z" || fields[0] == "X");
        for _ in 0..200 {
            if all.iter().all(ended) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("some of {all:?} live on");
    }
}
