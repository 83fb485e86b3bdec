//! A plain client of HTTP, one connection a request, that says exactly what a test wants and reads answers and streams of events.

use crate::PATIENCE;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// An answer, up to its body.
pub struct Answer {
    /// The status.
    pub status: u16,
    headers: Vec<(String, String)>,
    stream: BufReader<TcpStream>,
}

/// Sends a request to `http://127.0.0.1:PORT/…`, with exactly these headers besides `Connection` and the length of the body.
pub fn send(method: &str, url: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let rest = url.strip_prefix("http://").expect("a plain address");
    let (authority, path) = rest.split_once('/').expect("an address with a path");
    let mut stream = TcpStream::connect(authority).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket has timeouts");
    let mut head = format!(
        "{method} /{path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        head.push_str(&format!("Host: {authority}\r\n"));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    // Whoever refuses a request early need not read all of it.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
    let mut stream = BufReader::new(stream);
    let status = line(&mut stream);
    let status = status.split(' ').nth(1).and_then(|status| status.parse().ok());
    let mut answer = Answer {
        status: status.expect("the answer begins with a status"),
        headers: Vec::new(),
        stream,
    };
    loop {
        let line = line(&mut answer.stream);
        let Some((name, value)) = line.split_once(':') else {
            return answer;
        };
        answer
            .headers
            .push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

fn line(stream: &mut impl BufRead) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).expect("the connection stays");
    line.trim_end().to_owned()
}

impl Answer {
    /// A header.
    pub fn header(&self, wanted: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(name, _)| name == wanted)
            .map(|(_, value)| value.as_str())
    }

    /// The next piece of a body that comes in pieces; none at the end.
    fn piece(&mut self) -> Option<Vec<u8>> {
        let size = line(&mut self.stream);
        let size = usize::from_str_radix(&size, 16).unwrap_or(0);
        let mut piece = vec![0; size + 2];
        self.stream.read_exact(&mut piece).ok()?;
        piece.truncate(size);
        (size > 0).then_some(piece)
    }

    /// The whole body.
    pub fn body(mut self) -> String {
        let mut body = Vec::new();
        match self
            .header("content-length")
            .and_then(|length| length.parse::<u64>().ok())
        {
            Some(length) => {
                let mut stream = (&mut self.stream).take(length);
                stream.read_to_end(&mut body).expect("the body comes");
            }
            None => {
                while let Some(piece) = self.piece() {
                    body.extend(piece);
                }
            }
        }
        String::from_utf8(body).expect("the body is text")
    }

    /// The body as JSON.
    pub fn json(self) -> Value {
        let body = self.body();
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
    }

    /// The next event of a stream: its id and what it carries; none at the end. Each comes in a piece of its own, and may carry
    /// nothing.
    pub fn event(&mut self) -> Option<(String, Value)> {
        loop {
            let piece = String::from_utf8(self.piece()?).expect("events are text");
            let field = |name: &str| piece.lines().find_map(|line| line.strip_prefix(name));
            if let (Some(id), Some(data)) = (field("id: "), field("data: ")) {
                let data = match data {
                    "" => Value::Null,
                    data => serde_json::from_str(data).expect("events carry JSON"),
                };
                return Some((id.to_owned(), data));
            }
        }
    }
}
