//! Measures what a chain costs: `cargo run --release -p consort-tests --bin measure [PROXIES...]`. Prints for each number of
//! proxies (0, 1, 4 and 8 if none is given) how long a prompt takes there and back, and how many updates get through a
//! second, each update edited by every proxy and checked. The agent is this program too.

use consort_tests::guests;
use serde_json::{Value, json};
use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Prompts whose round trip is measured, one at a time.
const PROMPTS: usize = 2_000;

/// Updates in the answer whose throughput is measured.
const UPDATES: usize = 200_000;

/// Rounds; the median counts.
const ROUNDS: usize = 3;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "agent") {
        return agent();
    }
    let counts: Vec<usize> = match arguments.is_empty() {
        true => vec![0, 1, 4, 8],
        false => arguments
            .iter()
            .map(|word| word.parse())
            .collect::<std::result::Result<_, _>>()?,
    };
    println!("proxies   prompt there and back (median)   updates a second   (median of {ROUNDS} rounds)");
    for count in counts {
        let mut trips = Vec::new();
        let mut rates = Vec::new();
        for _ in 0..ROUNDS {
            let mut chain = Chain::start(count)?;
            trips.push(chain.round_trip()?);
            rates.push(chain.rate(count)?);
        }
        trips.sort();
        rates.sort_by(f64::total_cmp);
        println!(
            "{count:7}   {:27} µs   {:16.0}",
            trips[ROUNDS / 2].as_micros(),
            rates[ROUNDS / 2]
        );
    }
    Ok(())
}

/// Answers prompts, with as many updates as the prompt says.
fn agent() -> Result<()> {
    let mut output = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let updates = request["params"]["updates"].as_u64().unwrap_or(0);
        let mut lines = String::new();
        for number in 0..updates {
            writeln!(
                lines,
                r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{number} and what an agent may say in a chunk"}}}}}}}}"#
            )?;
        }
        output.write_all(lines.as_bytes())?;
        writeln!(
            output,
            "{}",
            json!({"jsonrpc": "2.0", "id": request["id"], "result": {"protocolVersion": 1}})
        )?;
        output.flush()?;
    }
    Ok(())
}

struct Chain {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Chain {
    fn start(proxies: usize) -> Result<Self> {
        let mut command = Command::new(consort_tests::consort_beside()?);
        command
            .args(["run", "--no-config"])
            .env("XDG_STATE_HOME", consort_tests::command::state());
        for _ in 0..proxies {
            command
                .arg("--proxy")
                .arg(guests::guest_with(&consort_tests::consort_beside()?, "arrow"));
        }
        let mut child = command
            .arg("--")
            .arg(std::env::current_exe()?)
            .arg("agent")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = BufReader::with_capacity(1 << 18, child.stdout.take().ok_or("no output")?);
        let mut chain = Self { child, input, output };
        chain.ask("initialize", &json!({"protocolVersion": 1}))?;
        chain.line()?;
        Ok(chain)
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<()> {
        let line = format!(
            "{}\n",
            json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        );
        Ok(self.input.write_all(line.as_bytes())?)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }

    /// A prompt whose answer is one update and the end of the turn.
    fn round_trip(&mut self) -> Result<Duration> {
        let mut times = Vec::with_capacity(PROMPTS);
        for _ in 0..PROMPTS {
            let begun = Instant::now();
            self.ask(
                "session/prompt",
                &json!({"sessionId": "s", "updates": 1, "prompt": [{"type": "text", "text": "Hello"}]}),
            )?;
            self.line()?;
            let end = self.line()?;
            times.push(begun.elapsed());
            assert!(end.contains("\"id\":1"), "the turn ended with {end}");
        }
        times.sort();
        Ok(times[PROMPTS / 2])
    }

    fn rate(&mut self, proxies: usize) -> Result<f64> {
        let begun = Instant::now();
        self.ask(
            "session/prompt",
            &json!({"sessionId": "s", "updates": UPDATES, "prompt": []}),
        )?;
        let arrows = ">".repeat(proxies);
        for number in 0..UPDATES {
            let line = self.line()?;
            assert!(
                line.contains(&format!("\"text\":\"{arrows}{number} and")),
                "update {number} came as {line}"
            );
        }
        self.line()?;
        Ok(UPDATES as f64 / begun.elapsed().as_secs_f64())
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
