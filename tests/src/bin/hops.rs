//! Takes hops in one thread, to be watched by a profiler or counted by callgrind: `hops KIND PROXIES MESSAGES [COMPONENT]`. KIND is `update` (edited
//! by every proxy) or `prompt` (looked at by none of them, there and back).

use consort_tests::guests;
use consort_tests::hops::Hops;
use std::time::Instant;
use tikv_jemallocator::Jemalloc;

/// As in the command.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, proxies, messages, components @ ..] = arguments.as_slice() else {
        return Err("say `hops KIND PROXIES MESSAGES [COMPONENT]`".into());
    };
    let (proxies, messages): (usize, u64) = (proxies.parse()?, messages.parse()?);
    let arrow = match components.first() {
        Some(component) => component.into(),
        None => guests::guest_with(&consort_tests::consort_beside()?, "arrow"),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()?;
    runtime.block_on(async {
        let mut hops = Hops::start(&vec![arrow; proxies]).await;
        let begun = Instant::now();
        for number in 0..messages {
            match kind.as_str() {
                "update" => update(&mut hops, proxies, number).await,
                _ => prompt(&mut hops, number).await,
            }
        }
        let time = begun.elapsed().as_secs_f64() * 1e6 / messages.max(1) as f64;
        println!("{time:.3} µs each");
    });
    Ok(())
}

async fn update(hops: &mut Hops, proxies: usize, number: u64) {
    let line = format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{number} and what an agent may say in a chunk"}}}}}}}}"#
    );
    hops.agent(line.as_bytes()).await;
    let out = hops.at_client();
    let wanted = format!("\"text\":\"{}{number} and", ">".repeat(proxies));
    let out = String::from_utf8_lossy(&out);
    assert!(out.contains(&wanted), "update {number} came as {out}");
}

async fn prompt(hops: &mut Hops, number: u64) {
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":{number},"method":"session/prompt","params":{{"sessionId":"s","prompt":[{{"type":"text","text":"Hello"}}]}}}}"#
    );
    hops.client(line.as_bytes()).await;
    let asked = hops.at_agent();
    let asked = String::from_utf8_lossy(&asked);
    let id = asked.split("\"id\":").nth(1).and_then(|rest| rest.split(',').next());
    let id = id.unwrap_or_else(|| panic!("prompt {number} came as {asked}"));
    hops.agent(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"stopReason":"end_turn"}}}}"#).as_bytes())
        .await;
    let out = hops.at_client();
    let wanted = format!("\"id\":{number},");
    assert!(
        out.windows(wanted.len()).any(|part| part == wanted.as_bytes()),
        "the answer to prompt {number} is missing"
    );
}
