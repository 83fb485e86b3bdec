//! Test guest: edits the params and the result of a configured method from either side.
//!
//! Configuration: `{"method": METHOD, "params": [EDIT…], "result": [EDIT…], "hold": MILLISECONDS}`, an edit being an RFC 6902
//! operation `add`, `replace` or `remove`. Requests go on under an id of the proxy's own, and their answers are held for a while; of
//! notifications only the params are edited.

use std::time::Duration;

use consort_proxy::Peer::{Agent, Client};
use consort_proxy::{Edit, Interests, Json, JsonError, Notification, Outcome, Proxy, Request, host};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    method: String,
    #[serde(default)]
    params: Vec<Operation>,
    #[serde(default)]
    result: Vec<Operation>,
    #[serde(default)]
    hold: u64,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum Operation {
    Add { path: String, value: Value },
    Replace { path: String, value: Value },
    Remove { path: String },
}

impl Operation {
    fn edit(&self) -> Edit<'_> {
        match self {
            Self::Add { path, value } => Edit::add(path, value),
            Self::Replace { path, value } => Edit::replace(path, value),
            Self::Remove { path } => Edit::remove(path),
        }
    }
}

fn apply(json: &Json, operations: &[Operation]) -> Result<(), JsonError> {
    if operations.is_empty() {
        return Ok(());
    }
    json.edit(&operations.iter().map(Operation::edit).collect::<Vec<_>>())
}

/// The proxy.
pub struct Rewriter(Config);

impl Proxy for Rewriter {
    fn start(config: Json) -> Result<(Self, Interests), String> {
        let config: Config = config.decode()?;
        let interests = Interests::new()
            .intercept(Client, &config.method)
            .intercept(Agent, &config.method);
        Ok((Self(config), interests))
    }

    async fn initialize(&self, request: Request) -> Outcome {
        match self.0.method.as_str() {
            "initialize" => self.request(request).await,
            _ => request.forward(),
        }
    }

    async fn request(&self, mut request: Request) -> Outcome {
        apply(request.params(), &self.0.params)?;
        let result = request.forward_and_wait().await?;
        apply(&result, &self.0.result)?;
        if self.0.hold > 0 {
            host::sleep(Duration::from_millis(self.0.hold)).await?;
        }
        request.reply(result)
    }

    async fn notification(&self, notification: Notification) -> Outcome {
        apply(notification.params(), &self.0.params)?;
        notification.forward()
    }
}

consort_proxy::export!(Rewriter);

#[cfg(test)]
mod tests {
    use super::*;
    use consort_proxy::testing::Harness;
    use serde_json::json;

    #[test]
    fn params_and_results_change_and_errors_pass() {
        let config = json!({
            "method": "a",
            "params": [{"op": "add", "path": "/x", "value": 1}],
            "result": [{"op": "remove", "path": "/y"}, {"op": "replace", "path": "/z", "value": "new"}],
        });
        let mut host = Harness::start::<Rewriter>(config).unwrap();
        let ticket = host.request_text(Client, "a", r#"{"n":1.10}"#);
        let sent = host.next();
        assert_eq!(sent.text(), r#"{"n":1.10,"x":1}"#);
        host.answer_text(&sent, Ok(r#"{"y":1, "z":2,"n":1.10}"#));
        let answer = host.next();
        assert_eq!((answer.ticket(), answer.text()), (ticket, r#"{"z":"new","n":1.10}"#));

        host.request(Client, "a", json!({}));
        let sent = host.next();
        host.answer_text(&sent, Err(r#"{"code":-32000, "message":"no","data":null}"#));
        assert_eq!(host.next().text(), r#"{"code":-32000, "message":"no","data":null}"#);
    }
}
