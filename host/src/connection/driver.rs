//! The loop of one connection: lines in, turns, lines out. A turn that does not end at once goes on in a task of its own,
//! so that a slow proxy holds up nothing but its own messages.

mod effects;
mod turns;

use super::ahead::{Ahead, Results};
use super::contained::contained;
use super::load::{self, Started};
use super::saved::SavedQueue;
use super::streams::{either, exit, notified, parsed, until, write_some};
use super::timers::{Due, Timers};
use super::told::{TALLY, Told};
use super::{ClientStreams, ConnectionOptions, Ending};
use crate::agent::Agent;
use crate::audit::{Audit, Recorder};
use crate::bridge::{Bridge, Said};
use crate::chain::{Role, Router};
use crate::fault::{Fault, Phase};
use crate::limits::Limit;
use crate::message::{Outcome, Registration, Turn, TurnResult};
use crate::sandbox::{Instance, Loaded};
use crate::saved_state::{self, SavedState};
use crate::wire::lines::{Line, LineBuffer};
use crate::wire::text::Text;
use std::future::Future;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};

/// How long a file read for a proxy may take.
const READ_TIME: Duration = Duration::from_secs(10);

/// The longest time after the end of the client's input: a day.
const MAX_GRACE: Duration = Duration::from_secs(24 * 60 * 60);

/// How long the agent may be silent after `initialize`. Editors give up after 20 to 60 s.
const SILENCE: Duration = Duration::from_secs(60);

/// How long what an ended agent wrote may take to arrive while a descendant keeps its pipe open.
pub(super) const DRAIN: Duration = Duration::from_millis(500);

/// How long the last bytes for the client may take.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// Lines of the agent that are taken in together if they would only wait for the one before them: so turns can be taken in a row. Others
/// are taken in one by one, since what stands in a proxy's inbox when it fails goes past it.
pub(super) const LINES: usize = 64;

/// Pieces in one write.
const SLICES: usize = 16;

/// What happens outside of the loop.
pub(super) enum Event {
    /// The end of the turn with this number, if it was not given up.
    Turn(usize, u64, Option<Box<Result<(Instance, TurnResult), Fault>>>),
    /// Of several turns of a proxy some are over, and the others go on.
    TurnsSoFar(usize, u64, Results),
    /// The end of several turns of a proxy with this number, if they were not given up.
    Turns(usize, u64, Option<Box<(Option<Instance>, Results)>>),
    Restarted(usize, Box<Result<(Instance, Registration), Fault>>),
    HostAnswer(usize, u64, Outcome),
}

pub(super) struct Slot {
    loaded: Arc<Loaded>,
    configuration: Text,
    instance: Option<Instance>,
    saved: SavedQueue,
    /// How many turns were given up: what comes of one with an earlier number is nobody's.
    given_up: u64,
    /// Gives up the turn that is under way.
    give_up: Option<oneshot::Sender<()>>,
    /// Turns that were taken before the chain asked for them.
    ahead: Ahead,
}

/// One connection.
pub(super) struct Driver {
    pub(super) options: ConnectionOptions,
    pub(super) router: Router,
    pub(super) slots: Vec<Slot>,
    pub(super) client: ClientStreams,
    pub(super) client_lines: LineBuffer,
    pub(super) client_open: bool,
    /// Whose turn it is to be looked at first.
    turn: u8,
    /// Since when the client is not read because the agent reads nothing.
    pub(super) unread_since: Option<Instant>,
    pub(super) agent: Option<Agent>,
    pub(super) agent_lines: LineBuffer,
    pub(super) agent_open: bool,
    /// Ends when the agent's process does.
    pub(super) agent_exit: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    pub(super) junk: Vec<String>,
    /// How many agents were started.
    pub(super) agents: u64,
    pub(super) timers: Timers,
    pub(super) events: mpsc::Receiver<Event>,
    /// What clients of bridged MCP servers say, as if the agent did.
    from_bridge: Option<mpsc::Receiver<Said>>,
    pub(super) send_event: mpsc::Sender<Event>,
    pub(super) running: usize,
    /// Why no chain could be made.
    pub(super) broken: Option<String>,
    pub(super) ending: Ending,
    audit: Recorder,
    told: Told,
    /// What proxies have changed will be counted up.
    tally_waits: bool,
    /// Turns that waited for the end of others of the same proxy.
    waited: Vec<(usize, Turn)>,
}

/// What woke the loop up.
enum Woken {
    ClientRead(std::io::Result<usize>),
    AgentRead(std::io::Result<usize>),
    ClientWritten(std::io::Result<usize>),
    AgentWritten(std::io::Result<usize>),
    Event(Option<Event>),
    Bridge(Option<Said>),
    AgentExited,
    ClientGone,
    Retry,
    Time,
    More,
}

impl Driver {
    /// Loads the proxies. One that cannot be loaded makes every `initialize` fail with the reason.
    pub(super) async fn new(options: ConnectionOptions, client: ClientStreams) -> Self {
        let audit = options.audit.as_ref().map(Audit::connection).unwrap_or_default();
        let agent = options.agent.as_ref().map(|agent| agent.program.to_string_lossy());
        audit.started(
            None,
            serde_json::json!({ "version": env!("CARGO_PKG_VERSION"), "agent": agent }),
        );
        match load::start_all(&options, &audit).await {
            Ok(started) => Self::with(options, client, started, audit, None),
            Err(error) => {
                let sentence = format!("{error:#}");
                tracing::error!("{sentence}");
                Self::with(options, client, Vec::new(), audit, Some(sentence))
            }
        }
    }

    /// A connection with these proxies, or one that only tells why there is none.
    pub(super) fn with(
        options: ConnectionOptions,
        client: ClientStreams,
        started: Vec<Started>,
        audit: Recorder,
        broken: Option<String>,
    ) -> Self {
        let mut setups = Vec::new();
        let mut slots = Vec::new();
        let mut records = Vec::new();
        let folder = saved_state::folder();
        for Started {
            loaded,
            configuration,
            instance,
            registration,
            on_failure,
        } in started
        {
            setups.push(load::setup(&loaded, registration, on_failure));
            records.push((loaded.name.clone(), loaded.record.clone()));
            let saved = SavedState::new(folder.as_deref(), &loaded.name, loaded.limits.get(Limit::State));
            slots.push(Slot {
                saved: SavedQueue::new(saved, Some(loaded.record.clone())),
                loaded,
                configuration,
                instance: Some(instance),
                given_up: 0,
                give_up: None,
                ahead: Ahead::default(),
            });
        }
        // Each proxy has at most one row of turns under way; reads and sleeps wait for room.
        let (send_event, events) = mpsc::channel(slots.len() + 64);
        let role = match options.agent {
            Some(_) => Role::Agent,
            None => Role::Proxy,
        };
        let ending = Ending {
            failure: broken.clone(),
            agent_missing: false,
        };
        let mut router = Router::new(role, setups, options.tap.clone()).recorded_by(audit.clone());
        router.set_notices(options.notices);
        let from_bridge = match Bridge::new() {
            Ok((bridge, messages)) => {
                router = router.bridged_by(bridge);
                Some(messages)
            }
            Err(error) => {
                tracing::warn!("agents get no MCP servers of proxies: {error}");
                None
            }
        };
        Self {
            from_bridge,
            router,
            slots,
            client,
            client_lines: LineBuffer::new(options.max_line),
            client_open: true,
            turn: 0,
            unread_since: None,
            agent: None,
            agent_lines: LineBuffer::new(options.max_line),
            options,
            agent_open: false,
            agent_exit: None,
            junk: Vec::new(),
            agents: 0,
            timers: Timers::default(),
            events,
            send_event,
            running: 0,
            broken,
            ending,
            told: Told::new(audit.clone(), records),
            tally_waits: false,
            waited: Vec::new(),
            audit,
        }
    }

    /// Runs until the end.
    pub(super) async fn run(mut self) -> Ending {
        loop {
            self.router.resume_choked();
            self.work().await;
            if !self.client_open && self.is_done() {
                break;
            }
            if self.timers.next().is_some_and(|next| next <= Instant::now()) && self.times().await {
                break;
            }
            match self.wait().await {
                Woken::ClientRead(Ok(0) | Err(_)) => self.client_ended().await,
                Woken::ClientRead(Ok(_)) => self.client_lines().await,
                Woken::AgentRead(Ok(0) | Err(_)) => self.agent_closed().await,
                Woken::AgentRead(Ok(_)) => self.agent_lines().await,
                Woken::ClientWritten(Ok(count)) if count > 0 => self.router.client_output().written(count),
                // Nobody reads any more: nothing that happens now could matter to anybody.
                Woken::ClientWritten(_) | Woken::ClientGone => {
                    self.router.client_output().clear();
                    break;
                }
                Woken::AgentWritten(Ok(count)) if count > 0 => {
                    self.unread_since = None;
                    self.router.agent_output().written(count);
                }
                Woken::AgentWritten(_) => {
                    // It may have something left to say.
                    self.router.agent_output().clear();
                    if let Some(agent) = &mut self.agent {
                        agent.input = None;
                    }
                    self.timers.add(Instant::now() + DRAIN, Due::Drained);
                }
                Woken::Event(Some(event)) => self.event(event),
                Woken::Event(None) => {}
                Woken::Bridge(Some(said)) => self.router.from_agent(said.message),
                Woken::Bridge(None) => self.from_bridge = None,
                Woken::AgentExited => {
                    self.agent_exit = None;
                    self.timers.add(Instant::now() + DRAIN, Due::Drained);
                }
                Woken::Retry => self.router.retry(None),
                // What is due is looked at before each wait.
                Woken::Time => {}
                // Others on this thread, and whoever wants to end this, get their chance.
                Woken::More => tokio::task::yield_now().await,
            }
        }
        self.finish().await;
        self.ending
    }

    fn is_done(&mut self) -> bool {
        self.router.open_requests() == 0
            && !self.router.has_work()
            && self.running == 0
            && self.router.client_output().waiting() == 0
            && (self.router.agent_output().waiting() == 0 || self.agent.is_none())
    }

    /// Goes on with something in a task of its own.
    fn apart(&mut self, task: impl Future<Output = Event> + Send + 'static) {
        self.running += 1;
        let send = self.send_event.clone();
        tokio::spawn(async move {
            let event = task.await;
            // The connection may be over.
            let _ = send.send(event).await;
        });
    }

    fn event(&mut self, event: Event) {
        self.running = self.running.saturating_sub(1);
        match event {
            Event::Turn(index, number, Some(result)) if number == self.slots[index].given_up => {
                let result = self.instance_back(index, *result);
                self.turn_ended(index, result);
            }
            Event::Turns(index, number, Some(turns)) if number == self.slots[index].given_up => {
                let (instance, results) = *turns;
                self.slots[index].instance = instance;
                self.turns_came(index, results, true);
            }
            Event::TurnsSoFar(index, number, results) => {
                // These go on.
                self.running += 1;
                if number == self.slots[index].given_up {
                    self.turns_came(index, results, false);
                }
            }
            Event::Turn(..) | Event::Turns(..) => {}
            Event::Restarted(index, result) => {
                let result = (*result).map(|(instance, registration)| {
                    self.slots[index].instance = Some(instance);
                    registration
                });
                self.told.look(index);
                self.router.proxy_restarted(index, result);
            }
            Event::HostAnswer(index, operation, outcome) => self.router.host_answer(index, operation, outcome),
        }
    }

    async fn wait(&mut self) -> Woken {
        let (read_client, read_agent) = (self.reads_client(), self.reads_agent());
        let more = self.router.has_work() || !self.waited.is_empty();
        let write_client = self.router.client_output().waiting() > 0;
        let write_agent = self.router.agent_output().waiting() > 0;
        let next = self.timers.next();
        let (agent_input, agent_output) = match &mut self.agent {
            Some(agent) => (agent.input.as_mut(), Some(&mut agent.output)),
            None => (None, None),
        };
        let write_agent = write_agent && agent_input.is_some();
        // Whoever was read last waits, so that a flood from one side never silences the other.
        self.turn = self.turn.wrapping_add(1);
        let input = &mut self.client.input;
        let client_read =
            read_client.then_some(async { Woken::ClientRead(input.read_buf(self.client_lines.room()).await) });
        let agent_read = agent_output
            .filter(|_| read_agent)
            .map(|output| async { Woken::AgentRead(output.read_buf(self.agent_lines.room()).await) });
        // What clients of bridged servers say is the agent's as well.
        let bridge = self.from_bridge.as_mut().filter(|_| read_agent);
        let bridge_read = bridge.map(|bridge| async { Woken::Bridge(bridge.recv().await) });
        let agent_read = Some(either(agent_read, bridge_read, self.turn & 2 == 0));
        let mut slices = ([IoSlice::new(&[]); SLICES], [IoSlice::new(&[]); SLICES]);
        let (client_output, agent_queue) = self.router.outputs();
        tokio::select! {
            biased;
            written = write_some(Some(&mut self.client.output), client_output, &mut slices.0), if write_client => Woken::ClientWritten(written),
            written = write_some(agent_input, agent_queue, &mut slices.1), if write_agent => Woken::AgentWritten(written),
            event = self.events.recv() => Woken::Event(event),
            () = exit(&mut self.agent_exit), if self.agent_exit.is_some() => Woken::AgentExited,
            () = exit(&mut self.client.gone), if self.client.gone.is_some() => Woken::ClientGone,
            () = notified(self.options.retry.as_deref()), if self.options.retry.is_some() => Woken::Retry,
            read = either(client_read, agent_read, self.turn & 1 == 0) => read,
            () = std::future::ready(()), if more => Woken::More,
            () = until(next), if next.is_some() => Woken::Time,
        }
    }

    async fn client_lines(&mut self) {
        while let Some(line) = self.client_lines.next_line() {
            self.client_line(line);
            self.work().await;
        }
    }

    fn client_line(&mut self, line: Line) {
        match parsed(line, self.options.max_line) {
            Ok(message) => self.router.from_client(message),
            Err(refused) => self.router.client_malformed(&refused.malformed, &refused.skims),
        }
    }

    async fn client_ended(&mut self) {
        if let Some(line) = self.client_lines.last_line() {
            self.client_line(line);
            self.work().await;
        }
        self.client_open = false;
        self.router.client_ended();
        let grace = self.options.grace.min(MAX_GRACE);
        self.timers.add(Instant::now() + grace, Due::Grace);
    }

    /// Does what is due; says whether the connection is over.
    async fn times(&mut self) -> bool {
        let now = Instant::now();
        while let Some(due) = self.timers.take(now) {
            match due {
                Due::Sleep { proxy, operation } => {
                    self.router
                        .host_answer(proxy, operation, Ok(Text::of(&serde_json::json!({}))));
                }
                Due::Restart { proxy } if !self.router.begins_restart(proxy) => {}
                Due::Restart { proxy } => {
                    let slot = &self.slots[proxy];
                    let (loaded, configuration) = (slot.loaded.clone(), slot.configuration.clone());
                    self.apart(async move {
                        let started = contained(Phase::Start, Instance::start(&loaded, configuration));
                        Event::Restarted(proxy, Box::new(started.await))
                    });
                }
                Due::Chain => self.router.timer(now),
                Due::Tally => {
                    self.tally_waits = false;
                    self.told.tally();
                }
                Due::Silence { agent } => {
                    if agent == self.agents
                        && self.router.initialize_waits()
                        && let Some(agent) = self.agent.take()
                    {
                        let seconds = SILENCE.as_secs();
                        let what = format!("has not answered `initialize` within {seconds} seconds");
                        self.agent_gone(agent, &what).await;
                    }
                }
                Due::Drained => {
                    let agent = self.agent.as_ref();
                    if agent.is_some_and(|agent| agent.status().is_some()) {
                        self.agent_closed().await;
                    } else if agent.is_some_and(|agent| agent.input.is_none())
                        && let Some(agent) = self.agent.take()
                    {
                        self.agent_gone(agent, "closed its standard input").await;
                    }
                }
                Due::Grace => {
                    let seconds = self.options.grace.as_secs();
                    let reason = format!("no answer came within {seconds} seconds after the client's input had ended");
                    self.router.give_up(&reason);
                    return true;
                }
            }
        }
        false
    }

    /// Writes what is left for the client, and ends the agent.
    async fn finish(&mut self) {
        let dropped = self.router.dropped_responses();
        if dropped > 0 {
            tracing::info!("{dropped} responses to no open request were dropped");
        }
        let last = async {
            while self.router.client_output().waiting() > 0 {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let output = self.router.client_output();
                match write_some(Some(&mut self.client.output), output, &mut slices).await {
                    Ok(count) if count > 0 => self.router.client_output().written(count),
                    _ => return,
                }
            }
            // What was written is all that counts.
            let _ = self.client.output.flush().await;
        };
        let _ = tokio::time::timeout(LAST_WRITE, last).await;
        // Nobody who uses it waits for the agent's end.
        self.from_bridge = None;
        self.router.leave_bridge();
        if let Some(agent) = self.agent.take() {
            agent.stop().await;
        }
        self.told.tally();
        self.audit.ended();
    }
}
