//! What a list shows to whom, in which order, and where it ends.

use super::*;
use crate::grants::Grant;
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering as Atomic};

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(files: &[&str]) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Atomic::Relaxed);
        let path = std::env::temp_dir().join(format!("consort-list-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let folder = Self(path.canonicalize().unwrap());
        for file in files {
            let file = folder.0.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "12345").unwrap();
        }
        folder
    }

    fn list(&self, grants: &[&str], request: Value) -> io::Result<Value> {
        let policy = Policy::new(grants.iter().map(|grant| grant.parse::<Grant>().unwrap()));
        let request: Request = serde_json::from_value(request).unwrap();
        list(&self.0, &request, &policy).map(|text| text.decode().unwrap())
    }

    /// The paths of a list, those of folders with a slash behind them.
    fn paths(&self, grants: &[&str], request: Value) -> Vec<String> {
        let listed = self.list(grants, request).unwrap();
        assert_eq!(listed["truncated"], false, "{listed}");
        paths(&listed)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn paths(listed: &Value) -> Vec<String> {
    let path = |entry: &Value| {
        let mark = if entry["type"] == "directory" { "/" } else { "" };
        format!("{}{mark}", entry["path"].as_str().unwrap())
    };
    listed["entries"].as_array().unwrap().iter().map(path).collect()
}

const FILES: [&str; 9] = [
    "b.md",
    "a/z.rs",
    "a/b/c.rs",
    "a.rs",
    "target/x",
    ".git/config",
    ".env",
    ".agents/skills/s/SKILL.md",
    ".agents/skills/.s/SKILL.md",
];

#[test]
fn a_folder_comes_before_what_is_in_it_and_what_is_hidden_does_not() {
    let folder = Folder::new(&FILES);
    let all = folder.paths(&["file:**"], json!({"depth": 9, "skip": ["target"]}));
    assert_eq!(all, ["a/", "a/b/", "a/b/c.rs", "a/z.rs", "a.rs", "b.md", "target/"]);
    let flat = folder.list(&["file:**"], json!({})).unwrap();
    assert_eq!(paths(&flat), ["a/", "a.rs", "b.md", "target/"]);
    assert_eq!(flat["entries"][1], json!({"path": "a.rs", "type": "file", "size": 5}));
    assert_eq!(
        folder.paths(&["file:**"], json!({"path": "./a/", "depth": 1})),
        ["a/b/", "a/z.rs"]
    );
}

#[test]
fn only_what_could_be_read_is_shown_and_what_is_hidden_if_it_is_granted_itself() {
    let folder = Folder::new(&FILES);
    let deep = || json!({"depth": 9});
    assert_eq!(folder.paths(&["file:a/b/**"], deep()), ["a/", "a/b/", "a/b/c.rs"]);
    assert_eq!(folder.paths(&["file:a/z.rs"], deep()), ["a/", "a/z.rs"]);
    assert_eq!(folder.paths(&["file:.env"], deep()), [".env"]);
    let skills = [
        ".agents/",
        ".agents/skills/",
        ".agents/skills/s/",
        ".agents/skills/s/SKILL.md",
    ];
    assert_eq!(folder.paths(&["file:.agents/skills/**"], deep()), skills);
    assert_eq!(
        folder.paths(&["file:.agents/skills/**"], json!({"path": ".agents/skills"})),
        [skills[2]]
    );
    assert_eq!(folder.paths(&["everything"], deep()), [""; 0]);
    assert_eq!(folder.paths(&["file:**"], json!({"path": ".git"})), [""; 0]);
}

#[test]
fn links_are_shown_if_they_stay_inside_and_are_never_entered() {
    let outside = Folder::new(&["secret"]);
    let folder = Folder::new(&["real/x", ".hidden/y"]);
    for (target, link) in [
        ("real", "inside"),
        ("..", "up"),
        (outside.0.to_str().unwrap(), "outside"),
        (".hidden", "open"),
        ("real/x", "file"),
        ("none", "broken"),
        (".", "real/loop"),
    ] {
        symlink(target, folder.0.join(link)).unwrap();
    }
    let listed = folder.list(&["file:**"], json!({"depth": 9})).unwrap();
    assert_eq!(paths(&listed), ["file", "inside/", "real/", "real/loop/", "real/x"]);
    assert_eq!(
        listed["entries"][1],
        json!({"path": "inside", "type": "directory", "link": true})
    );
    assert_eq!(
        folder.paths(&["file:**"], json!({"path": "inside"})),
        ["inside/loop/", "inside/x"]
    );
    for path in ["up", "outside", "open", "broken", "file", "none"] {
        assert!(folder.list(&["file:**"], json!({"path": path})).is_err(), "{path}");
    }
}

#[test]
fn a_list_goes_on_where_it_was_cut() {
    let folder = Folder::new(&FILES);
    let whole = folder.paths(&["file:**"], json!({"depth": 9}));
    for most in 1..=whole.len() {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let listed = folder
                .list(&["file:**"], json!({"depth": 9, "maxEntries": most, "after": after}))
                .unwrap();
            let page = paths(&listed);
            assert!(page.len() <= most);
            found.extend(page);
            if listed["truncated"] == false {
                break;
            }
            after = listed["entries"][most - 1]["path"].as_str().map(str::to_owned);
        }
        assert_eq!(found, whole, "{most}");
    }
}

#[test]
fn depth_bytes_and_names_have_an_end() {
    let deep = format!("{}x", "d/".repeat(40));
    let folder = Folder::new(&[&deep]);
    let shown = folder.paths(&["file:**"], json!({"depth": 1_000_000}));
    assert_eq!(shown.len(), MAX_DEPTH as usize);
    let name = "n".repeat(200);
    let long: Vec<String> = (0..6_000).map(|number| format!("{number}{name}")).collect();
    let folder = Folder::new(&long.iter().map(String::as_str).collect::<Vec<_>>());
    let listed = folder.list(&["file:**"], json!({"maxEntries": 1_000_000})).unwrap();
    let count = listed["entries"].as_array().unwrap().len();
    assert!(
        listed["truncated"] == true && count > 3_000 && listed.to_string().len() <= MAX_BYTES,
        "{count}"
    );
}

#[test]
fn a_folder_that_is_not_there_is_named_as_that() {
    let folder = Folder::new(&[]);
    let error = folder.list(&["file:**"], json!({"path": "none"})).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}
