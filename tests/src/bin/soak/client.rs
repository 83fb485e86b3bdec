//! The client: does at random what clients do, at a limited rate, until its time is over.

use crate::asks::Answers;
use crate::checks::{Checks, Expected, Turn};
use crate::process::Watch;
use crate::script::{Random, Script};
use crate::stream::Stream;
use crate::{Options, Result};
use serde_json::{Value, json};
use std::process::Child;
use std::time::{Duration, Instant};

/// Sessions that are there at a time.
const SESSIONS: usize = 24;

/// How long what is open at the end may take.
const END: Duration = Duration::from_secs(130);

/// Lines that are no messages, and the code that each is answered with under the id null, if it is answered.
const MALFORMED: [(&[u8], Option<i64>); 7] = [
    (b"nonsense", Some(-32700)),
    (b"\xff\xfe{}", Some(-32700)),
    (b"[]", Some(-32600)),
    (br#"{"jsonrpc":"2.0","id":1.5,"method":"session/prompt"}"#, Some(-32600)),
    (b" \t\r", None),
    (br#"{"jsonrpc":"2.0","id":18446744073709551615,"result":{}}"#, None),
    (
        br#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"nobody's"}}"#,
        None,
    ),
];

/// Runs the traffic; returns what was wrong.
pub(crate) fn run(child: &mut Child, options: &Options) -> Result<Vec<String>> {
    let mut client = Client {
        stream: Stream::new(child)?,
        checks: Checks::default(),
        answers: Answers::default(),
        random: Random(options.seed),
        ids: 0,
        told: false,
    };
    let mut watch = Watch::new(child.id());
    let initialize = json!({"protocolVersion": 1, "clientCapabilities": {}});
    client.request("initialize", initialize, Expected::Result)?;
    let pause = Duration::from_secs(1) / options.rate;
    let begun = Instant::now();
    let (mut next, mut minute) = (begun, begun + Duration::from_secs(60));
    client.receive_until(END, |client| client.checks.waiting.is_empty())?;
    while begun.elapsed() < options.length {
        client.receive(Duration::from_millis(2))?;
        let now = Instant::now();
        if now >= next {
            // Time that a stall has cost is not caught up with.
            next = (next + pause).max(now - pause);
            client.act()?;
        }
        watch.look()?;
        if now >= minute {
            minute += Duration::from_secs(60);
            client.checks.overdue();
            let sample = watch.last().map(|sample| sample.to_string()).unwrap_or_default();
            println!(
                "{:3} min: {sample}; {:?}",
                begun.elapsed().as_secs() / 60,
                client.checks.counts
            );
        }
    }
    client.finish()?;
    let Client { stream, mut checks, .. } = client;
    for line in stream.close() {
        checks.wrong(format!("behind the end came {}", String::from_utf8_lossy(&line)));
    }
    let status = child.wait()?;
    if !status.success() {
        checks.wrong(format!("the process ended with {status}"));
    }
    println!("in all: {:?}", checks.counts);
    checks.wrong.extend(watch.wrong());
    Ok(checks.wrong)
}

struct Client {
    stream: Stream,
    checks: Checks,
    answers: Answers,
    random: Random,
    ids: u64,
    told: bool,
}

impl Client {
    /// Takes what comes, and gives the answers that are due.
    fn receive(&mut self, patience: Duration) -> Result<()> {
        let mut patience = patience;
        while let Some(line) = self.stream.next(patience)? {
            let message: Value = serde_json::from_slice(&line)?;
            if self.checks.take(&message) {
                self.answers.plan(&message, &mut self.random);
            }
            if !self.checks.wrong.is_empty() && !std::mem::replace(&mut self.told, true) {
                eprintln!("{}\nwhat went before:", self.checks.wrong[0]);
                self.stream.recent().for_each(|line| eprintln!("{line}"));
            }
            self.answer()?;
            patience = Duration::ZERO;
        }
        self.answer()
    }

    fn answer(&mut self) -> Result<()> {
        while let Some(answer) = self.answers.take() {
            self.stream.send(&answer)?;
        }
        Ok(())
    }

    fn receive_until(&mut self, patience: Duration, done: impl Fn(&Self) -> bool) -> Result<()> {
        let begun = Instant::now();
        while !done(self) && begun.elapsed() < patience {
            self.receive(Duration::from_millis(10))?;
        }
        Ok(())
    }

    fn request(&mut self, method: &str, params: Value, expected: Expected) -> Result<String> {
        self.ids += 1;
        let id = match self.ids % 3 {
            0 => json!(self.ids),
            1 => json!(format!("c{}", self.ids)),
            _ => json!(-i64::try_from(self.ids)?),
        };
        self.checks.waiting.insert(id.to_string(), (Instant::now(), expected));
        self.stream
            .send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        Ok(id.to_string())
    }

    fn notify(&mut self, method: &str, params: Value) -> Result<()> {
        self.stream
            .send(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
    }

    /// One thing that clients do.
    fn act(&mut self) -> Result<()> {
        match self.random.below(1_000) {
            _ if self.checks.sessions.len() < SESSIONS => self.new_session(),
            0..680 => self.turn(false),
            680..740 => self.turn(true),
            740..830 => self.cancel(),
            830..890 => self.give_up(),
            890..930 => self.malformed(),
            930..950 => {
                let expected = Expected::Result;
                self.request("_observer/count", json!({}), expected).map(drop)
            }
            950..990 => self.close_session(),
            990..993 => {
                self.stream.stall();
                self.checks.count("stalls");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn new_session(&mut self) -> Result<()> {
        let new = |(_, expected): &&(Instant, Expected)| matches!(expected, Expected::New);
        if self.checks.waiting.values().filter(new).count() >= 4 {
            return Ok(());
        }
        self.checks.count("sessions");
        let params = json!({"cwd": "/tmp", "mcpServers": []});
        self.request("session/new", params, Expected::New).map(drop)
    }

    /// A session that is idle, or one that is busy.
    fn session(&mut self, busy: bool) -> Option<String> {
        let sessions = self.checks.sessions.iter();
        let fitting: Vec<&String> = sessions
            .filter(|(_, session)| session.busy.is_some() == busy)
            .map(|(id, _)| id)
            .collect();
        let limit = u64::try_from(fitting.len()).ok().filter(|&limit| limit > 0)?;
        let chosen = usize::try_from(self.random.below(limit)).ok()?;
        Some(fitting[chosen].clone())
    }

    fn turn(&mut self, load: bool) -> Result<()> {
        let Some(id) = self.session(false) else { return Ok(()) };
        let Some(session) = self.checks.sessions.get_mut(&id) else {
            return Ok(());
        };
        session.turn += 1;
        let turn = Turn {
            session: id.clone(),
            turn: session.turn,
            load,
            cancelled: false,
            given_up: false,
        };
        let script = Script::random(turn.turn, &mut self.random).to_json();
        let mut params = json!({"sessionId": id, "script": script});
        let method = if load { "session/load" } else { "session/prompt" };
        if load {
            params["cwd"] = "/tmp".into();
        } else {
            let size = match self.random.below(200) {
                0 => 2_000_000,
                1..20 => 30_000,
                _ => 20,
            };
            params["prompt"] = json!([{"type": "text", "text": "z".repeat(size)}]);
        }
        let request = self.request(method, params, Expected::Turn(turn))?;
        if let Some(session) = self.checks.sessions.get_mut(&id) {
            session.busy = Some(request);
        }
        // Some change their mind at once.
        match self.random.below(40) {
            0 => self.cancel_session(&id),
            _ => Ok(()),
        }
    }

    fn cancel(&mut self) -> Result<()> {
        match self.session(true) {
            Some(id) => self.cancel_session(&id),
            None => Ok(()),
        }
    }

    fn cancel_session(&mut self, id: &str) -> Result<()> {
        if let Some(turn) = self.turn_of(id) {
            turn.cancelled = true;
        }
        self.checks.count("session/cancel");
        self.notify("session/cancel", json!({"sessionId": id}))
    }

    fn give_up(&mut self) -> Result<()> {
        let Some(id) = self.session(true) else { return Ok(()) };
        let Some(turn) = self.turn_of(&id) else { return Ok(()) };
        // What the agent does after a cancelled replay is not agreed upon.
        if turn.load {
            return Ok(());
        }
        turn.given_up = true;
        let request: Option<Value> = self
            .checks
            .sessions
            .get(&id)
            .and_then(|session| serde_json::from_str(session.busy.as_ref()?).ok());
        self.checks.count("$/cancel_request");
        self.notify("$/cancel_request", json!({"requestId": request}))
    }

    fn turn_of(&mut self, session: &str) -> Option<&mut Turn> {
        let request = self.checks.sessions.get(session)?.busy.as_ref()?;
        match &mut self.checks.waiting.get_mut(request)?.1 {
            Expected::Turn(turn) => Some(turn),
            _ => None,
        }
    }

    fn close_session(&mut self) -> Result<()> {
        let Some(id) = self.session(false) else { return Ok(()) };
        let request = self.request("session/close", json!({"sessionId": id}), Expected::Close(id.clone()))?;
        if let Some(session) = self.checks.sessions.get_mut(&id) {
            session.busy = Some(request);
        }
        Ok(())
    }

    fn malformed(&mut self) -> Result<()> {
        self.checks.count("malformed lines");
        let chosen = usize::try_from(self.random.below(MALFORMED.len() as u64 + 2))?;
        if let Some((line, code)) = MALFORMED.get(chosen) {
            if let Some(code) = code {
                *self.checks.refusals.entry(*code).or_default() += 1;
            }
            return self.stream.send_line(line);
        }
        if chosen == MALFORMED.len() {
            return self.request("x", json!(7), Expected::Error(-32602)).map(drop);
        }
        self.ids += 1;
        let id = format!("\"twice{}\"", self.ids);
        let line =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x","params":{{"sessionId":"a","sessionId":"b"}}}}"#);
        self.checks
            .waiting
            .insert(id, (Instant::now(), Expected::Error(-32600)));
        self.stream.send_line(line.as_bytes())
    }

    /// Waits for everything that is open, and compares with what the agent counted.
    fn finish(&mut self) -> Result<()> {
        let quiet = |client: &Self| client.checks.is_quiet() && client.answers.is_empty();
        self.receive_until(END, quiet)?;
        self.checks.overdue();
        // Turns that were given up may go on at the agent until it has heard.
        let begun = Instant::now();
        loop {
            self.request("_soak/report", json!({}), Expected::Result)?;
            self.receive_until(END, quiet)?;
            let report = self.checks.last.clone();
            if report["waiting"] == 0 && report["asked"] == report["answered"] {
                break;
            }
            if begun.elapsed() > END || !quiet(self) {
                self.checks
                    .wrong(format!("the agent's requests were not all answered: {report}"));
                break;
            }
        }
        let open: Vec<String> = self
            .checks
            .waiting
            .values()
            .map(|open| format!("{:?}", open.1))
            .collect();
        if !self.checks.is_quiet() {
            let refusals = format!("{:?}", self.checks.refusals);
            self.checks.wrong(format!("not answered: {open:?}, {refusals}"));
        }
        Ok(())
    }
}
