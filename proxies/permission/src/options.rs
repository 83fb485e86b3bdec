//! The options that an agent offers with a question. Owns which of them is the answer; never one that the agent did not offer. Knows
//! nothing of rules and tool calls.

use consort_proxy::Json;
use serde::Deserialize;
use serde_json::Value;

/// As JSON. There is a handful of options.
const MAX_OPTIONS: u64 = 64 << 10;

/// What is to be done about a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Decision {
    Allow,
    Deny,
    Ask,
}

/// A decision, and how it is told to the agent.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) decision: Decision,
    /// The id of the option to answer with.
    pub(crate) option: Option<String>,
    /// Whether an option may be chosen that the agent remembers.
    pub(crate) remember: bool,
}

impl Wanted {
    /// The id of the option that says so, or why there is none.
    pub(crate) fn choose(&self, params: &Json) -> Result<String, &'static str> {
        let Some(size) = params.size("/options") else {
            return Err("the agent offers no options");
        };
        if size > MAX_OPTIONS {
            return Err("the agent offers too many options");
        }
        let options: Vec<Value> = params
            .decode_at("/options")
            .map_err(|_| "the agent's options cannot be read")?;
        self.choose_from(&options).ok_or("the agent offers no option that fits")
    }

    fn choose_from(&self, options: &[Value]) -> Option<String> {
        let kinds: &[&str] = match (self.decision, self.remember) {
            (Decision::Allow, false) => &["allow_once"],
            (Decision::Allow, true) => &["allow_always", "allow_once"],
            (Decision::Deny, false) => &["reject_once"],
            (Decision::Deny, true) => &["reject_always", "reject_once"],
            (Decision::Ask, _) => &[],
        };
        // An id that stands for something else too could be taken for that.
        let is_clear = |id: &str, kind: &str| {
            let mut same_id = options.iter().filter(|option| option["optionId"] == id);
            same_id.all(|option| option["kind"] == kind)
        };
        let first = |kind: &str| {
            options
                .iter()
                .filter(|option| option["kind"] == kind)
                .filter_map(|option| option["optionId"].as_str())
                .find(|id| self.option.as_deref().is_none_or(|named| named == *id) && is_clear(id, kind))
        };
        kinds.iter().find_map(|kind| first(kind)).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chosen(decision: Decision, option: Option<&str>, remember: bool, options: &[(&str, &str)]) -> Option<String> {
        let options: Vec<Value> = options
            .iter()
            .map(|(id, kind)| json!({"optionId": id, "name": id, "kind": kind}))
            .collect();
        let option = option.map(str::to_owned);
        Wanted {
            decision,
            option,
            remember,
        }
        .choose_from(&options)
    }

    #[test]
    fn the_option_fits_the_decision() {
        use Decision::{Allow, Ask, Deny};
        let all = [
            ("A", "allow_always"),
            ("a", "allow_once"),
            ("a2", "allow_once"),
            ("R", "reject_always"),
            ("r", "reject_once"),
            ("r2", "reject_once"),
        ];
        for (decision, option, remember, expected) in [
            (Allow, None, false, Some("a")),
            (Allow, None, true, Some("A")),
            (Allow, Some("a2"), false, Some("a2")),
            (Allow, Some("a2"), true, Some("a2")),
            (Allow, Some("A"), true, Some("A")),
            (Allow, Some("A"), false, None),
            (Allow, Some("r"), false, None),
            (Allow, Some("x"), true, None),
            (Deny, None, false, Some("r")),
            (Deny, None, true, Some("R")),
            (Deny, Some("r2"), false, Some("r2")),
            (Deny, Some("a"), true, None),
            (Ask, None, true, None),
        ] {
            let id = chosen(decision, option, remember, &all);
            assert_eq!(id.as_deref(), expected, "{decision:?} {option:?} {remember}");
        }
        assert_eq!(chosen(Allow, None, false, &all[..1]), None, "never for ever");
        assert_eq!(chosen(Deny, None, false, &all[3..4]), None, "never for ever");
        assert_eq!(chosen(Allow, None, true, &all[1..2]).as_deref(), Some("a"));
    }

    #[test]
    fn an_id_that_stands_for_two_things_is_no_answer() {
        let options = [
            ("x", "reject_once"),
            ("x", "allow_once"),
            ("y", "reject_once"),
            ("y", "reject_once"),
        ];
        assert_eq!(chosen(Decision::Deny, None, false, &options).as_deref(), Some("y"));
        assert_eq!(chosen(Decision::Allow, None, false, &options), None);
    }

    #[test]
    fn odd_options_are_none() {
        let wanted = Wanted {
            decision: Decision::Allow,
            option: None,
            remember: false,
        };
        let options = json!([1, null, [], {"kind": "allow_once"}, {"kind": "allow_once", "optionId": 7}]);
        assert_eq!(wanted.choose_from(options.as_array().unwrap()), None);
    }
}
