//! The proxy in Python: built as its README says, and put into a chain.

use consort_tests::command::run;
use consort_tests::root;
use std::process::Command;

/// Runs a command and fails the test with its output if it fails.
fn check(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
#[ignore = "installs a Python package and compiles an interpreter"]
fn a_proxy_in_python_passes_everything_on() {
    let environment = root().join("target/python");
    let out = root().join("target/guests/python-passthrough.wasm");
    std::fs::create_dir_all(root().join("target/guests")).expect("a folder can be made");
    check(Command::new("python3").arg("-m").arg("venv").arg(&environment));
    check(Command::new(environment.join("bin/pip")).args(["install", "--quiet", "componentize-py==0.25.1"]));
    check(
        Command::new(environment.join("bin/componentize-py"))
            .args([
                "-d",
                "../../../wit",
                "-w",
                "proxy",
                "componentize",
                "--stub-wasi",
                "app",
                "-o",
            ])
            .arg(&out)
            .current_dir(root().join("tests/guests-python/passthrough")),
    );
    let outcome = run(&[
        "prompt".as_ref(),
        "--yes".as_ref(),
        "--proxy".as_ref(),
        out.as_os_str(),
        "Hello /tool".as_ref(),
    ]);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert!(outcome.output.contains("Hello"), "{outcome:?}");
}
