//! The steps of a message's way, one by one: `cargo bench -p consort-tests`.

use bytes::Bytes;
use consort::grants::Pattern;
use consort::wire::edit::{self, Edit};
use consort::wire::envelope;
use consort::wire::text::Text;
use consort_tests::guests;
use consort_tests::hops::{Hops, Rebuilt};
use divan::{Bencher, black_box};
use std::path::PathBuf;
use tikv_jemallocator::Jemalloc;
use tokio::runtime::Runtime;

/// As in the command.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

const UPDATE: &str = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"What an agent may say in a chunk"}}}}"#;

fn main() {
    divan::main();
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("the runtime starts")
}

fn arrow() -> PathBuf {
    guests::guest("arrow")
}

#[divan::bench]
fn one_line_parsed(bencher: Bencher) {
    let line = Bytes::from_static(UPDATE.as_bytes());
    bencher.bench(|| envelope::parse(black_box(&line)));
}

#[divan::bench]
fn one_interest_matched(bencher: Bencher) {
    let patterns = ["session/update", "session/*", "*"].map(Pattern::new);
    bencher.bench(|| {
        patterns
            .iter()
            .filter(|pattern| pattern.matches(black_box("session/update")))
            .count()
    });
}

#[divan::bench]
fn one_edit(bencher: Bencher) {
    let Ok(envelope::Incoming::Notification {
        params: Some(params), ..
    }) = envelope::parse(&Bytes::from_static(UPDATE.as_bytes()))
    else {
        panic!("the update is a notification");
    };
    let edits = [Edit::Replace(
        "/update/content/text".into(),
        Text::of(&">What an agent may say in a chunk"),
    )];
    bencher.bench(|| edit::apply(black_box(&params), &edits));
}

/// An update that every proxy edits, from line to line.
#[divan::bench(args = [0, 1, 2, 4, 8, 16])]
fn hops(bencher: Bencher, proxies: usize) {
    let runtime = runtime();
    let mut hops = runtime.block_on(Hops::start(&vec![arrow(); proxies]));
    bencher.bench_local(|| {
        runtime.block_on(hops.agent(UPDATE.as_bytes()));
        hops.at_client()
    });
}

#[divan::bench]
fn one_instance_rebuilt(bencher: Bencher) {
    let runtime = runtime();
    let rebuilt = Rebuilt::new(&arrow());
    bencher.bench_local(|| runtime.block_on(rebuilt.start()));
}
