//! Compiled code is run unchecked, so only what the cache itself made of the very same source is ever run.

use consort_tests::Directory;
use consort_tests::command::{Outcome, command, finish};
use consort_tests::guests::guest;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// A prompt through a guest, with a cache of its own.
fn prompt(cache: &Path, name: &str) -> Outcome {
    let file = guest(name);
    let words = ["prompt", "--no-config", "--log", "info", "--proxy"].map(std::ffi::OsString::from);
    let mut words = words.to_vec();
    words.extend([file.into(), "Hello".into()]);
    let mut run = command(&words);
    run.env("XDG_CACHE_HOME", cache);
    finish(run, b"")
}

fn artefacts(cache: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(cache.join("consort")).expect("the cache is there");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "compiled"))
        .collect();
    files.sort();
    files
}

#[track_caller]
fn assert_works(outcome: &Outcome, compiled: bool) {
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert!(outcome.output.starts_with('>'), "the proxy was at work: {outcome:?}");
    assert_eq!(outcome.error.contains("compiled in"), compiled, "{outcome:?}");
}

#[test]
fn an_unchanged_proxy_is_compiled_once() {
    let cache = Directory::new();
    assert_works(&prompt(cache.path(), "arrow"), true);
    assert_works(&prompt(cache.path(), "arrow"), false);
    assert_eq!(artefacts(cache.path()).len(), 1);
}

#[test]
fn altered_and_planted_code_is_compiled_anew() {
    let cache = Directory::new();
    assert_works(&prompt(cache.path(), "arrow"), true);
    let own = artefacts(cache.path()).remove(0);
    let good = fs::read(&own).expect("it can be read");

    let mut altered = good.clone();
    let middle = altered.len() / 2;
    altered[middle] ^= 1;
    fs::write(&own, altered).expect("it can be written");
    assert_works(&prompt(cache.path(), "arrow"), true);

    fs::write(&own, &good[..good.len() / 2]).expect("it can be written");
    assert_works(&prompt(cache.path(), "arrow"), true);

    // What was made of another component, in this one's place.
    prompt(cache.path(), "observer");
    let other = artefacts(cache.path())
        .into_iter()
        .find(|file| *file != own)
        .expect("there are two now");
    fs::copy(other, &own).expect("it can be copied");
    assert_works(&prompt(cache.path(), "arrow"), true);

    fs::write(&own, "").expect("it can be written");
    assert_works(&prompt(cache.path(), "arrow"), true);

    // With another key the cache knows nothing.
    fs::write(cache.path().join("consort/key"), [7; 32]).expect("it can be written");
    assert_works(&prompt(cache.path(), "arrow"), true);
}

#[test]
fn a_cache_that_cannot_be_trusted_is_not_used() {
    let cache = Directory::new();
    assert_works(&prompt(cache.path(), "arrow"), true);
    let key = cache.path().join("consort/key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("they can be set");
    let outcome = prompt(cache.path(), "arrow");
    assert_works(&outcome, true);
    assert!(outcome.error.contains("not private"), "{outcome:?}");

    // The code is mapped, so what others may write is not taken even if it is whole.
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("they can be set");
    let own = artefacts(cache.path()).remove(0);
    fs::set_permissions(&own, fs::Permissions::from_mode(0o620)).expect("they can be set");
    assert_works(&prompt(cache.path(), "arrow"), true);
    assert_works(&prompt(cache.path(), "arrow"), false);
}
