//! Proxies that mean harm. What each may try, and where it is tested that little comes of it:
//!
//! | what it tries | tests |
//! |---|---|
//! | 1 is no component, or of another world | `before_it_runs::what_is_no_proxy_…`; `command_line`, `options` |
//! | 2 is large, or takes long or much to compile | `before_it_runs::a_component_over_the_cap_…`, `…what_would_cost_far_more_…`, `…one_that_is_compiled_for_long_…`; the time in the unit tests of `connection::load` |
//! | 3 imports what is not there | `before_it_runs::unknown_imports_…` |
//! | 4 begins with much memory, many memories, tables, instances | `before_it_runs::more_than_its_memory_…`, `…many_parts_…` |
//! | 5 never starts | `before_it_runs::one_that_never_starts_…` |
//! | 6 plants compiled code | `cache` |
//! | 7 asks for much in its manifest | `before_it_runs::a_manifest_…`; the lock file is to come |
//! | 8 computes for ever | `while_it_runs::what_never_ends_…`; `faults::a_proxy_that_spins_…`, `faults::memory_without_end_…` |
//! | 9 computes a little less than it may | `while_it_runs::a_little_less_…` |
//! | 10 sends for ever | `while_it_runs::what_a_flood_…` |
//! | 11, 39 waits in the host, looks at the clock | `while_it_runs::what_never_ends_…`; `before_it_runs::one_that_never_starts_…` |
//! | 12 grows beyond its limit | `while_it_runs::memory_that_is_refused_…`, `…tables_…` |
//! | 13 traps in every way | `while_it_runs::every_kind_of_trap_…` |
//! | 14 leaks slowly | `while_it_runs::a_slow_leak_…` |
//! | 15 traps on every message | `while_it_runs::traps_on_every_message_…`, `…on_initialize_…`; `faults::endless_traps_…`, `closed::when_it_has_failed_too_often_…` |
//! | 16 traps with many requests in flight | `while_it_runs::many_requests_…` |
//! | 17 breaks the canonical ABI | `while_it_runs::values_that_are_none_…`; `before_it_runs::a_start_that_answers_nonsense_…` |
//! | 18 sends what is none, or too much | `while_it_runs::what_cannot_be_sent_…`, `…a_long_name_…` |
//! | 19 never gives a handle back | `while_it_runs::handles_…` |
//! | 20 is called again after a trap | `while_it_runs::an_instance_that_failed_…` |
//! | 21 forges ids | `channel::ids_that_are_not_its_own_…`; `ids` for those of client and agent |
//! | 22 pretends to be another peer | cannot be said: `send` has no sender, and `receive` is told the source by the host |
//!
//! Beyond the list: one call of the host that takes long (`while_it_runs::what_never_ends_…`) or makes much of little
//! (`…an_edit_that_doubles_…`), and a `start` that says too much (`before_it_runs::too_many_interests_…`).

mod before_it_runs;
mod channel;
mod while_it_runs;

use consort_tests::command::{command, ungranted};
use consort_tests::guests::guest;
use consort_tests::session::{SESSION, begin, chunk, notification, prompt, request};
use consort_tests::{Agent, AgentListener, Client, Directory, root};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

/// What the process may have taken at most, in KiB, whatever a proxy did. Without optimisation it takes 100 MiB in peace.
const MOST: u64 = 400 * 1024;

/// A proxy that means harm, in a chain before one that means well.
struct Hostile {
    directory: Directory,
    listener: AgentListener,
    component: PathBuf,
    settings: String,
    granted: bool,
}

impl Hostile {
    /// The guest `hostile` with its configuration.
    fn guest(what: &str, amount: usize) -> Self {
        Self::other("hostile", &format!("{{ do = {what:?}, amount = {amount} }}"))
    }

    /// Another guest with its configuration as TOML.
    fn other(name: &str, configuration: &str) -> Self {
        Self::of(guest(name)).with(&format!("config = {configuration}"))
    }

    /// The proxy in `tests/hostile/proxy.wat` with something in the place of its comments.
    fn written(changes: &[(&str, &str)]) -> Self {
        let directory = Directory::new();
        let component = directory.file("written.wasm", written(changes));
        Self::in_directory(directory, component)
    }

    /// Any file.
    fn of(component: PathBuf) -> Self {
        Self::in_directory(Directory::new(), component)
    }

    fn in_directory(directory: Directory, component: PathBuf) -> Self {
        Self {
            directory,
            listener: AgentListener::new(),
            component,
            settings: String::new(),
            granted: true,
        }
    }

    /// The same with another line of `consort.toml`.
    fn with(mut self, setting: &str) -> Self {
        self.settings += setting;
        self.settings.push('\n');
        self
    }

    /// The same without grants but the ordinary ones that the proxy asks for.
    fn without_grants(mut self) -> Self {
        self.granted = false;
        self
    }

    /// The client of this chain, before anything was said.
    fn fresh(&self) -> Client {
        // A busy machine must not be taken for a slow proxy.
        let mut settings = self.settings.clone();
        for (limit, value) in [("time", "110 s"), ("cpu-per-minute", "600 s")] {
            if !settings.contains(&format!("limits.{limit} ")) {
                settings += &format!("limits.{limit} = \"{value}\"\n");
            }
        }
        let text = format!(
            "[[proxies]]\nname = \"hostile\"\nfile = {:?}\n{}\n[[proxies]]\nfile = {:?}\ngrant = [\"change-answers\"]\n",
            self.component,
            settings,
            guest("arrow")
        );
        let file = self.directory.file("consort.toml", text);
        let mut words: Vec<OsString> = ["run", "--log", "info", "--config"].map(OsString::from).into();
        words.extend([file.into(), "--".into()]);
        words.extend(self.listener.command());
        let command = match self.granted {
            true => command(&words),
            false => ungranted(&words),
        };
        Client::spawn(command, self.listener.transcript().clone())
    }

    /// Client and agent of this chain, and a session.
    fn start(&self) -> (Client, Agent) {
        let mut client = self.fresh();
        let agent = begin(&mut client, &self.listener);
        (client, agent)
    }

    /// What `initialize` is answered with by a chain that cannot be set up. The process says the same on standard error, takes little, and
    /// ends with its input.
    fn refused(&self) -> String {
        let mut client = self.fresh();
        client.send_json(&request(1, "initialize", &json!({"protocolVersion": 1})));
        let answer = client.expect();
        assert_eq!(answer["id"], 1, "{answer}");
        let message = answer["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains("`hostile`"), "it is named: {answer}");
        client.expect_standard_error(&message);
        assert_took_little(&client);
        client.close_input();
        client.expect_end();
        assert_eq!(client.wait().code(), Some(1), "{message}");
        message
    }
}

/// The bytes of the proxy in `tests/hostile/proxy.wat` with something in the place of its comments.
fn written(changes: &[(&str, &str)]) -> Vec<u8> {
    let file = root().join("tests/hostile/proxy.wat");
    let mut text = fs::read_to_string(file).expect("it is in the source tree");
    for (place, change) in changes {
        let place = format!("(;{place};)");
        assert!(text.contains(&place), "there is no {place}");
        text = text.replace(&place, change);
    }
    wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{changes:?}"))
}

/// The most that the process has taken so far, in KiB.
fn peak(client: &Client) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", client.pid())).expect("the process is there");
    let figure = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let figure = figure.and_then(|figure| figure.split_whitespace().next());
    figure.expect("it has a peak").parse().expect("it is a number")
}

#[track_caller]
fn assert_took_little(client: &Client) {
    let peak = peak(client);
    assert!(peak < MOST, "the process took {peak} KiB");
}

/// A request that only a written proxy takes part in.
fn hit(id: &str) -> Value {
    request(id, "_hit", &json!({}))
}

/// The rest of the chain goes on: a prompt that nobody means harm with gets there and back, through the other proxy, and nothing else
/// comes to either end.
#[track_caller]
fn goes_on(client: &mut Client, agent: &mut Agent) {
    client.send_json(&prompt("fine", "fine"));
    let asked = agent.expect();
    assert_eq!(asked["params"]["prompt"][0]["text"], "fine", "{asked}");
    agent.send_json(&chunk("ok"));
    agent.answer(&asked, &json!({"stopReason": "end_turn"}));
    agent.send_json(&notification("_marker", &json!({"sessionId": SESSION})));
    let update = client.expect();
    assert_eq!(update, chunk(">ok"), "{}", client.standard_error());
    let answer = client.expect();
    assert_eq!(
        (&answer["id"], &answer["result"]["stopReason"]),
        (&json!("fine"), &json!("end_turn"))
    );
    assert_eq!(client.expect()["method"], "_marker");
    assert_took_little(client);
}

/// A prompt that sets the proxy off and goes on without it: the agent gets it once and the client one answer.
#[track_caller]
fn goes_past(client: &mut Client, agent: &mut Agent) {
    client.send_json(&prompt("bad", "GO"));
    let asked = agent.expect();
    assert_eq!(asked["params"]["prompt"][0]["text"], "GO", "{asked}");
    agent.answer(&asked, &json!({"stopReason": "end_turn"}));
    assert_eq!(client.expect()["id"], "bad");
}

/// What the proxy answers to a prompt that sets it off.
#[track_caller]
fn seen(client: &mut Client, text: &str) -> Vec<String> {
    client.send_json(&prompt("seen", text));
    let answer = client.expect();
    assert_eq!(answer["id"], "seen", "{answer}");
    let seen = answer["result"]["_meta"]["seen"].as_array();
    let seen = seen.unwrap_or_else(|| panic!("{answer}"));
    seen.iter()
        .map(|text| text.as_str().unwrap_or_default().to_owned())
        .collect()
}
