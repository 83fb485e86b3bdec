//! What `run` and `prompt` are told to put into the chain, seen from what comes out of it.

use consort_tests::command::{Outcome, command, finish, run};
use consort_tests::guests::{guest, proxy};
use consort_tests::{Directory, consort};
use std::ffi::OsStr;
use std::fs;

/// `consort prompt OPTIONS Hello` in front of the demo agent.
fn prompt(options: &[&OsStr]) -> Outcome {
    let mut arguments: Vec<&OsStr> = vec!["prompt".as_ref()];
    arguments.extend(options);
    arguments.push("Hello".as_ref());
    run(&arguments)
}

/// Asserts that the answer went through so many `arrow` proxies.
#[track_caller]
fn assert_arrows(outcome: &Outcome, count: usize) {
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let arrows = outcome.output.chars().take_while(|&letter| letter == '>').count();
    assert_eq!(arrows, count, "{outcome:?}");
}

#[test]
fn proxies_come_from_files_and_folders() {
    let arrow = guest("arrow");
    let arrow = arrow.as_os_str();
    assert_arrows(&prompt(&["--proxy".as_ref(), arrow]), 1);
    assert_arrows(&prompt(&["--proxy".as_ref(), arrow, "--proxy".as_ref(), arrow]), 2);

    let directory = Directory::new();
    for name in ["a.wasm", "b.wasm"] {
        fs::copy(arrow, directory.path().join(name)).unwrap();
    }
    directory.file("c.txt", "no proxy");
    let folder = directory.path().as_os_str();
    assert_arrows(&prompt(&["--proxies".as_ref(), folder]), 2);
    assert_arrows(&prompt(&["--proxy".as_ref(), arrow, "--proxies".as_ref(), folder]), 3);
}

#[test]
fn an_empty_folder_of_proxies_is_a_failure() {
    let directory = Directory::new();
    let outcome = prompt(&["--proxies".as_ref(), directory.path().as_os_str()]);
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    assert_eq!(outcome.output, "", "nothing reached an agent");
    assert!(outcome.error.starts_with("consort: no proxies: "), "{outcome:?}");
}

#[test]
fn the_configuration_file_names_proxies_relative_to_itself_and_flags_win() {
    let directory = Directory::new();
    let arrow = guest("arrow");
    fs::create_dir(directory.path().join("proxies")).unwrap();
    fs::copy(&arrow, directory.path().join("proxies/arrow.wasm")).unwrap();
    let config = directory.file(
        "consort.toml",
        "[[proxies]]\nfile = \"proxies/arrow.wasm\"\n[[proxies]]\nfile = \"proxies/arrow.wasm\"\nlimits.memory = \"16 MiB\"\n",
    );
    let config: [&OsStr; 2] = ["--config".as_ref(), config.as_os_str()];
    assert_arrows(&prompt(&config), 2);
    assert_arrows(
        &prompt(&[config[0], config[1], "--proxy".as_ref(), arrow.as_os_str()]),
        1,
    );
}

#[test]
fn a_proxy_gets_its_configuration_from_flags_and_from_the_file() {
    let directory = Directory::new();
    directory.file("NOTES.md", "Remember the milk.");
    let context = proxy("context");
    let json = directory.file("context.json", r#"{"files": ["NOTES.md"]}"#);
    let config = directory.file(
        "consort.toml",
        format!("[[proxies]]\nfile = {context:?}\nconfig = {{ files = [\"NOTES.md\"] }}\n"),
    );
    let from_file = format!("context=@{}", json.display());
    for options in [
        &[
            "--proxy".as_ref(),
            context.as_os_str(),
            "--proxy-config".as_ref(),
            r#"context={"files":["NOTES.md"]}"#.as_ref(),
        ][..],
        &[
            "--proxy".as_ref(),
            context.as_os_str(),
            "--proxy-config".as_ref(),
            from_file.as_ref(),
        ],
        &["--config".as_ref(), config.as_os_str()],
    ] {
        let mut all: Vec<&OsStr> = vec!["--cwd".as_ref(), directory.path().as_os_str()];
        all.extend(options);
        let outcome = prompt(&all);
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        assert!(outcome.output.contains("Remember the milk."), "{outcome:?}");
    }
}

#[test]
fn the_help_s_example_of_a_configuration_is_one() {
    let help = run(&["run", "--help"]).output;
    let example = help
        .split_once("--proxy-config '")
        .and_then(|(_, rest)| rest.split_once('\''));
    let (configuration, _) = example.unwrap_or_else(|| panic!("there is no example: {help}"));
    let outcome = run(&[
        "prompt".as_ref(),
        "--proxy".as_ref(),
        proxy("redact").as_os_str(),
        "--proxy-config".as_ref(),
        configuration.as_ref(),
        "The customer is ACME-17.".as_ref(),
    ]);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert!(
        outcome.output.contains("The customer is [redacted:acme]."),
        "{outcome:?}"
    );
}

#[test]
fn a_leading_tilde_is_the_home_directory() {
    let home = Directory::new();
    for folder in ["bin", "proxies", "project"] {
        fs::create_dir(home.path().join(folder)).unwrap();
    }
    fs::copy(guest("arrow"), home.path().join("proxies/arrow.wasm")).unwrap();
    fs::copy(proxy("context"), home.path().join("context.wasm")).unwrap();
    std::os::unix::fs::symlink(consort(), home.path().join("bin/agent")).unwrap();
    home.file("project/NOTES.md", "Remember the milk.");
    home.file("context.json", r#"{"files": ["NOTES.md"]}"#);
    home.file(
        "consort.toml",
        "[agent]\ncommand = \"~/bin/agent\"\nargs = [\"demo-agent\"]\ncwd = \"~/project\"\n\
         [[proxies]]\nfile = \"~/proxies/arrow.wasm\"\n",
    );
    let prompt = |options: &[&str]| {
        let mut command = command(&[&["prompt"], options, &["Hello"]].concat());
        command.env("HOME", home.path());
        finish(command, b"")
    };
    let outcome = prompt(&["--config", "~/consort.toml"]);
    assert_arrows(&outcome, 1);
    assert!(!outcome.error.contains("demo agent answers"), "{outcome:?}");
    assert_arrows(&prompt(&["--proxy=~/proxies/arrow.wasm", "--proxies", "~/proxies"]), 2);
    let configured = [
        "--cwd",
        "~/project",
        "--proxy",
        "~/context.wasm",
        "--proxy-config",
        "context=@~/context.json",
    ];
    let outcome = prompt(&configured);
    assert!(outcome.output.contains("Remember the milk."), "{outcome:?}");
}

#[test]
fn a_bare_level_logs_what_consort_and_the_agent_say_and_not_the_libraries() {
    let arrow = guest("arrow");
    // What is compiled is what the compiler would tell of.
    let cache = Directory::new();
    let logged = |filter: &str| {
        let mut command = command(&[
            "prompt".as_ref(),
            "--log".as_ref(),
            filter.as_ref(),
            "--proxy".as_ref(),
            arrow.as_os_str(),
            "Hello".as_ref(),
            "sh".as_ref(),
            "-c".as_ref(),
            "echo said >&2".as_ref(),
        ]);
        command.env("XDG_CACHE_HOME", cache.path());
        finish(command, b"").error
    };
    let bare = logged("debug");
    assert!(bare.contains("INFO agent: "), "{bare}");
    assert!(!bare.contains("wasmtime"), "{bare}");
    let full = logged("wasmtime=debug");
    assert!(full.contains("wasmtime"), "a full filter is taken as it is: {full}");
}

#[test]
fn a_proxy_that_is_not_there_or_none_is_told_in_one_sentence() {
    let directory = Directory::new();
    let text = directory.file("text.wasm", "(component)");
    let missing = directory.path().join("missing.wasm");
    for (file, words) in [
        (missing.as_os_str(), ["missing.wasm", "No such file"]),
        (text.as_os_str(), ["text.wasm", "is text"]),
    ] {
        let outcome = run(&[
            "prompt".as_ref(),
            "--proxy".as_ref(),
            file,
            "Hello".as_ref(),
            "/nonexistent".as_ref(),
        ]);
        assert_eq!(outcome.status, Some(1), "{outcome:?}");
        assert_eq!(outcome.error.lines().count(), 1, "{outcome:?}");
        for word in words {
            assert!(outcome.error.contains(word), "{outcome:?}");
        }
    }
}
