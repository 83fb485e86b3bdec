//! What the proxy does with wrong configurations, and with none.

use super::*;

#[test]
fn without_rules_everything_is_asked_or_denied() {
    for (config, expected) in [(json!({}), "ask"), (json!({"default": "deny"}), "no")] {
        let mut host = Harness::start::<Permission>(config).unwrap();
        assert_eq!(decided(&mut host, &params(&json!({"kind": "read"}))), expected);
    }
}

/// What is said of a configuration.
fn complaint(config: &Value) -> String {
    Harness::start::<Permission>(config.clone()).err().unwrap_or_default()
}

#[test]
fn wrong_configurations_are_named() {
    for (config, named) in [
        (json!({"rule": []}), "rule"),
        (json!({"rules": {}}), "/rules"),
        (json!({"default": "allow"}), "default"),
        (json!({"default": "maybe"}), "maybe"),
        (json!({"directory": "src"}), "src"),
        (json!({"directory": "**/src"}), "**/src"),
        (json!({"directory": "/a/*"}), "/a/*"),
        (
            json!({"rules": vec![json!({"decide": "deny", "kind": "edit"}); 257]}),
            "257",
        ),
    ] {
        let error = complaint(&config);
        assert!(error.contains(named), "{config}: {error:?}");
    }
}

#[test]
fn wrong_rules_are_named_with_their_number() {
    for (rule, named) in [
        (json!({"kind": "edit"}), "decide"),
        (json!({"decide": "alow", "kind": "edit"}), "alow"),
        (json!({"decide": "deny"}), "no condition"),
        (json!({"decide": "deny", "option": "x"}), "no condition"),
        (json!({"decide": "deny", "kind": "edti"}), "edti"),
        (json!({"decide": "deny", "kind": []}), "kind"),
        (json!({"decide": "deny", "kind": "edit", "comand": "x"}), "comand"),
        (json!({"decide": "deny", "title": ""}), "title"),
        (json!({"decide": "deny", "title": 7}), "a string or a list of strings"),
        (json!({"decide": "deny", "command": ["a", " "]}), "command"),
        (json!({"decide": "deny", "command": "x".repeat(257)}), "257"),
        (json!({"decide": "deny", "path": "src/**"}), "directory"),
        (json!({"decide": "deny", "path": ["/a", "/b/../c"]}), "/b/../c"),
        (json!({"decide": "allow", "command": "make && make *"}), "command"),
        (json!({"decide": "ask", "kind": "edit", "remember": true}), "remember"),
        (json!({"decide": "ask", "kind": "edit", "option": "x"}), "option"),
    ] {
        let error = complaint(&json!({"rules": [{"decide": "deny", "kind": "edit"}, rule]}));
        assert!(
            error.starts_with("rule 2: ") && error.contains(named),
            "{rule}: {error:?}"
        );
    }
}
