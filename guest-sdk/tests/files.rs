//! Reading and listing files of the session's directory.

use consort_proxy::Peer::{Client, Host};
use consort_proxy::host::{self, EntryKind, List};
use consort_proxy::testing::Harness;
use consort_proxy::{Interests, Json, Outcome, Proxy, Request, RpcError};
use serde_json::json;

/// Answers with the paths that it is shown, and with the text of the first file.
struct Lists;

impl Proxy for Lists {
    fn start(_: Json) -> Result<(Self, Interests), String> {
        Ok((Self, Interests::new().intercept(Client, "_list")))
    }

    async fn request(&self, request: Request) -> Outcome {
        let list = List::of("src").depth(2).skip(["target"]).max_entries(2);
        let mut paths = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let page = match &after {
                Some(path) => list.clone().after(path),
                None => list.clone(),
            };
            let listing = host::list_files("s1", &page).await?;
            after = listing.entries.last().map(|entry| entry.path.clone());
            for entry in listing.entries {
                let mark = if entry.kind == EntryKind::Directory { "/" } else { "" };
                paths.push(format!("{}{mark}", entry.path));
            }
            if !listing.truncated {
                break;
            }
        }
        let first = paths.iter().find(|path| !path.ends_with('/'));
        let first = first.ok_or_else(|| RpcError::internal("there is no file"))?;
        let text = host::read_file("s1", first, Some(2)).await?;
        let answer = json!({"paths": paths, "text": text.text, "truncated": text.truncated});
        request.reply(Json::encode(&answer)?)
    }
}

#[test]
fn files_that_the_test_put_there_are_listed_and_read() {
    let mut host = Harness::start::<Lists>(json!({})).unwrap();
    for path in ["src/b.rs", "src/a/x", "src/a/y/z", "src/target/out", "other"] {
        host.file(path, "text");
    }
    host.request(Client, "_list", json!({}));
    let paths = ["src/a/", "src/a/x", "src/a/y/", "src/b.rs", "src/target/"];
    assert_eq!(
        host.next().result(),
        json!({"paths": paths, "text": "te", "truncated": true})
    );
}

#[test]
fn without_files_the_test_answers() {
    let mut host = Harness::start::<Lists>(json!({})).unwrap();
    host.request(Client, "_list", json!({}));
    let asked = host.next();
    assert_eq!((asked.to(), asked.method()), (Host, "host/file/list"));
    assert_eq!(
        asked.params(),
        json!({"path": "src", "depth": 2, "skip": ["target"], "maxEntries": 2, "sessionId": "s1"})
    );
    host.answer(&asked, json!({"entries": "none"}));
    assert_eq!(host.next().error()["code"], -32603);
    host.request(Client, "_list", json!({}));
    let asked = host.next();
    host.answer_error(&asked, RpcError::NOT_FOUND, "no such folder");
    assert_eq!(host.next().error()["code"], RpcError::NOT_FOUND);
}
