//! Many chains in one process, made with the library: `consort-many CHAINS AUDIT-FILE COMPONENT...`, with a component for
//! each proxy of a chain. Starts one chain after the other, has a prompt through each of them and verifies what comes, and prints a line
//! of JSON. Each chain is a proxy of another conductor, which is this program on the other end of its streams.

use anyhow::{Context, bail, ensure};
use consort::audit::{Audit, Level};
use consort::connection::{self, ClientStreams, ConnectionOptions, DEFAULT_MAX_LINE, ProxyOptions, serve};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tikv_jemallocator::Jemalloc;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::task::JoinHandle;

/// That of the command.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// How long one message may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the process rests before its memory is read: what it needed for a moment is gone then.
const REST: Duration = Duration::from_secs(1);

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [chains, audit, components @ ..] = arguments.as_slice() else {
        bail!("call it with the number of chains, an audit file and the components of a chain");
    };
    let options = options(components, Path::new(audit))?;
    // As many as the command has.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let measured = runtime.block_on(measure(chains.parse()?, &options))?;
    println!("{measured}");
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}

fn options(components: &[String], audit: &Path) -> anyhow::Result<ConnectionOptions> {
    let proxy = |(number, file): (usize, &String)| ProxyOptions {
        name: format!("proxy-{number}"),
        file: file.into(),
        configuration: "{}".to_owned(),
        grants: Vec::new(),
        common_grants: Vec::new(),
        limits: Vec::new(),
        on_failure: None,
    };
    Ok(ConnectionOptions {
        proxies: components.iter().enumerate().map(proxy).collect(),
        sandbox: Some(connection::sandbox()?),
        agent: None,
        max_line: DEFAULT_MAX_LINE,
        grace: Duration::from_secs(1),
        tap: None,
        notices: false,
        retry: None,
        audit: Some(Arc::new(Audit::start(audit, Level::default())?)),
        progress: false,
    })
}

async fn measure(count: usize, options: &ConnectionOptions) -> anyhow::Result<Value> {
    let mut chains = Vec::with_capacity(count);
    // The first one brings along what all share, and stays until the end: what it has of its own is in both readings.
    let mut first = Chain::start(options).await?;
    first.trip(options.proxies.len()).await?;
    tokio::time::sleep(REST).await;
    let before = memory()?;
    let begun = Instant::now();
    for _ in 0..count {
        chains.push(Chain::start(options).await?);
    }
    let start = begun.elapsed().as_secs_f64() * 1e3 / count as f64;
    let mut trips = Vec::new();
    for chain in &mut chains {
        let begun = Instant::now();
        chain.trip(options.proxies.len()).await?;
        trips.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    tokio::time::sleep(REST).await;
    let memory = (memory()? - before) / count as f64;
    trips.sort_by(f64::total_cmp);
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    Ok(json!({"start": start, "memory": memory, "trip": trips[trips.len() / 2], "threads": threads}))
}

/// The memory of this process in KiB.
fn memory() -> anyhow::Result<f64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Pss:"))
        .context("no Pss")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

/// A chain and the conductor around it.
struct Chain {
    input: WriteHalf<DuplexStream>,
    output: BufReader<ReadHalf<DuplexStream>>,
    served: JoinHandle<()>,
}

impl Drop for Chain {
    fn drop(&mut self) {
        self.served.abort();
    }
}

impl Chain {
    async fn start(options: &ConnectionOptions) -> anyhow::Result<Self> {
        let (ours, theirs) = duplex(64 << 10);
        let (input, output) = split(theirs);
        let streams = ClientStreams {
            input: Box::pin(input),
            output: Box::pin(output),
            gone: None,
        };
        let options = options.clone();
        let served = tokio::spawn(async move {
            if let Err(error) = serve(options, streams).await {
                eprintln!("consort-many: {error:#}");
            }
        });
        let (output, input) = split(ours);
        let mut chain = Self {
            input,
            // Small, since it counts with the chain.
            output: BufReader::with_capacity(256, output),
            served,
        };
        chain
            .write(&json!({"jsonrpc": "2.0", "id": 1, "method": "proxy/initialize", "params": {"protocolVersion": 1}}))
            .await?;
        let asked = chain.read().await?;
        ensure!(
            asked["params"]["method"] == "initialize",
            "instead of `initialize` came {asked}"
        );
        chain
            .write(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"protocolVersion": 1}}))
            .await?;
        let answer = chain.read().await?;
        ensure!(
            answer["id"] == 1 && answer["result"]["protocolVersion"] == 1,
            "`initialize` was answered with {answer}"
        );
        Ok(chain)
    }

    /// A prompt, an update and an answer.
    async fn trip(&mut self, proxies: usize) -> anyhow::Result<()> {
        let params = json!({"sessionId": "s", "prompt": [{"type": "text", "text": "Hello"}]});
        self.write(&json!({"jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": params}))
            .await?;
        let asked = self.read().await?;
        ensure!(
            asked["params"]["method"] == "session/prompt" && asked["params"]["params"] == params,
            "instead of the prompt came {asked}"
        );
        let content = json!({"type": "text", "text": "and what an agent may say in a chunk"});
        let update = json!({"sessionId": "s", "update": {"sessionUpdate": "agent_message_chunk", "content": content}});
        self.write(&json!({"jsonrpc": "2.0", "method": "proxy/successor", "params": {"method": "session/update", "params": update}}))
            .await?;
        self.write(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"stopReason": "end_turn"}}))
            .await?;
        let update = self.read().await?;
        let expected = format!("{}and what an agent may say in a chunk", ">".repeat(proxies));
        ensure!(
            update["params"]["update"]["content"]["text"] == expected,
            "instead of {expected:?} came {update}"
        );
        let answer = self.read().await?;
        ensure!(
            answer["id"] == 2 && answer["result"]["stopReason"] == "end_turn",
            "the prompt was answered with {answer}"
        );
        Ok(())
    }

    async fn write(&mut self, message: &Value) -> anyhow::Result<()> {
        Ok(self.input.write_all(format!("{message}\n").as_bytes()).await?)
    }

    async fn read(&mut self) -> anyhow::Result<Value> {
        let mut line = String::new();
        let read = tokio::time::timeout(PATIENCE, self.output.read_line(&mut line)).await;
        ensure!(read.context("a chain said nothing")?? > 0, "a chain ended");
        Ok(serde_json::from_str(&line)?)
    }
}
