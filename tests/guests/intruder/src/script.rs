//! The configuration: what the guest wants to see, and what it does about it.

use serde::Deserialize;
use serde_json::value::RawValue;

/// All of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// What it would like to see; `"client *"` or `"agent session/update"`, and with a `?` in front only as copies.
    pub interests: Vec<String>,
    /// What it says is wrong with its configuration, if anything.
    pub complaint: Option<String>,
    /// What it prints when it starts.
    pub print: Option<String>,
    /// The first that fits a message says what is done about it.
    pub rules: Vec<Rule>,
}

/// What is done about some messages.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The method; of a response, `response` and the id, such as `response 7`.
    pub on: String,
    /// A text that has to be in the params, as it is written there, or in the outcome.
    #[serde(default)]
    pub text: String,
    /// What is done, in this order. Nothing else is: the message is not passed on unless one of these does.
    #[serde(rename = "do")]
    pub actions: Vec<Action>,
}

/// One thing to do.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Action {
    /// Sends a message.
    Send(Send),
    /// Passes the message on.
    Pass(Pass),
    /// Keeps a notification.
    Keep {},
    /// Does something outside of the channel.
    Outside(Outside),
}

/// A message of its own.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Send {
    /// `client`, `agent` or `host`.
    pub to: String,
    /// Of a request or notification.
    #[serde(default)]
    pub method: String,
    /// JSON text, sent as it is written.
    #[serde(default)]
    pub params: Option<String>,
    /// Makes it a request.
    #[serde(default)]
    pub id: Option<u64>,
    /// Makes it a request without an id.
    #[serde(default)]
    pub straight: bool,
    /// Whether it is sent on behalf of the message at hand.
    #[serde(default)]
    pub behalf: bool,
    /// Makes it a response with this result.
    #[serde(default)]
    pub result: Option<String>,
    /// Makes it a response with this error.
    #[serde(default)]
    pub error: Option<String>,
    /// The ticket of a response, if not that of the message at hand.
    #[serde(default)]
    pub ticket: Option<u64>,
    /// Of a response: to the request that was passed on last.
    #[serde(default)]
    pub to_passed: bool,
    /// How often it is sent.
    #[serde(default = "once")]
    pub times: u64,
    /// So many letters at the end of the method.
    #[serde(default)]
    pub padding: usize,
}

/// How the message at hand goes on.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pass {
    /// With an id, so that the answer comes here.
    pub id: Option<u64>,
    /// With these params, as they are written.
    pub params: Option<String>,
    /// With these edits: a pointer and what stands there then, or null to take it out.
    pub edits: Vec<(String, Option<Box<RawValue>>)>,
}

/// Something outside of the channel.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Outside {
    /// Prints text as it is.
    Print(String),
    /// Prints this text so often.
    Flood(String, u64),
    /// Ends itself.
    Exit(i32),
    /// Sleeps for so many milliseconds.
    Sleep(u64),
    /// Looks at the clock for ever.
    Spin {},
    /// Asks for so many random bytes at once.
    Random(u64),
    /// Asks for so many of the other random bytes at once.
    InsecureRandom(u64),
    /// Says which environment variables and arguments there are.
    Environment {},
    /// Reads its standard input.
    Input {},
    /// Does something with files: the operation and its paths.
    File(Vec<String>),
    /// Opens a file until that fails, and keeps all of them open.
    OpenMany(String),
}

fn once() -> u64 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_read() {
        let script: Script = serde_json::from_str(
            r#"{"interests":["client *"],"rules":[{"on":"a","do":[{"pass":{"edits":[["/x","1"]]}},{"send":{"to":"client","method":"b"}},
                {"keep":{}},{"outside":{"flood":["x",3]}},{"outside":{"spin":{}}}]}]}"#,
        )
        .unwrap();
        assert_eq!(script.rules[0].actions.len(), 5);
    }
}
