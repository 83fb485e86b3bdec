//! What stands in front of the prompt, and what the agent gets of a skill.

use consort_proxy::Peer::{Agent, Client, Host};
use consort_proxy::log::Level;
use consort_proxy::testing::{Harness, Sent};
use serde_json::{Value, json};

use super::Skills;

fn start(config: Value) -> Harness {
    Harness::start::<Skills>(config).unwrap()
}

fn skill(host: &mut Harness, folder: &str, text: &str) {
    host.file(&format!("{folder}/SKILL.md"), text);
}

fn project() -> Harness {
    let mut host = start(json!({}));
    skill(
        &mut host,
        ".agents/skills/pdf",
        "---\nname: pdf\ndescription: Reads PDFs\n---\nUse pdftotext.\n",
    );
    skill(&mut host, ".agents/skills/odd name", "Nothing in front.\n");
    skill(
        &mut host,
        ".claude/skills/pdf",
        "---\nname: pdf\ndescription: the other one\n---\n",
    );
    skill(
        &mut host,
        ".claude/skills/xls",
        "---\ndescription: Reads\n  tables\n---\n",
    );
    host.file(".agents/skills/pdf/scripts/run.sh", "pdftotext $1\n");
    host.file(".agents/skills/README.md", "no skill");
    host
}

fn prompt(host: &mut Harness, session: &str, text: &str) -> Value {
    host.request(
        Client,
        "session/prompt",
        json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]}),
    );
    let sent = host.next();
    assert_eq!(sent.to(), Agent);
    sent.params()["prompt"].clone()
}

fn ask(host: &mut Harness, method: &str, params: Value) -> Sent {
    let meta = json!({"consort/sessionId": "s1"});
    host.request(
        Agent,
        "mcp/message",
        json!({"connectionId": "consort:skills#1", "method": method, "params": params, "_meta": meta}),
    );
    host.next()
}

fn give(host: &mut Harness, arguments: Value) -> (String, bool) {
    let result = ask(host, "tools/call", json!({"name": "skill", "arguments": arguments})).result();
    (
        result["content"][0]["text"].as_str().unwrap().to_owned(),
        result["isError"] == false,
    )
}

#[test]
fn the_first_prompt_gets_the_index() {
    let mut host = project();
    let blocks = prompt(&mut host, "s1", "hi");
    let index = blocks[0]["text"].as_str().unwrap();
    let lines: Vec<&str> = index.lines().skip(2).collect();
    assert_eq!(
        lines,
        [
            "- odd name (in .agents/skills/odd name): Nothing in front.",
            "- pdf (in .agents/skills/pdf): Reads PDFs",
            "- xls (in .claude/skills/xls): Reads tables",
        ]
    );
    assert_eq!(blocks[1]["text"], "hi");
    let logs = host.logs();
    assert!(
        logs.iter()
            .any(|(level, line)| *level == Level::Warn && line.contains("odd name/SKILL.md: it does not begin"))
    );
    assert!(
        logs.iter().any(|(_, line)| line.contains("has the same name")),
        "{logs:?}"
    );
    assert_eq!(prompt(&mut host, "s1", "again").as_array().unwrap().len(), 1);
    assert_eq!(
        prompt(&mut host, "s2", "/compact").as_array().unwrap().len(),
        1,
        "a command goes as it is"
    );
    assert_eq!(prompt(&mut host, "s2", "hi").as_array().unwrap().len(), 2);
}

#[test]
fn without_skills_a_prompt_goes_as_it_is() {
    let mut host = start(json!({}));
    host.file("other", "x");
    assert_eq!(prompt(&mut host, "s1", "hi").as_array().unwrap().len(), 1);
    let mut host = start(json!({"index": false}));
    skill(&mut host, ".agents/skills/a", "x");
    assert_eq!(prompt(&mut host, "s1", "hi").as_array().unwrap().len(), 1);
    let mut host = start(json!({}));
    host.deny(Host, "host/file/list");
    assert_eq!(prompt(&mut host, "s1", "hi").as_array().unwrap().len(), 1);
    let warnings: Vec<_> = host
        .logs()
        .into_iter()
        .filter(|(level, _)| *level == Level::Warn)
        .collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].1.contains("--grant skills=file:.agents/skills/**"));
}

#[test]
fn the_tool_gives_a_skill_and_its_files() {
    let mut host = project();
    let (text, well) = give(&mut host, json!({"name": "pdf"}));
    assert!(
        well && text.starts_with("(from the folder .agents/skills/pdf of the project)"),
        "{text}"
    );
    assert!(text.ends_with("Use pdftotext.\n"), "{text}");
    let (text, well) = give(&mut host, json!({"name": "pdf", "file": "scripts/run.sh"}));
    assert!(well && text.ends_with("pdftotext $1\n"), "{text}");
    for (arguments, said) in [
        (json!({"name": "doc"}), "there are odd name, pdf, xls"),
        (json!({"name": "pdf", "file": "../../../.env"}), "without `..`"),
        (
            json!({"name": "pdf", "file": "/etc/passwd"}),
            "inside the skill's folder",
        ),
        (json!({"name": "pdf", "file": "none"}), "no such file"),
        (json!({}), "name"),
    ] {
        let (text, well) = give(&mut host, arguments);
        assert!(!well && text.contains(said), "{text}");
    }
}

#[test]
fn skills_are_resources() {
    let mut host = project();
    let listed = ask(&mut host, "resources/list", json!({})).result();
    assert_eq!(
        listed["resources"][0],
        json!({"uri": "skill:///.agents/skills/odd%20name/SKILL.md", "name": "odd name", "description": "Nothing in front.", "mimeType": "text/markdown"})
    );
    let read = ask(
        &mut host,
        "resources/read",
        json!({"uri": listed["resources"][1]["uri"]}),
    )
    .result();
    assert!(
        read["contents"][0]["text"].as_str().unwrap().contains("Use pdftotext."),
        "{read}"
    );
    for uri in [
        "skill:///.agents/skills/none/SKILL.md",
        "skill:///../x",
        "file:///etc/passwd",
    ] {
        assert_eq!(
            ask(&mut host, "resources/read", json!({"uri": uri})).error()["code"],
            -32002,
            "{uri}"
        );
    }
}

#[test]
fn everything_has_an_end() {
    let mut host = start(json!({"maxSkills": 3, "maxBytes": 10}));
    for number in 0..5 {
        skill(
            &mut host,
            &format!(".agents/skills/{number}"),
            &format!("---\ndescription: {}\n---\n", "d".repeat(3_000)),
        );
    }
    skill(&mut host, ".claude/skills/late", "x");
    let blocks = prompt(&mut host, "s1", "hi");
    let index = blocks[0]["text"].as_str().unwrap();
    assert_eq!(index.matches("\n- ").count(), 3);
    assert!(index.contains('…') && index.len() < 4_000, "{}", index.len());
    assert!(host.logs().iter().any(|(_, line)| line.contains("more skills than 3")));
    let (text, _) = give(&mut host, json!({"name": "0"}));
    assert!(
        text.ends_with("---\ndescri\n[The rest of the file is left out.]\n"),
        "{text}"
    );
    let mut host = start(json!({"maxSkills": 500}));
    for number in 0..100 {
        skill(
            &mut host,
            &format!(".agents/skills/{number:03}"),
            &format!("---\ndescription: {}\n---\n", "d".repeat(1_000)),
        );
    }
    let blocks = prompt(&mut host, "s1", "hi");
    let index = blocks[0]["text"].as_str().unwrap();
    assert!(
        index.len() < (16 << 10) + 30 && index.contains("more"),
        "{}",
        index.len()
    );
}

#[test]
fn wrong_configurations_are_named() {
    for (config, named) in [
        (json!({"folder": "x"}), "folder"),
        (json!({"folders": []}), "between 1 and 16"),
        (json!({"folders": ["../x"]}), "../x"),
        (json!({"maxSkills": 0}), "maxSkills"),
        (json!({"maxBytes": 2_000_000}), "maxBytes"),
    ] {
        let error = Harness::start::<Skills>(config).err().unwrap();
        assert!(error.contains(named), "{error}");
    }
}
