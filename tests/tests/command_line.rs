//! The command line without a chain: help, completions, exit statuses, and one clear sentence for each mistake.

use consort_tests::Directory;
use consort_tests::command::{Outcome, command, finish, run, run_with_input};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// Asserts that a command failed with this status and one sentence that contains all of the words.
#[track_caller]
fn assert_complaint(outcome: &Outcome, status: i32, words: &[&str]) {
    assert_eq!(outcome.status, Some(status), "{outcome:?}");
    assert_eq!(outcome.output, "", "nothing but results goes to standard output");
    let sentence = outcome.error.strip_prefix("consort: ");
    let sentence = sentence.unwrap_or_else(|| panic!("no sentence of Consort's: {outcome:?}"));
    assert_eq!(sentence.trim_end().lines().count(), 1, "{sentence}");
    for word in words {
        assert!(sentence.contains(word), "{word:?} is not in: {sentence}");
    }
}

#[test]
fn help_has_examples_and_goes_to_standard_output() {
    let help = run(&["--help"]);
    assert_eq!(help.status, Some(0));
    assert_eq!(help.error, "");
    assert!(help.output.contains("Examples:"));
    for command in [
        "run",
        "proxy",
        "prompt",
        "inspect",
        "build",
        "demo-agent",
        "completions",
    ] {
        let help = run(&[command, "--help"]);
        assert_eq!(help.status, Some(0), "{command}");
        assert!(help.output.contains("Examples:"), "{command}: {}", help.output);
    }
    assert_eq!(run(&["demo", "--help"]).status, Some(0));
}

#[test]
fn help_has_the_exit_statuses_of_what_others_start() {
    for command in ["run", "proxy", "prompt", "inspect"] {
        let help = run(&[command, "--help"]);
        assert!(help.output.contains("Exit status:"), "{command}: {}", help.output);
    }
}

#[test]
fn the_commands_with_a_trace_and_those_with_an_agent_are_those_that_are_told() {
    let has = |command: &str, option: &str| {
        run(&[command, "--help"])
            .output
            .contains(&format!("\n      {option} <"))
    };
    for command in ["run", "prompt", "proxy"] {
        assert!(has(command, "--trace"), "{command}");
        assert_eq!(has(command, "--cwd"), command != "proxy", "{command}");
        assert_eq!(has(command, "--env"), command != "proxy", "{command}");
    }
    assert!(!has("inspect", "--trace"));
}

#[test]
fn the_version_is_the_package_s() {
    let version = run(&["--version"]);
    assert_eq!(version.output, format!("consort {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_calls_exit_with_2() {
    for arguments in [
        &["nonsense"][..],
        &["run", "--nonsense"],
        &["run", "--log", "a=b=c", "x"],
        &["prompt", "--yes", "--no", "x"],
        &["run", "--no-config", "--config", "x", "y"],
        &[],
    ] {
        let outcome = run(arguments);
        assert_eq!(outcome.status, Some(2), "{arguments:?}: {outcome:?}");
        assert_eq!(outcome.output, "", "{arguments:?}");
    }
    assert_complaint(&run(&["run"]), 2, &["no agent", "consort.toml"]);
    assert_complaint(&run(&["prompt", " "]), 2, &["empty"]);
    assert_complaint(&run_with_input(&["prompt"], b"\n"), 2, &["empty"]);
}

#[test]
fn completions_are_there_for_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell]);
        assert_eq!(script.status, Some(0));
        assert!(script.output.contains("proxies"), "{shell}");
    }
    assert_eq!(run(&["completions", "tcl"]).status, Some(2));
}

#[test]
fn what_is_no_proxy_is_named_in_one_sentence() {
    let directory = Directory::new();
    let inspect = |name: &str, bytes: &[u8]| {
        let file = directory.file(name, bytes);
        run(&["inspect".as_ref(), file.as_os_str()])
    };
    assert_complaint(&inspect("empty.wasm", b""), 1, &["empty.wasm", "is empty"]);
    assert_complaint(&inspect("text.wasm", b"(component)"), 1, &["is text"]);
    assert_complaint(&inspect("garbage.wasm", b"\x7fELF\x01\x02"), 1, &["is not WebAssembly"]);
    assert_complaint(
        &inspect("core.wasm", b"\0asm\x01\0\0\0"),
        1,
        &["core WebAssembly module"],
    );
    assert_complaint(
        &inspect("cut.wasm", b"\0asm\x0d\0\x01\0\x0a\x20"),
        1,
        &["cut.wasm", "damaged or incomplete"],
    );
    let missing = directory.path().join("missing.wasm");
    assert_complaint(
        &run(&["inspect".as_ref(), missing.as_os_str()]),
        1,
        &["missing.wasm", "No such file"],
    );
}

#[test]
fn a_component_of_another_world_is_described_and_refused() {
    let directory = Directory::new();
    let file = directory.file("other.wasm", b"\0asm\x0d\0\x01\0");
    let outcome = run(&["inspect".as_ref(), "--json".as_ref(), file.as_os_str()]);
    assert_eq!(outcome.status, Some(1));
    let report: Value = serde_json::from_str(&outcome.output).unwrap();
    assert_eq!(report["suitable"], false);
    assert_eq!(report["world"], Value::Null);
    assert_eq!(report["size"], 8);
    assert_eq!(report["sha256"].as_str().map(str::len), Some(64));
    assert!(outcome.error.contains("another world"), "{}", outcome.error);
}

#[test]
fn mistakes_in_the_configuration_are_named_with_file_and_line() {
    let directory = Directory::new();
    let file = directory.file("consort.toml", "[agent]\ncomand = \"x\"\n");
    let outcome = run(&["run".as_ref(), "--config".as_ref(), file.as_os_str()]);
    let place = format!("{}:2:", file.display());
    assert_complaint(&outcome, 1, &[&place, "`comand`", "did you mean `command`?"]);

    let missing = directory.path().join("missing.toml");
    let outcome = run(&["run".as_ref(), "--config".as_ref(), missing.as_os_str()]);
    assert_complaint(&outcome, 1, &["missing.toml", "No such file"]);
}

#[test]
fn mistakes_in_the_options_are_named() {
    let directory = Directory::new();
    let folder = directory.path().as_os_str();
    assert_complaint(
        &run(&["run".as_ref(), "--proxy".as_ref(), folder, "agent".as_ref()]),
        1,
        &["is a directory", "--proxies"],
    );
    assert_complaint(
        &run(&["run", "--proxies", "/nonexistent", "agent"]),
        1,
        &["/nonexistent", "No such file"],
    );
    assert_complaint(
        &run(&["run", "--proxy", "a.wasm", "--proxy-config", "b={}", "agent"]),
        1,
        &["\"b\"", "are a"],
    );
    assert_complaint(
        &run(&["run", "--proxy", "a.wasm", "--proxy-config", "a={", "agent"]),
        1,
        &["\"a\"", "not JSON"],
    );
    assert_complaint(&run(&["run", "--env", "=x", "agent"]), 1, &["NAME=VALUE"]);
}

#[test]
fn a_folder_without_proxy_crates_is_named() {
    let directory = Directory::new();
    let outcome = run(&["build".as_ref(), directory.path().as_os_str()]);
    assert_complaint(&outcome, 1, &["no proxy crate", "cdylib"]);
    let outcome = run(&["build", "/nonexistent"]);
    assert_complaint(&outcome, 1, &["/nonexistent"]);
}

#[test]
fn a_compiler_without_the_target_is_named() {
    let directory = Directory::new();
    directory.file(
        "Cargo.toml",
        "[package]\nname = \"guest\"\nversion = \"0.1.0\"\n[lib]\ncrate-type = [\"cdylib\"]\npath = \"lib.rs\"\n[workspace]\n",
    );
    directory.file("lib.rs", "");
    let outcome = run(&[
        "build".as_ref(),
        directory.path().as_os_str(),
        "--rustc".as_ref(),
        "/nonexistent/rustc".as_ref(),
    ]);
    assert_complaint(&outcome, 1, &["/nonexistent/rustc"]);
    // `echo` prints where the libraries of no compiler are.
    let outcome = run(&[
        "build".as_ref(),
        directory.path().as_os_str(),
        "--rustc".as_ref(),
        "echo".as_ref(),
    ]);
    assert_complaint(&outcome, 1, &["wasm32-wasip2", "--rustc"]);
}

#[test]
fn a_compiler_is_found_from_the_current_directory() {
    let directory = Directory::new();
    fs::create_dir(directory.path().join("guest")).unwrap();
    directory.file(
        "guest/Cargo.toml",
        "[package]\nname = \"guest\"\nversion = \"0.1.0\"\n[lib]\ncrate-type = [\"cdylib\"]\npath = \"lib.rs\"\n[workspace]\n",
    );
    directory.file("guest/lib.rs", "");
    // Written by another process: a program that anyone has open for writing cannot be started.
    let script = "printf '#!/bin/sh\\necho /no/libraries\\n' > rustc && chmod +x rustc";
    let written = Command::new("sh")
        .args(["-c", script])
        .current_dir(directory.path())
        .status();
    assert!(written.unwrap().success());
    for name in ["./rustc", "guest/../rustc"] {
        let mut command = command(&["build", "guest", "--rustc", name]);
        command.current_dir(directory.path());
        // It was started, since it is known what it lacks.
        assert_complaint(&finish(command, b""), 1, &["no target wasm32-wasip2", "/rustc"]);
    }
}
