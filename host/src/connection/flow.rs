//! When to stop reading: what waits for a peer or for proxies is bounded by not taking more, and nobody who could end the waiting
//! is left unread.

use super::driver::Driver;
use super::timers::Due;
use std::time::{Duration, Instant};

/// Bytes that may wait for the client before the agent is not read any more.
const MAX_TO_CLIENT: usize = 1024 * 1024;

/// Bytes that may wait for the agent before the client is not read any more. More than the other way, since a client that is
/// not read cannot tell that it has gone.
const MAX_TO_AGENT: usize = 8 * 1024 * 1024;

/// Bytes of Consort's own answers that may wait for a peer before it is not read any more: it asks for nothing that is taken, and does
/// not read that.
const MAX_REFUSED: usize = 2 * 1024 * 1024;

/// Bytes of answers that may wait for whoever sends requests and does not read. On top of what others have for it, since reading
/// has to go on for them.
const MAX_ANSWERS: usize = 16 * 1024 * 1024;

/// Bytes that may wait for proxies before neither side is read any more.
const MAX_QUEUED: usize = 8 * 1024 * 1024;

/// The same while turns are being taken in a row, which ends by itself and soon: enough for several more.
const MAX_QUEUED_IN_ROW: usize = 1024 * 1024;

/// How long a client that waits for its agent may go unread. Then it is read on for a while, since only that shows whether it
/// is still there.
const MAX_UNREAD: Duration = Duration::from_secs(30);

/// Bytes that are read then, on top of what waits already.
const UNREAD_BYTES: usize = 64 * 1024 * 1024;

impl Driver {
    /// Whether the client is read now.
    pub(super) fn reads_client(&mut self) -> bool {
        let behind = match self.options.agent {
            // What waits behind `initialize` waits for the agent, which must go on being read then.
            Some(_) => self.router.behind_initialize_bytes(),
            // The answer to `initialize` comes over the same line.
            None => 0,
        };
        self.client_open
            && self.router.queued_bytes() + behind < self.most_queued()
            && self.waiting_for_agent() < self.most_to_agent()
            && self.router.refused_bytes()[0] < MAX_REFUSED
            && self.router.client_output().waiting() < MAX_TO_CLIENT + MAX_ANSWERS
    }

    /// Whether the agent is read now.
    pub(super) fn reads_agent(&mut self) -> bool {
        self.agent_open
            && self.router.queued_bytes() < self.most_queued()
            && self.router.client_output().waiting() < MAX_TO_CLIENT
            && self.router.refused_bytes()[1] < MAX_REFUSED
            && self.router.agent_output().waiting() < MAX_TO_AGENT + UNREAD_BYTES + MAX_ANSWERS
    }

    /// How much may wait for proxies now.
    fn most_queued(&self) -> usize {
        match self.takes_turns_ahead() {
            true => MAX_QUEUED_IN_ROW,
            false => MAX_QUEUED,
        }
    }

    /// How much waits for the agent: for a proxy, all that waits for the conductor above.
    fn waiting_for_agent(&mut self) -> usize {
        match self.options.agent {
            Some(_) => self.router.agent_output().waiting(),
            None => self.router.client_output().waiting(),
        }
    }

    /// How much may wait for the agent now.
    fn most_to_agent(&mut self) -> usize {
        if self.waiting_for_agent() < MAX_TO_AGENT {
            self.unread_since = None;
            return MAX_TO_AGENT;
        }
        let now = Instant::now();
        match self.unread_since {
            None => {
                self.unread_since = Some(now);
                self.timers.add(now + MAX_UNREAD, Due::Chain);
                MAX_TO_AGENT
            }
            Some(since) if now.duration_since(since) < MAX_UNREAD => MAX_TO_AGENT,
            // A conductor above does not read at all: more from it would tell nothing.
            Some(_) if self.options.agent.is_none() => MAX_TO_AGENT,
            Some(_) => MAX_TO_AGENT + UNREAD_BYTES,
        }
    }
}
