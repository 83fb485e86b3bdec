//! What the client can ask Consort itself, with methods that begin with `_consort/`: how the proxies are, and to try one again that
//! rests.

use super::parcel::Edge;
use super::proxy::Status;
use super::router::{Effect, Router};
use crate::message::Outcome;
use crate::wire::envelope::{Id, error_text};
use crate::wire::scan;
use crate::wire::text::Text;
use serde_json::{Value, json};
use std::time::Duration;

/// What these methods begin with.
pub(super) const PREFIX: &str = "_consort/";

impl Router {
    /// A request of the client to Consort itself.
    pub(super) fn consort_asked(&mut self, id: &Id, method: &str, params: Option<&Text>) {
        let outcome = self.consort_answer(method, params);
        self.answer_at(Edge::Client, id, method, &outcome);
    }

    fn consort_answer(&mut self, method: &str, params: Option<&Text>) -> Outcome {
        match method.strip_prefix(PREFIX) {
            Some("proxies") => Ok(Text::of(&json!({ "proxies": self.proxies_status() }))),
            Some("retry") => {
                let name = params.and_then(|params| scan::string_member(params, "proxy"));
                if let Some(name) = &name
                    && !self.proxies.iter().any(|proxy| *proxy.name == **name)
                {
                    let reason = format!("no proxy is named `{}`", crate::log::named(name));
                    return Err(error_text(-32602, &reason, None));
                }
                self.retry(name.as_deref());
                Ok(Text::of(&json!({ "proxies": self.proxies_status() })))
            }
            _ => {
                let reason = format!(
                    "Consort does not know `{}`; it knows _consort/proxies and _consort/retry",
                    crate::log::named(method)
                );
                Err(error_text(-32601, &reason, None))
            }
        }
    }

    fn proxies_status(&self) -> Vec<Value> {
        self.proxies
            .iter()
            .map(|proxy| {
                let status = match proxy.status {
                    Status::Ready => "ready",
                    Status::Restarting | Status::Replaying => "restarting",
                    Status::Off => "off",
                };
                json!({
                    "name": &*proxy.name,
                    "status": status,
                    "onFailure": proxy.on_failure.name(),
                    "faults": proxy.restarts.faults(),
                    "shutOut": proxy.shut_out,
                })
            })
            .collect()
    }

    /// Tries proxies again that rest: the one with this name, or all.
    pub fn retry(&mut self, name: Option<&str>) {
        for index in 0..self.proxies.len() {
            let proxy = &mut self.proxies[index];
            if proxy.status != Status::Off || name.is_some_and(|name| *proxy.name != *name) {
                continue;
            }
            tracing::warn!("proxy `{}` is tried again", proxy.name);
            if proxy.restarts.rests() {
                self.audit.retried(&proxy.name);
            }
            proxy.restarts.forgive();
            self.effects.push_back(Effect::Restart {
                proxy: index,
                after: Duration::ZERO,
            });
        }
    }

    /// Whether a new instance of a proxy is wanted now: the time for it may have come twice.
    pub fn begins_restart(&mut self, index: usize) -> bool {
        let proxy = &mut self.proxies[index];
        let wanted = matches!(proxy.status, Status::Off | Status::Restarting) && !proxy.starting;
        proxy.starting |= wanted;
        wanted
    }
}
