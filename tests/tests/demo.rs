//! The project's front door.

use consort_tests::command::run;

#[test]
fn the_demo_shows_what_each_proxy_does() {
    let outcome = run(&["demo"]);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let screen = &outcome.output;
    for part in [
        "The prompt goes down",
        "context  changed it",
        "redact  changed it",
        "The answer comes up",
        "AGENTS.md",
    ] {
        assert!(screen.contains(part), "{part:?} is not in {screen}");
    }
    assert!(
        screen
            .lines()
            .any(|line| line.trim_start().starts_with("- Deploy with ghp_")),
        "{screen}"
    );
    assert!(
        screen.lines().all(|line| line.chars().count() <= 100),
        "a line is too wide: {screen}"
    );
    assert!(!screen.contains('\u{1b}'), "no colours in a pipe");
}
