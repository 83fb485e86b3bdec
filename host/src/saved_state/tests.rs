//! Saved state by itself, one rule a test.

use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("consort-state-{test}-{}", std::process::id()));
        // What a test that failed has left under this number.
        let _ = fs::remove_dir_all(&folder);
        Self(folder)
    }

    fn state(&self, proxy: &str) -> SavedState {
        SavedState::new(Some(&self.0.join("state")), proxy, 1000)
    }

    /// Files with this ending.
    fn files(&self, ending: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.join("state")).unwrap();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.extension().is_some_and(|found| found == ending));
        files.sort();
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn shown(outcome: Outcome) -> String {
    match outcome {
        Ok(text) | Err(text) => text.to_text(),
    }
}

fn get(state: &SavedState, key: &str) -> String {
    shown(state.answer(Request::Get { key: key.into() }))
}

fn set(state: &SavedState, key: &str, value: &str) -> String {
    let (key, value) = (key.into(), value.into());
    shown(state.answer(Request::Set { key, value }))
}

fn delete(state: &SavedState, key: &str) -> String {
    shown(state.answer(Request::Delete { key: key.into() }))
}

fn keys(state: &SavedState) -> String {
    shown(state.answer(Request::Keys))
}

#[test]
fn what_was_set_is_there_until_it_is_deleted() {
    let folder = Folder::new("basics");
    let state = folder.state("proxy");
    assert_eq!((get(&state, "a"), keys(&state)), ("{}".into(), r#"{"keys":[]}"#.into()));
    assert_eq!(delete(&state, "a"), "{}");
    assert!(!folder.0.exists(), "nothing was kept, so nothing is on the disk");
    assert_eq!(set(&state, "b", "null"), "{}");
    assert_eq!(
        set(
            &state,
            "a",
            r#"{"n": 1.10, "big": 12345678901234567890123, "s": "\ud83d\u0041"}"#
        ),
        "{}"
    );
    let again = folder.state("proxy");
    assert_eq!(
        get(&again, "a"),
        r#"{"value":{"n": 1.10, "big": 12345678901234567890123, "s": "\ud83d\u0041"}}"#
    );
    assert_eq!(get(&again, "b"), r#"{"value":null}"#);
    assert_eq!(keys(&again), r#"{"keys":["a","b"]}"#);
    assert_eq!((delete(&again, "b"), get(&state, "b")), ("{}".into(), "{}".into()));
}

#[test]
fn any_name_and_any_key_has_a_place_of_its_own() {
    let folder = Folder::new("names");
    let long = "n".repeat(5000);
    let names = [
        "a/b",
        "a_b",
        "../../x",
        "..",
        ".",
        "",
        "a b",
        "ü",
        "u",
        "a\0b",
        "A",
        "a",
        &long,
        &long[1..],
    ];
    for (number, name) in names.iter().enumerate() {
        for key in ["", "\"\n\u{7f}", "../x"] {
            assert_eq!(set(&folder.state(name), key, &number.to_string()), "{}", "{name:?}");
        }
    }
    for (number, name) in names.iter().enumerate() {
        for key in ["", "\"\n\u{7f}", "../x"] {
            assert_eq!(
                get(&folder.state(name), key),
                format!("{{\"value\":{number}}}"),
                "{name:?}"
            );
        }
    }
    assert_eq!(folder.files("json").len(), names.len());
    assert_eq!(
        fs::read_dir(&folder.0).unwrap().count(),
        1,
        "nothing is beside the folder"
    );
}

#[test]
fn what_is_too_much_is_refused_and_what_was_there_stays() {
    let folder = Folder::new("quota");
    let state = folder.state("proxy");
    let long = format!("\"{}\"", "x".repeat(900));
    assert_eq!(set(&state, "a", &long), "{}");
    let refused = set(&state, "b", &long);
    assert!(
        refused.contains("-32010") && refused.contains("may take 1000") && refused.contains("delete keys"),
        "{refused}"
    );
    assert_eq!(
        (get(&state, "a"), get(&state, "b")),
        (format!("{{\"value\":{long}}}"), "{}".into())
    );
    // What a key takes that has to be escaped counts as well.
    assert!(set(&state, &"\u{1}".repeat(20), "1").contains("-32010"));
    let lowered = SavedState::new(Some(&folder.0.join("state")), "proxy", 100);
    let shorter = format!("\"{}\"", "x".repeat(800));
    assert_eq!(set(&lowered, "a", &shorter), "{}", "it becomes less");
    assert!(set(&lowered, "a", &long).contains("may take 100"));
    assert_eq!(
        (delete(&lowered, "a"), set(&lowered, "b", "1")),
        ("{}".into(), "{}".into())
    );
}

#[test]
fn keys_are_bounded_in_length_and_number() {
    let folder = Folder::new("keys");
    let state = SavedState::new(Some(&folder.0.join("state")), "proxy", 1 << 20);
    assert_eq!(set(&state, &"k".repeat(MAX_KEY), "1"), "{}");
    for refused in [
        set(&state, &"k".repeat(MAX_KEY + 1), "1"),
        get(&state, &"ü".repeat(MAX_KEY / 2 + 1)),
        delete(&state, &"k".repeat(MAX_KEY + 1)),
    ] {
        assert!(refused.contains("-32602") && refused.contains("256 bytes"), "{refused}");
    }
    // As if it had set them one by one.
    let full: Vec<String> = (0..MAX_KEYS).map(|number| format!("\"{number}\":0")).collect();
    fs::write(
        &folder.files("json")[0],
        format!("{{\"state\":{{{}}}}}", full.join(",")),
    )
    .unwrap();
    assert_eq!(set(&state, "0", "1"), "{}");
    let refused = set(&state, "more", "1");
    assert!(refused.contains("-32010") && refused.contains("1000 keys"), "{refused}");
}

#[test]
fn only_the_user_can_read_it() {
    let folder = Folder::new("modes");
    set(&folder.state("proxy"), "a", "1");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.0.join("state")), 0o700);
    assert_eq!(mode(&folder.files("json")[0]), 0o600);
    assert_eq!(mode(&folder.files("lock")[0]), 0o600);
    assert!(folder.files("new").is_empty());
}

#[test]
fn a_damaged_file_is_put_aside_whole() {
    let folder = Folder::new("damaged");
    let state = folder.state("proxy");
    set(&state, "a", "1");
    let file = folder.files("json").remove(0);
    let whole = fs::read(&file).unwrap();
    let cut = &whole[..whole.len() - 4];
    for (number, damaged) in [cut, b"", b"\0\0\0", b"{\"state\":{\"a\":\"\xff\"}}", b"[]"]
        .into_iter()
        .enumerate()
    {
        fs::write(&file, damaged).unwrap();
        // By a reader and by a writer.
        match number % 2 {
            0 => assert_eq!(get(&state, "a"), "{}"),
            _ => assert_eq!(set(&state, "b", "2"), "{}"),
        }
        let aside = file.with_extension(format!("damaged-{}", number + 1));
        assert_eq!(fs::read(aside).unwrap(), damaged);
    }
    assert_eq!(
        (set(&state, "a", "3"), get(&state, "a")),
        ("{}".into(), r#"{"value":3}"#.into())
    );
}

#[test]
fn a_change_that_was_cut_off_leaves_what_was_there() {
    let folder = Folder::new("cut-off");
    let state = folder.state("proxy");
    set(&state, "a", "1");
    let file = folder.files("json").remove(0);
    // What a crash in the middle of a change leaves.
    fs::write(file.with_extension("new"), "{\"proxy\":\"proxy\",\"state\":{\n\"a\":2").unwrap();
    assert_eq!(get(&state, "a"), r#"{"value":1}"#);
    assert_eq!(
        (set(&state, "a", "3"), get(&state, "a")),
        ("{}".into(), r#"{"value":3}"#.into())
    );
    assert!(folder.files("new").is_empty());
}

#[test]
fn a_disk_that_fails_is_an_error_and_loses_nothing() {
    let folder = Folder::new("disk");
    let state = folder.state("proxy");
    set(&state, "a", "1");
    let file = folder.files("json").remove(0);
    // A folder in its place can be neither written nor replaced.
    let new = file.with_extension("new");
    fs::create_dir(&new).unwrap();
    let error = set(&state, "a", "2");
    assert!(
        error.contains("-32603") && !error.contains("consort-state"),
        "no path of the host: {error}"
    );
    assert_eq!(get(&state, "a"), r#"{"value":1}"#);
    fs::remove_dir(&new).unwrap();
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(get(&state, "a").contains("not a file"));
    let nowhere = SavedState::new(Some(Path::new("/dev/null/state")), "proxy", 1000);
    assert!(set(&nowhere, "a", "1").contains("-32603"));
    assert!(set(&SavedState::new(None, "proxy", 1000), "a", "1").contains("XDG_STATE_HOME"));
}

#[test]
fn several_at_once_lose_no_change_of_each_other() {
    let folder = Folder::new("several");
    thread::scope(|scope| {
        for writer in 0..4 {
            let state = folder.state("proxy");
            scope.spawn(move || {
                for number in 0..10 {
                    assert_eq!(set(&state, &format!("{writer}-{number}"), "1"), "{}");
                }
            });
        }
    });
    assert_eq!(
        folder
            .state("proxy")
            .answer(Request::Keys)
            .unwrap()
            .to_text()
            .matches('-')
            .count(),
        40
    );
}
