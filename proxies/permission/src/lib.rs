//! Decides the agent's questions for permission by rules: allows or denies a tool call with an option that the agent offered, and
//! leaves all others to the client, as they came.
//!
//! Configuration, with what holds if it says nothing:
//!
//! ```json
//! {"rules": [], "default": "ask"}
//! ```
//!
//! A rule is an object such as `{"decide": "allow", "kind": "execute", "command": "cargo test*"}`; `README.md` says what can stand in
//! it. The first rule that matches decides. This proxy protects, so whatever it does not know for certain is no reason to allow: a
//! rule that allows matches only what the request itself says, all of it; one that denies or asks matches also what may be meant, and
//! if the request leaves out what it would be judged by, no later rule allows it.
//!
//! Nothing is awaited here and no state is kept, so questions in parallel do not know of each other, and sessions make no difference.

mod call;
mod command;
mod input;
mod options;
mod path;
mod rules;

use consort_proxy::Peer::Agent;
use consort_proxy::{Interests, Json, Outcome, Proxy, Request, info, json};

use call::Call;
use options::Decision;
use rules::{Rules, Verdict};

/// The proxy.
pub struct Permission {
    rules: Rules,
}

impl Proxy for Permission {
    fn start(config: Json) -> Result<(Self, Interests), String> {
        let rules = Rules::new(&config)?;
        if rules.is_empty() {
            info!("there are no rules in the configuration");
        }
        let interests = Interests::new().intercept(Agent, "session/request_permission");
        Ok((Self { rules }, interests))
    }

    async fn request(&self, request: Request) -> Outcome {
        match self.decide(request.params()) {
            Some(option) => request.reply(json!({"outcome": {"outcome": "selected", "optionId": option}})),
            None => request.forward(),
        }
    }
}

consort_proxy::export!(Permission);

impl Permission {
    /// The option to answer with; none if the client is asked. Either way a line in the log says why.
    fn decide(&self, params: &Json) -> Option<String> {
        let call = call::id(params);
        let Some(judged) = Call::read(params) else {
            info!("tool call {call}: the client is asked, since the question is too large to be judged");
            return None;
        };
        let (why, wanted) = match self.rules.judge(&judged) {
            Verdict::Rule(number, wanted) => (format!("rule {number}"), wanted),
            Verdict::Default(wanted) => ("no rule, so the default".to_owned(), wanted),
            Verdict::Unclear(number) => {
                info!("tool call {call}: the client is asked, since it does not say whether rule {number} is about it");
                return None;
            }
        };
        let decided = match wanted.decision {
            Decision::Ask => {
                info!("tool call {call}: the client is asked ({why})");
                return None;
            }
            Decision::Allow => "allowed",
            Decision::Deny => "denied",
        };
        match wanted.choose(params) {
            Ok(option) => {
                info!("tool call {call}: {decided} ({why}) with the option {option:?}");
                Some(option)
            }
            Err(reason) => {
                info!("tool call {call}: to be {decided} ({why}), but the client is asked, since {reason}");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
