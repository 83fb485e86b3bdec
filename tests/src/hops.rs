//! A chain without processes, pipes and other threads: lines in, turns in real instances, lines out. For what is counted and timed hop
//! by hop; all limits and grants are on, as in the command.

use consort::chain::{Effect, ProxySetup, Role, Router};
use consort::grants::{Grant, Policy};
use consort::limits::{Limit, Limits};
use consort::message::{OnFailure, Registration};
use consort::sandbox::{Instance, Loaded, Sandbox};
use consort::wire::envelope;
use consort::wire::lines::{Line, LineBuffer};
use consort::wire::text::Text;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The longest line that such a chain takes.
const MAX_LINE: usize = 64 * 1024 * 1024;

/// A chain whose turns are taken on the calling thread.
pub struct Hops {
    router: Router,
    instances: Vec<Option<Instance>>,
    from_client: LineBuffer,
    from_agent: LineBuffer,
}

impl Hops {
    /// A chain of these components, past `initialize`. Each gets what its manifest wishes for.
    pub async fn start(components: &[PathBuf]) -> Self {
        let sandbox = sandbox();
        let mut setups = Vec::new();
        let mut instances = Vec::new();
        for (index, component) in components.iter().enumerate() {
            let loaded = load(&sandbox, component, &format!("p{index}"));
            let limits = loaded.limits;
            let (instance, registration) = start(&loaded).await;
            instances.push(Some(instance));
            setups.push(ProxySetup {
                name: loaded.name.clone(),
                log: loaded.log().clone(),
                registration,
                on_failure: OnFailure::Bypass,
                hold_time: limits.time(Limit::HoldTime),
                servers: (!loaded.policy.hears_all_servers()).then(|| loaded.record.servers.clone()),
                state: limits.get(Limit::State),
            });
        }
        let mut hops = Self {
            router: Router::new(Role::Agent, setups, None),
            instances,
            from_client: LineBuffer::new(MAX_LINE),
            from_agent: LineBuffer::new(MAX_LINE),
        };
        hops.client(br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}"#)
            .await;
        let asked = hops.at_agent();
        let id = String::from_utf8_lossy(&asked);
        let id = id.split("\"id\":").nth(1).and_then(|rest| rest.split(',').next());
        let id = id.expect("the agent is asked under an id");
        hops.agent(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":1}}}}"#).as_bytes())
            .await;
        assert!(!hops.at_client().is_empty(), "`initialize` is answered");
        hops
    }

    /// Lines of the client, without the last newline, all the way.
    pub async fn client(&mut self, lines: &[u8]) {
        self.from_client.room().extend_from_slice(lines);
        self.from_client.room().extend_from_slice(b"\n");
        while let Some(line) = self.from_client.next_line() {
            self.router.from_client(message(line));
        }
        self.work().await;
    }

    /// Lines of the agent, without the last newline, all the way.
    pub async fn agent(&mut self, lines: &[u8]) {
        self.from_agent.room().extend_from_slice(lines);
        self.from_agent.room().extend_from_slice(b"\n");
        while let Some(line) = self.from_agent.next_line() {
            self.router.from_agent(message(line));
        }
        self.work().await;
    }

    async fn work(&mut self) {
        loop {
            while let Some(effect) = self.router.next_effect() {
                if matches!(effect, Effect::StartAgent) {
                    self.router.agent_started(Ok(()));
                }
            }
            let Some((index, turn)) = self.router.next_turn() else {
                return;
            };
            let instance = self.instances[index].take().expect("it has an instance");
            let (instance, result) = instance.turn(turn).await.expect("the turn succeeds");
            self.instances[index] = Some(instance);
            self.router.finish_turn(index, Ok(result));
        }
    }

    /// What has come out for the client.
    pub fn at_client(&mut self) -> Vec<u8> {
        self.router.client_output().take()
    }

    /// What has come out for the agent.
    pub fn at_agent(&mut self) -> Vec<u8> {
        self.router.agent_output().take()
    }
}

/// A component whose instances are made again and again, as after a fault.
pub struct Rebuilt(Loaded);

impl Rebuilt {
    /// Compiles it.
    pub fn new(component: &Path) -> Self {
        Self(load(&sandbox(), component, "rebuilt"))
    }

    /// Makes an instance, and calls its `start`.
    pub async fn start(&self) -> Instance {
        start(&self.0).await.0
    }
}

fn sandbox() -> Sandbox {
    Sandbox::new(consort::folders::cache().as_deref()).expect("the engine starts")
}

/// A component that gets what its manifest wishes for.
fn load(sandbox: &Sandbox, component: &Path, name: &str) -> Loaded {
    let prepared = sandbox.load(component).expect("the component loads");
    let wishes: Vec<Grant> = prepared
        .manifest
        .iter()
        .flat_map(|(manifest, _)| manifest.wishes.iter().flatten())
        .map(|(grant, _)| grant.clone())
        .collect();
    Loaded::new(prepared, name, Limits::default(), Arc::new(Policy::new(wishes)), false)
}

async fn start(loaded: &Loaded) -> (Instance, Registration) {
    let configuration = Text::of(&serde_json::json!({}));
    Instance::start(loaded, configuration).await.expect("it starts")
}

fn message(line: Line) -> envelope::Incoming {
    match line {
        Line::Whole(line) => envelope::parse(&line).expect("the line is a message"),
        Line::TooLong(_) => panic!("the line is too long"),
    }
}
