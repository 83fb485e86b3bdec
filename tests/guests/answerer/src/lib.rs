//! Test guest: answers a configured method from either side itself.
//!
//! Configuration: `{"method": METHOD, "result": ANY}` or `{"method": METHOD, "error": {"code": N, "message": TEXT}}`.

use consort_proxy::Peer::{Agent, Client};
use consort_proxy::{Interests, Json, Outcome, Proxy, Request, RpcError};
use serde::Deserialize;

#[derive(Deserialize)]
struct Config {
    method: String,
    error: Option<Error>,
}

#[derive(Deserialize)]
struct Error {
    code: i64,
    message: String,
}

/// The proxy.
pub struct Answerer {
    result: Option<Json>,
    error: Option<Error>,
}

impl Proxy for Answerer {
    fn start(config: Json) -> Result<(Self, Interests), String> {
        let Config { method, error } = config.decode()?;
        let result = config.get("/result");
        if result.is_some() == error.is_some() {
            return Err("one of result and error has to be given".to_owned());
        }
        let interests = Interests::new().intercept(Client, &method).intercept(Agent, &method);
        Ok((Self { result, error }, interests))
    }

    async fn request(&self, request: Request) -> Outcome {
        match (&self.result, &self.error) {
            (Some(result), _) => request.reply(result),
            (None, Some(error)) => Err(RpcError::new(error.code, &error.message)),
            (None, None) => request.forward(),
        }
    }
}

consort_proxy::export!(Answerer);

#[cfg(test)]
mod tests {
    use super::*;
    use consort_proxy::testing::Harness;
    use serde_json::json;

    #[test]
    fn it_answers_again_and_again() {
        let mut host = Harness::start::<Answerer>(json!({"method": "a", "result": [1]})).unwrap();
        for source in [Client, Agent] {
            let ticket = host.request(source, "a", json!({}));
            let answer = host.next();
            assert_eq!((answer.to(), answer.ticket(), answer.text()), (source, ticket, "[1]"));
        }
        let config = json!({"method": "a", "error": {"code": 7, "message": "no"}});
        let mut host = Harness::start::<Answerer>(config).unwrap();
        host.request(Client, "a", json!({}));
        assert_eq!(host.next().error(), json!({"code": 7, "message": "no"}));
        assert!(Harness::start::<Answerer>(json!({"method": "a"})).is_err());
    }
}
