//! What others on the computer, pages in a browser and clients that behave badly can do to the bridge of MCP servers: nothing that
//! anybody else notices.

use consort_tests::http::send;
use consort_tests::mcp::{
    BOTH, JSON, Server, Shim, answer, close, new_session, offering, set_up, start, start_over_http,
};
use consort_tests::session::{prompt, request};
use consort_tests::{Agent, Client, PATIENCE};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// What the bridge may take for large messages, in KiB.
const MOST: u64 = 320 * 1024;

const MIB: usize = 1024 * 1024;

/// A connection to a server over HTTP, on which nothing was said yet.
fn dial(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// The head of a request, up to more headers.
fn head(server: &Server, method: &str, url: &str) -> String {
    let path = url.splitn(4, '/').nth(3).unwrap();
    format!(
        "{method} /{path} HTTP/1.1\r\nHost: {}\r\nAuthorization: {}\r\nAccept: text/event-stream\r\n",
        server.address(),
        server.authorization
    )
}

/// A prompt goes through and comes back.
fn traffic_goes_on(client: &mut Client, agent: &mut Agent) {
    client.send_json(&prompt("p", "go"));
    let asked = agent.expect();
    assert_eq!(asked["method"], "session/prompt");
    agent.answer(&asked, &json!({"stopReason": "end_turn"}));
    assert_eq!(client.expect()["id"], "p");
}

fn echoes(server: &Server) {
    let said = server.connect().tool("echo", &json!({"text": "here"}));
    assert_eq!(said["result"]["content"][0]["text"], "here", "{said}");
}

/// Lets this process open many connections.
fn open_many() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let current = maximum.map_or(Some(4096), |most| Some(most.min(4096)));
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

#[test]
fn nobody_comes_in_without_the_secret() {
    let (_client, _agent, server) = start_over_http();
    let ping = request(1, "ping", &json!({})).to_string();
    let by_path = || send("POST", &server.url, &[JSON], ping.as_bytes()).status;
    assert_eq!(by_path(), 200, "an agent that drops the header");
    let session = server.connect();
    let port = server.address().rsplit_once(':').unwrap().1.to_owned();
    let (base, secret) = server.url.rsplit_once('/').unwrap();
    let url = server.url.clone();
    let guessed = format!("{base}/{}", "0".repeat(secret.len()));
    let (elsewhere, page) = (format!("evil.example:{port}"), format!("http://evil.example:{port}"));
    let resolved = format!("127.0.0.1.evil.example:{port}");
    let known = ("Mcp-Session-Id", session.id.as_str());
    let bearer = ("Authorization", server.authorization.as_str());
    for (what, url, headers, status) in [
        ("no secret", base.to_owned() + "/", vec![known], 401),
        ("a guess", guessed, vec![known], 401),
        ("another path", format!("{url}/x"), vec![], 401),
        ("a wrong bearer", url.clone(), vec![("Authorization", "Bearer 0")], 401),
        ("another scheme", url.clone(), vec![("Authorization", "Basic 0")], 401),
        ("the path of one who has shown a bearer", url.clone(), vec![], 401),
        ("another name", url.clone(), vec![("Host", elsewhere.as_str())], 403),
        ("a longer name", url.clone(), vec![("Host", resolved.as_str())], 403),
        ("no port", url.clone(), vec![("Host", "127.0.0.1")], 403),
        ("a page of elsewhere", url.clone(), vec![("Origin", page.as_str())], 403),
        ("a page without origin", url.clone(), vec![("Origin", "null")], 403),
        (
            "a guessed session",
            url.clone(),
            vec![bearer, ("Mcp-Session-Id", "0")],
            404,
        ),
    ] {
        let mut headers = headers;
        headers.push(JSON);
        assert_eq!(send("POST", &url, &headers, ping.as_bytes()).status, status, "{what}");
    }
}

#[test]
fn what_opened_a_session_that_is_over_opens_nothing() {
    let (mut client, mut agent, first) = start_over_http();
    let new = new_session(&mut client, &mut agent, &json!([]));
    let second = Server::of(&answer(&mut client, &mut agent, &new, "s2"));
    let (one, two) = (first.connect(), second.connect());
    let ping = request(1, "ping", &json!({})).to_string();
    let stranger = [("Mcp-Session-Id", one.id.as_str()), JSON];
    assert_eq!(
        second.send("POST", &stranger, ping.as_bytes()).status,
        404,
        "a session of another server"
    );
    let mixed = [("Authorization", first.authorization.as_str()), JSON];
    assert_eq!(
        send("POST", &second.url, &mixed, ping.as_bytes()).status,
        401,
        "the bearer of another server"
    );
    close(&mut client, &mut agent, "s1");
    for headers in [stranger, [("Accept", "*/*"), JSON]] {
        assert_eq!(first.send("POST", &headers, ping.as_bytes()).status, 401, "it is over");
    }
    assert_eq!(
        two.tool("session", &json!({}))["result"]["structuredContent"]["session"],
        "s2"
    );
}

#[test]
fn large_bodies_are_refused_or_take_their_turn() {
    let (mut client, mut agent, server) = start_over_http();
    let before = client.peak_memory().unwrap();
    let announced = format!(
        "{}Content-Length: {}\r\n\r\n",
        head(&server, "POST", &server.url),
        64 * MIB + 1
    );
    let in_pieces = format!(
        "{}Transfer-Encoding: chunked\r\n\r\n",
        head(&server, "POST", &server.url)
    );
    for (what, head) in [("announced", announced), ("in pieces", in_pieces)] {
        let mut stream = dial(&server);
        stream.write_all(head.as_bytes()).unwrap();
        let piece = [format!("{MIB:x}\r\n").into_bytes(), vec![b' '; MIB], b"\r\n".to_vec()].concat();
        // It may be refused before all of it was sent.
        while what == "in pieces" && stream.write_all(&piece).is_ok() {}
        if let Some(status) = status(&mut stream) {
            assert_eq!(status, 413, "{what}");
        }
    }
    // Many that are not quite too large, and no JSON.
    let body = vec![b'"'; 63 * MIB];
    thread::scope(|scope| {
        let all: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| server.send("POST", &[JSON], &body).status))
            .collect();
        traffic_goes_on(&mut client, &mut agent);
        let all: Vec<u16> = all.into_iter().map(|one| one.join().unwrap()).collect();
        // Whoever waits for longer than a body may take is sent away.
        assert!(all.iter().all(|status| matches!(status, 400 | 408)), "{all:?}");
        assert!(all.contains(&400), "none came through: {all:?}");
    });
    let stranger = server.url.replace("/mcp/", "/mcp/0");
    let refused = send("POST", &stranger, &[JSON], &body);
    assert_eq!(refused.status, 401);
    let taken = client.peak_memory().unwrap() - before;
    assert!(taken < MOST, "{taken} KiB were taken");
    echoes(&server);
}

/// The status that a connection is answered with; none if it was ended instead.
fn status(stream: &mut TcpStream) -> Option<u16> {
    let mut begin = [0; 12];
    stream.read_exact(&mut begin).ok()?;
    std::str::from_utf8(&begin[9..]).ok()?.parse().ok()
}

#[test]
fn slow_clients_are_sent_away_and_cost_nobody_else() {
    let (mut client, mut agent, server) = start_over_http();
    let mut slow_head = dial(&server);
    slow_head.write_all(b"POST /mcp/").unwrap();
    let mut slow_body = dial(&server);
    let head = format!("{}Content-Length: 100\r\n\r\n{{", head(&server, "POST", &server.url));
    slow_body.write_all(head.as_bytes()).unwrap();
    // Somebody who asks for much and reads nothing.
    let session = server.connect();
    let much = request(
        1,
        "tools/call",
        &json!({"name": "much", "arguments": {"bytes": 4_000_000}}),
    );
    let unread: Vec<_> = (0..16).map(|_| session.post(BOTH, &much)).collect();
    let news = session.get(&[]);
    traffic_goes_on(&mut client, &mut agent);
    echoes(&server);
    drop((unread, news));
    assert!(matches!(status(&mut slow_head), None | Some(408)));
    assert_eq!(status(&mut slow_body), Some(408));
    echoes(&server);
}

#[test]
fn a_thousand_connections_without_the_secret_keep_nobody_out() {
    open_many();
    let (mut client, mut agent, server) = start_over_http();
    let before = client.peak_memory().unwrap();
    let session = server.connect();
    let mut news = session.get(&[]);
    let mut strangers: Vec<_> = (0..1000).map(|_| dial(&server)).collect();
    traffic_goes_on(&mut client, &mut agent);
    echoes(&server);
    // Whoever came first has given way; nobody has to be waited for.
    for stranger in strangers.iter_mut().take(800) {
        assert_eq!(status(stranger), None);
    }
    assert!(client.peak_memory().unwrap() - before < 32 * 1024);
    // The agent's own stream was there before, and still is.
    let asks = request(
        "a",
        "tools/call",
        &json!({"name": "ask", "arguments": {"method": "roots/list"}}),
    );
    let asked = session.post(BOTH, &asks);
    assert_eq!(news.event().unwrap().1["method"], "roots/list");
    drop(asked);
}

#[test]
fn a_thousand_connections_with_the_secret_are_bounded() {
    open_many();
    let (mut client, mut agent, server) = start_over_http();
    let session = server.connect();
    let wait = request(
        1,
        "tools/call",
        &json!({"name": "wait", "arguments": {"milliseconds": 600_000}}),
    );
    let held: Vec<_> = (0..300).map(|_| session.post(BOTH, &wait)).collect();
    let refused = held.iter().filter(|answer| answer.status == 503).count();
    assert_eq!(refused, 300 - 64);
    let new = new_session(&mut client, &mut agent, &json!([]));
    let other = Server::of(&answer(&mut client, &mut agent, &new, "s2"));
    // Whoever has filled one server keeps nobody from another.
    echoes(&other);
    traffic_goes_on(&mut client, &mut agent);
    let mut more: Vec<_> = (0..1000)
        .map(|_| {
            let mut stream = dial(&server);
            let ping = format!("{}\r\n", head(&server, "PUT", &server.url));
            stream.write_all(ping.as_bytes()).unwrap();
            stream
        })
        .collect();
    for stream in &mut more {
        assert!(matches!(status(stream), None | Some(503)));
    }
    traffic_goes_on(&mut client, &mut agent);
    drop((held, more));
    // Their places are free as soon as their end was noticed.
    let begun = Instant::now();
    let ping = request(2, "ping", &json!({}));
    while session.post(JSON, &ping).status == 503 {
        assert!(begun.elapsed() < PATIENCE, "no place becomes free");
        thread::sleep(Duration::from_millis(20));
    }
    echoes(&server);
}

/// The socket that a shim comes back over.
fn socket(entry: &Value) -> PathBuf {
    entry["args"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .as_str()
        .unwrap()
        .into()
}

fn hello() -> Value {
    request(
        0,
        "initialize",
        &json!({"protocolVersion": "2025-06-18", "capabilities": {}}),
    )
}

#[test]
fn a_shim_without_the_secret_is_turned_away() {
    let (_client, _agent, entry) = start(&json!({}));
    let folder = socket(&entry).parent().unwrap().to_owned();
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let mut wrong = entry.clone();
    wrong["env"][0]["value"] = json!("0".repeat(32));
    assert!(Shim::start(&wrong).hear().is_none());
    wrong["env"] = json!([]);
    assert!(!Shim::start(&wrong).child.wait().unwrap().success());
    for junk in [
        vec![b'x'; MIB],
        b"\n".to_vec(),
        b"\xff\xfe\n".to_vec(),
        hello().to_string().into_bytes(),
    ] {
        let mut stream = UnixStream::connect(socket(&entry)).unwrap();
        // It may be sent away before all of it was sent.
        let _ = stream
            .write_all(&junk)
            .and_then(|()| stream.shutdown(std::net::Shutdown::Write));
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        assert_eq!(said, b"");
    }
    let mut shim = Shim::start(&entry);
    shim.send(&hello());
    assert_eq!(shim.hear().unwrap()["id"], 0);
}

#[test]
fn a_thousand_connections_to_the_socket_keep_no_shim_out() {
    open_many();
    let (mut client, mut agent, entry) = start(&json!({}));
    let strangers: Vec<_> = (0..1000)
        .map(|_| UnixStream::connect(socket(&entry)).unwrap())
        .collect();
    traffic_goes_on(&mut client, &mut agent);
    let mut shim = Shim::start(&entry);
    shim.send(&hello());
    assert_eq!(shim.hear().unwrap()["id"], 0);
    drop(strangers);
}

#[test]
fn a_line_that_is_too_long_gets_an_answer_and_the_next_one_is_heard() {
    let (mut client, mut agent, entry) = start(&json!({}));
    let before = client.peak_memory().unwrap();
    let mut shim = Shim::start(&entry);
    shim.send(&hello());
    assert_eq!(shim.hear().unwrap()["id"], 0);
    let begin = r#"{"jsonrpc":"2.0","id":"long","method":"tools/call","params":{"text":""#;
    shim.send_raw(begin.as_bytes());
    for _ in 0..80 {
        shim.send_raw(&vec![b'x'; MIB]);
    }
    shim.send_raw(b"\"}}\n");
    let refused = shim.hear().unwrap();
    assert_eq!(
        (&refused["id"], &refused["error"]["code"]),
        (&json!("long"), &json!(-32600)),
        "{refused}"
    );
    for junk in ["\u{0}\n", "[1,2]\n", "nonsense\n"] {
        shim.send_raw(junk.as_bytes());
        assert!(shim.hear().unwrap()["error"]["code"].is_number(), "{junk}");
    }
    shim.send(&request("next", "ping", &json!({})));
    assert_eq!(shim.hear().unwrap()["id"], "next");
    let taken = client.peak_memory().unwrap() - before;
    assert!(taken < MOST, "{taken} KiB were taken");
    traffic_goes_on(&mut client, &mut agent);
}

#[test]
fn a_session_that_is_set_up_again_and_again_does_not_pile_up_servers() {
    let (mut client, mut agent, new) = set_up(&offering(), &json!({"http": true}), &json!([]));
    let first = Server::of(&answer(&mut client, &mut agent, &new, "s1"));
    let mut servers = Vec::new();
    for number in 0..20 {
        let params = json!({"sessionId": "s1", "cwd": "/", "mcpServers": []});
        client.send_json(&request(number, "session/load", &params));
        let load = agent.expect();
        servers.push(Server::of(&load["params"]["mcpServers"][0]));
        agent.answer(&load, &json!({}));
        assert_eq!(client.expect()["id"], number);
    }
    let ping = request(1, "ping", &json!({}));
    assert_eq!(first.post(&[JSON], &ping).status, 401, "the oldest is gone");
    let usable = servers
        .iter()
        .filter(|server| server.post(&[JSON], &ping).status == 200);
    assert_eq!(usable.count(), 8);
    echoes(servers.last().unwrap());
}
