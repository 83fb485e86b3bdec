//! What a message costs, in counts that do not depend on how busy the machine is: instructions, by callgrind, and allocations. A change that
//! makes a hop dearer fails here; one that makes it cheaper should lower the limits.

use consort_tests::guests;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Messages between the two runs that are compared: what starting costs is in both.
const MESSAGES: u64 = 400;

/// Runs until callgrind has got through one.
const TRIES: usize = 20;

/// Instructions may vary by so much, in percent: the C library and the compiler of the guests choose by processor.
const TOLERANCE: u64 = 10;

/// What a kind of message may cost with so many proxies.
struct Limit {
    kind: &'static str,
    proxies: u64,
    instructions: u64,
    allocations: u64,
}

/// As measured when they were last set.
const LIMITS: [Limit; 5] = [
    Limit {
        kind: "update",
        proxies: 0,
        instructions: 14_100,
        allocations: 9,
    },
    Limit {
        kind: "update",
        proxies: 1,
        instructions: 59_500,
        allocations: 34,
    },
    Limit {
        kind: "update",
        proxies: 8,
        instructions: 377_500,
        allocations: 209,
    },
    Limit {
        kind: "prompt",
        proxies: 0,
        instructions: 22_200,
        allocations: 15,
    },
    Limit {
        kind: "prompt",
        proxies: 8,
        instructions: 26_800,
        allocations: 15,
    },
];

#[derive(Clone, Copy, Debug)]
struct Counts {
    instructions: u64,
    allocations: u64,
}

impl Limit {
    /// What is wrong with what was measured.
    fn failure(&self, measured: Counts) -> Option<String> {
        let Self {
            kind,
            proxies,
            instructions,
            allocations,
        } = self;
        if measured.instructions > instructions + instructions * TOLERANCE / 100 || measured.allocations > *allocations
        {
            return Some(format!(
                "a {kind} through {proxies} proxies takes {measured:?}, and may take {instructions} instructions (and {TOLERANCE} %) and \
                 {allocations} allocations"
            ));
        }
        if measured.instructions <= instructions / 2 || measured.allocations <= allocations / 2 {
            return Some(format!(
                "a {kind} through {proxies} proxies takes {measured:?}, not even half of {instructions} instructions or of {allocations} \
                 allocations: either part of it is not counted, or it has become so cheap that the limits have to be lowered"
            ));
        }
        None
    }
}

#[test]
fn a_message_costs_no_more_than_it_did() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        assert!(
            std::env::var_os("CI").is_none(),
            "valgrind is not installed, which counts instructions"
        );
        eprintln!("skipped: valgrind is not installed, which counts instructions");
        return;
    }
    let hops = build();
    // The first run compiles the component for the others, under callgrind as they are: what the processor can do, and with it what
    // compiled code fits, looks different from there on some machines.
    run(&hops, "update", 1, 1);
    let mut failures = Vec::new();
    for limit in &LIMITS {
        let [some, more] = [1, 2].map(|times| run(&hops, limit.kind, limit.proxies, MESSAGES * times));
        let measured = Counts {
            instructions: more.instructions.saturating_sub(some.instructions) / MESSAGES,
            allocations: more.allocations.saturating_sub(some.allocations) / MESSAGES,
        };
        println!("{} through {}: {measured:?}", limit.kind, limit.proxies);
        failures.extend(limit.failure(measured));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn counts_above_the_limits_and_below_half_of_them_are_told() {
    let limit = Limit {
        kind: "update",
        proxies: 1,
        instructions: 1_000,
        allocations: 10,
    };
    for (instructions, allocations, said) in [
        (1_100, 10, None),
        (501, 6, None),
        (1_101, 10, Some("and may take")),
        (1_000, 11, Some("and may take")),
        (500, 10, Some("not counted")),
        (1_000, 5, Some("not counted")),
        (0, 0, Some("not counted")),
    ] {
        let failure = limit.failure(Counts {
            instructions,
            allocations,
        });
        assert_eq!(failure.is_some(), said.is_some(), "{failure:?}");
        assert!(failure.unwrap_or_default().contains(said.unwrap_or_default()));
    }
}

/// Builds what takes the hops, optimised.
fn build() -> PathBuf {
    let root = consort_tests::root();
    let output = Command::new("cargo")
        .args(["build", "--profile", "counts", "-p", "consort-tests", "--bin", "hops"])
        .current_dir(root)
        .output()
        .expect("cargo is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    target.join("counts/hops")
}

fn run(hops: &Path, kind: &str, proxies: u64, messages: u64) -> Counts {
    let folder = consort_tests::Directory::new();
    let file = folder.path().join("counted");
    // Callgrind itself breaks now and then at signals, which have nothing to do with what is counted.
    for _ in 0..TRIES {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--compress-strings=no"])
            .arg(format!("--callgrind-out-file={}", file.display()))
            .arg(hops)
            .args([kind.to_owned(), proxies.to_string(), messages.to_string()])
            // Built here: a child that ends sends a signal.
            .arg(guests::guest("arrow"))
            .output()
            .expect("valgrind runs");
        if output.status.success() {
            return counted(&std::fs::read_to_string(&file).expect("callgrind has written its file"));
        }
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked at"), "{said}");
    }
    panic!("callgrind broke {TRIES} times in a row");
}

/// Reads callgrind's file: the total, and how often the allocator was called.
fn counted(file: &str) -> Counts {
    let mut lines = file.lines();
    let mut called = HashMap::new();
    let mut instructions = 0;
    while let Some(line) = lines.next() {
        if let Some(total) = line.strip_prefix("summary: ").or_else(|| line.strip_prefix("totals: ")) {
            instructions = total.trim().parse().expect("the total is a number");
        }
        let Some(callee) = line.strip_prefix("cfn=") else {
            continue;
        };
        let calls = lines.next().and_then(|line| line.strip_prefix("calls="));
        let calls = calls.and_then(|calls| calls.split(' ').next()?.parse::<u64>().ok());
        *called.entry(callee.to_owned()).or_insert(0) += calls.expect("callgrind says how often");
    }
    let allocates = |name: &&String| {
        let name = name.trim_start_matches("_rjem_");
        ["malloc", "mallocx", "calloc", "rallocx"].contains(&name)
    };
    let allocations = called.keys().filter(allocates).map(|name| called[name]).sum();
    Counts {
        instructions,
        allocations,
    }
}
