//! The project's front door.

use consort_tests::command::run;
use consort_tests::terminal;

#[test]
fn the_demo_shows_what_each_proxy_does() {
    // The first time it may have to compile.
    run(&["demo"]);
    let outcome = run(&["demo"]);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert!(!outcome.error.contains("Finished"), "cargo is quiet: {outcome:?}");
    let screen = &outcome.output;
    for part in [
        "The prompt goes down",
        "context  changed it",
        "redact  changed it",
        "The answer comes up",
        "AGENTS.md",
        "client  receives",
        " prompt --proxies ",
    ] {
        assert!(screen.contains(part), "{part:?} is not in {screen}");
    }
    assert!(
        screen
            .lines()
            .any(|line| line.trim_start().starts_with("- Deploy with ghp_")),
        "{screen}"
    );
    assert!(screen.starts_with("Consort sends a prompt"), "{screen}");
    assert_fits(screen, 100);
    assert!(!screen.contains('\u{1b}'), "no colours in a pipe");

    // A terminal that does not know its width.
    let (status, screen) = terminal::run(&["demo"], &[]);
    assert_eq!(status, Some(0), "{screen}");
    assert_fits(&screen, 80);
    let received = screen.split_once("client  receives").map_or("", |(_, rest)| rest);
    assert!(received.contains("The token is [redacted:github-token]"), "{screen}");
}

/// Asserts that no line is wider, but for the command that is there to be copied.
#[track_caller]
fn assert_fits(screen: &str, width: usize) {
    for line in screen.lines().filter(|line| !line.contains(" prompt --proxies ")) {
        assert!(line.chars().count() <= width, "{line:?} is too wide: {screen}");
    }
}
