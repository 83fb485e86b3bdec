//! What the chain wants done outside of it.

use super::{Driver, Event, READ_TIME, SILENCE};
use crate::chain::{Effect, file_answer, list_answer};
use crate::connection::files;
use crate::connection::timers::Due;
use crate::file_list;
use std::time::Instant;

impl Driver {
    /// Does it, or sees to it that it is done.
    pub(super) fn effect(&mut self, effect: Effect) {
        let now = Instant::now();
        match effect {
            Effect::StartAgent => self.start_agent(),
            Effect::Sleep {
                operation,
                proxy,
                duration,
            } => self.timers.add(now + duration, Due::Sleep { proxy, operation }),
            Effect::Restart { proxy, after } => {
                // It may have failed while turns were taken ahead.
                match self.slots[proxy].ahead.is_away() {
                    true => self.give_up(proxy),
                    false => self.slots[proxy].ahead.clear(),
                }
                self.timers.add(now + after, Due::Restart { proxy });
            }
            Effect::Timer(at) => self.timers.add(at, Due::Chain),
            Effect::Abort { proxy } => self.give_up(proxy),
            Effect::InitializeSent => self.timers.add(now + SILENCE, Due::Silence { agent: self.agents }),
            Effect::Forget { operation } => self.timers.forget(operation),
            Effect::SavedState {
                operation,
                proxy,
                request,
            } => {
                let answer = self.slots[proxy].saved.ask(request);
                self.apart(async move { Event::HostAnswer(proxy, operation, answer.await) });
            }
            Effect::ReadFile {
                operation,
                proxy,
                directory,
                path,
                max_bytes,
            } => self.apart(async move {
                let read = tokio::task::spawn_blocking(move || files::read(&directory, &path, max_bytes));
                let read = match tokio::time::timeout(READ_TIME, read).await {
                    Ok(read) => read.unwrap_or_else(|error| Err(std::io::Error::other(error))),
                    Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
                };
                Event::HostAnswer(proxy, operation, file_answer(read))
            }),
            Effect::ListFiles {
                operation,
                proxy,
                directory,
                request,
            } => {
                let (policy, record) = (
                    self.slots[proxy].loaded.policy.clone(),
                    self.slots[proxy].loaded.record.clone(),
                );
                self.apart(async move {
                    let listed = tokio::task::spawn_blocking(move || {
                        let begun = Instant::now();
                        let listed = file_list::list(&directory, &request, &policy);
                        record.work(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
                        listed
                    });
                    let listed = match tokio::time::timeout(READ_TIME, listed).await {
                        Ok(listed) => listed.unwrap_or_else(|error| Err(std::io::Error::other(error))),
                        Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
                    };
                    Event::HostAnswer(proxy, operation, list_answer(listed))
                });
            }
        }
    }
}
