//! `skills`, the proxy that tells agents of the project's skills, in a real chain.

use consort_tests::command::ungranted;
use consort_tests::guests::proxy;
use consort_tests::reached::{Http, begin_in, over_http, text};
use consort_tests::session::prompt;
use consort_tests::{AgentListener, Client, Directory};
use serde_json::json;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;

fn project() -> Directory {
    let project = Directory::new();
    for folder in [".agents/skills/pdf", ".claude/skills", "shared/xls"] {
        fs::create_dir_all(project.path().join(folder)).expect("a folder can be made");
    }
    project.file(
        ".agents/skills/pdf/SKILL.md",
        "---\nname: pdf\ndescription: Reads PDFs\n---\nUse pdftotext.\n",
    );
    project.file("shared/xls/SKILL.md", "---\ndescription: Reads tables\n---\n");
    // Many have them in one place, and links to it.
    symlink("../../shared/xls", project.path().join(".claude/skills/xls")).expect("a link can be made");
    symlink("/etc", project.path().join(".claude/skills/etc")).expect("a link can be made");
    project
}

fn start(grants: &[&str]) -> (Client, AgentListener) {
    let listener = AgentListener::new();
    let mut arguments: Vec<OsString> = vec![
        "run".into(),
        "--no-config".into(),
        "--proxy".into(),
        proxy("skills").into(),
    ];
    arguments.extend(grants.iter().map(OsString::from));
    arguments.push("--".into());
    arguments.extend(listener.command());
    let client = Client::spawn(ungranted(&arguments), listener.transcript().clone());
    (client, listener)
}

#[test]
fn an_agent_hears_of_skills_and_reads_them() {
    let project = project();
    let (mut client, listener) = start(&["--grant", "skills=file:.agents/skills/**,file:.claude/skills/**"]);
    let (mut agent, servers) = begin_in(&mut client, &listener, &over_http(), project.path(), &json!([]));
    client.send_json(&prompt("p", "hi"));
    let prompted = agent.expect();
    let blocks = &prompted["params"]["prompt"];
    let index = blocks[0]["text"].as_str().expect("there is an index");
    assert!(
        index.ends_with("- pdf (in .agents/skills/pdf): Reads PDFs\n- xls (in .claude/skills/xls): Reads tables"),
        "{index}"
    );
    assert_eq!(blocks[1]["text"], "hi");
    agent.answer(&prompted, &json!({"stopReason": "end_turn"}));
    assert_eq!(client.expect()["id"], "p");
    let server = Http::connect(&servers[0]);
    let skill = server.tool("skill", &json!({"name": "pdf"}));
    assert!(text(&skill).ends_with("Use pdftotext.\n"), "{skill}");
    let listed = server.ask("resources/list", &json!({}));
    let uri = listed["result"]["resources"][1]["uri"].clone();
    assert_eq!(uri, "skill:///.claude/skills/xls/SKILL.md");
    let read = server.ask("resources/read", &json!({"uri": uri}));
    assert!(
        read["result"]["contents"][0]["text"]
            .to_string()
            .contains("Reads tables"),
        "{read}"
    );
}

#[test]
fn without_the_grant_prompts_go_as_they_are_and_the_user_is_told() {
    let project = project();
    let (mut client, listener) = start(&[]);
    let (mut agent, _) = begin_in(&mut client, &listener, &over_http(), project.path(), &json!([]));
    client.send_json(&prompt("p", "hi"));
    assert_eq!(
        agent.expect()["params"]["prompt"],
        prompt("p", "hi")["params"]["prompt"]
    );
    client.expect_standard_error("--grant skills=file:.agents/skills/**");
}
