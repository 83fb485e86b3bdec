//! The client: writes prompts, reads what comes, and verifies all of it. Every wait has an end.

use crate::chain::Process;
use crate::expected::{Asked, Came, Changes, Expected};
use crate::lines::Lines;
use crate::wire::{self, Order};
use anyhow::bail;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::ops::Range;
use std::process::{ChildStdin, ChildStdout};
use std::time::Duration;

/// How long nothing may come before that is an error. Long for any chain, whatever else the machine has to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// What came, verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// An update of a session.
    Update { session: usize },
    /// A turn is over.
    Answer { id: u64 },
    /// A question for permission, answered.
    Question,
}

/// A client at one end of a chain.
pub(crate) struct Client {
    input: ChildStdin,
    output: ChildStdout,
    lines: Lines,
    line: Vec<u8>,
    ids: u64,
    expected: Expected,
    process: Process,
}

impl Client {
    pub(crate) fn new(
        (process, input, output): (Process, ChildStdin, ChildStdout),
        changes: Changes,
    ) -> anyhow::Result<Self> {
        let flags = fcntl_getfl(&input)?;
        fcntl_setfl(&input, flags | OFlags::NONBLOCK)?;
        Ok(Self {
            input,
            output,
            lines: Lines::default(),
            line: Vec::new(),
            ids: 0,
            expected: Expected::new(changes),
            process,
        })
    }

    /// The conductor's process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Introduces itself and waits for the answer.
    pub(crate) fn initialize(&mut self) -> anyhow::Result<()> {
        let id = self.ask(Asked::Initialize);
        wire::request(&mut self.line, id, "initialize", wire::INITIALIZE);
        match self.event()? {
            Event::Answer { id: answered } if answered == id => Ok(()),
            other => bail!("`initialize` was answered with {other:?}"),
        }
    }

    /// Opens sessions until there are so many.
    pub(crate) fn sessions(&mut self, count: usize) -> anyhow::Result<()> {
        while self.expected.sessions() < count {
            let batch = (count - self.expected.sessions()).min(64);
            for _ in 0..batch {
                let id = self.ask(Asked::Session);
                wire::request(&mut self.line, id, "session/new", wire::NEW_SESSION);
            }
            for _ in 0..batch {
                match self.event()? {
                    Event::Answer { .. } => {}
                    other => bail!("`session/new` was answered with {other:?}"),
                }
            }
        }
        Ok(())
    }

    /// Adds a prompt to what is written next; its id.
    pub(crate) fn prompt(&mut self, session: usize, mut order: Order) -> u64 {
        self.expected.order(session, &mut order);
        let id = self.ask(Asked::Turn);
        let name = self.expected.name(session);
        wire::prompt(&mut self.line, id, name, order, 0, order.filling);
        id
    }

    /// Writes the prompts that were added.
    pub(crate) fn send(&mut self) -> anyhow::Result<()> {
        let line = std::mem::take(&mut self.line);
        self.write(&line)?;
        // The same memory for the next ones.
        self.line = line;
        self.line.clear();
        Ok(())
    }

    /// Forgets what the largest prompt took.
    pub(crate) fn shrink(&mut self) {
        self.line = Vec::new();
    }

    /// Writes a prompt and reads until its turn and all of its updates are over.
    pub(crate) fn turn(&mut self, session: usize, order: Order) -> anyhow::Result<()> {
        let id = self.prompt(session, order);
        self.rest_of_turn(session, id)
    }

    /// Reads until a turn of a session and all of its updates are over, with nothing else in between.
    pub(crate) fn rest_of_turn(&mut self, session: usize, id: u64) -> anyhow::Result<()> {
        let mut answered = false;
        while !answered || !self.is_complete(session) {
            match self.event()? {
                Event::Answer { id: came } if came == id && !answered => answered = true,
                Event::Update { session: came } if came == session => {}
                Event::Question => {}
                other => bail!("{other:?} came during turn {id} of session s{session}, answered: {answered}"),
            }
        }
        Ok(())
    }

    /// Reads until the last prompt's turn and all of its updates are over.
    pub(crate) fn finish_turn(&mut self, session: usize) -> anyhow::Result<()> {
        self.rest_of_turn(session, self.ids).map(drop)
    }

    /// Reads until so many turns are over, with all updates of these sessions.
    pub(crate) fn finish_turns(&mut self, sessions: Range<usize>, count: usize) -> anyhow::Result<()> {
        let mut answers = 0;
        while answers < count {
            if let Event::Answer { .. } = self.event()? {
                answers += 1;
            }
        }
        while !sessions.clone().all(|session| self.is_complete(session)) {
            self.event()?;
        }
        Ok(())
    }

    /// Whether all updates of a session have come that were ordered.
    pub(crate) fn is_complete(&self, session: usize) -> bool {
        self.expected.is_complete(session)
    }

    /// How many updates of a session have come.
    pub(crate) fn came(&self, session: usize) -> u64 {
        self.expected.came(session)
    }

    /// The next thing that comes; a question is answered. Prompts that were added are written first if there is a wait.
    pub(crate) fn event(&mut self) -> anyhow::Result<Event> {
        let range = loop {
            match self.lines.next() {
                Some(range) => break range,
                None => {
                    if !self.line.is_empty() {
                        self.send()?;
                    }
                    self.read()?;
                }
            }
        };
        match self.expected.take(self.lines.bytes(range))? {
            Came::Update { session } => Ok(Event::Update { session }),
            Came::Answer { id } => Ok(Event::Answer { id }),
            Came::Question { id } => {
                let mut answer = Vec::new();
                wire::answer(&mut answer, id, wire::ALLOWED);
                self.write(&answer)?;
                Ok(Event::Question)
            }
        }
    }

    /// The id of a new request.
    fn ask(&mut self, asked: Asked) -> u64 {
        self.ids += 1;
        self.expected.ask(self.ids, asked);
        self.ids
    }

    fn read(&mut self) -> anyhow::Result<()> {
        let mut wait = [PollFd::new(&self.output, PollFlags::IN)];
        if rustix::io::retry_on_intr(|| poll(&mut wait, Some(&timeout())))? == 0 {
            bail!(
                "nothing came for {} s; {}",
                PATIENCE.as_secs(),
                self.process.last_words()
            );
        }
        self.read_now()
    }

    fn read_now(&mut self) -> anyhow::Result<()> {
        match self.lines.read(&self.output)? {
            0 => bail!("the conductor's output ended; {}", self.process.last_words()),
            _ => Ok(()),
        }
    }

    /// Writes, and reads what comes meanwhile, since a conductor need not take anything while nobody takes what it has.
    fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::io::write(&self.input, rest) {
                Ok(count) => rest = &rest[count..],
                Err(Errno::AGAIN) => {
                    let mut wait = [
                        PollFd::new(&self.input, PollFlags::OUT),
                        PollFd::new(&self.output, PollFlags::IN),
                    ];
                    if rustix::io::retry_on_intr(|| poll(&mut wait, Some(&timeout())))? == 0 {
                        bail!(
                            "nothing was taken for {} s; {}",
                            PATIENCE.as_secs(),
                            self.process.last_words()
                        );
                    }
                    if !wait[1].revents().is_empty() {
                        self.read_now()?;
                    }
                }
                Err(Errno::INTR) => {}
                Err(error) => bail!("the conductor takes nothing ({error}); {}", self.process.last_words()),
            }
        }
        Ok(())
    }
}

fn timeout() -> Timespec {
    Timespec {
        tv_sec: PATIENCE.as_secs() as i64,
        tv_nsec: 0,
    }
}
