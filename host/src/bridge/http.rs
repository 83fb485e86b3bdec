//! The HTTP side of the bridge: MCP's streamable transport. Lets in whoever knows a server's secret and nobody else; what is asked is the
//! business of the client that asks.

use super::client::{Asking, Client};
use super::door::{self, Guest};
use super::event_log::{Cursor, EventLog};
use super::events::{EndsWithThis, Events};
use super::message::{self, MAX_MESSAGE, Request, Sent, Wrong, failure};
use super::served::{Served, secret};
use super::{INTERNAL, LARGE, Room, Shared, lock};
use crate::wire::envelope::error_text;
use crate::wire::text::Text;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::value::RawValue;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// How long it may take until the head of a request was sent, since the last one on the same connection too, and how long its body.
const HEAD_TIME: Duration = Duration::from_secs(300);
const BODY_TIME: Duration = Duration::from_secs(30);

/// Bytes of a request's head.
const MAX_HEAD: usize = 32 * 1024;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const REVISION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Serves until it is aborted.
pub(super) async fn listen(listener: TcpListener, port: u16, shared: Arc<Shared>) {
    door::receive(listener, |stream, guest| serve(stream, guest, port, shared.clone())).await;
}

async fn serve(stream: TcpStream, guest: Guest, port: u16, shared: Arc<Shared>) {
    let guest = &guest;
    let shared = &shared;
    let service =
        service_fn(move |request| async move { Ok::<_, Infallible>(answer(request, port, guest, shared).await) });
    let mut server = hyper::server::conn::http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(MAX_HEAD);
    tokio::select! {
        served = server.serve_connection(TokioIo::new(stream), service) => {
            if let Err(error) = served {
                tracing::debug!("a connection to the bridge of MCP ended: {error}");
            }
        }
        () = guest.is_sent_away() => {}
    }
}

async fn answer(request: hyper::Request<Incoming>, port: u16, guest: &Guest, shared: &Arc<Shared>) -> Answer {
    if !is_from_here(request.headers(), port) {
        return plain(StatusCode::FORBIDDEN, "this is for the agent on this computer");
    }
    let secret = request.uri().path().strip_prefix("/mcp/").unwrap_or_default();
    let served = lock(&shared.served).get(&blake3::hash(secret.as_bytes())).cloned();
    let authorization = text_of(request.headers(), &header::AUTHORIZATION);
    let Some(served) = served.filter(|served| served.lets_in(authorization)) else {
        return plain(
            StatusCode::UNAUTHORIZED,
            "this needs the secret that the agent was given",
        );
    };
    if !guest.stays(&served.places) {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "too many connections are open");
    }
    match *request.method() {
        Method::POST => post(request, shared, &served).await.unwrap_or_else(|refusal| refusal),
        Method::GET => get(request.headers(), &served),
        Method::DELETE => match client(request.headers(), &served) {
            Some(client) => {
                client.end(shared);
                plain(StatusCode::OK, "")
            }
            None => without_session(request.headers()),
        },
        _ => not_allowed(),
    }
}

/// Whether the request is meant for this address, and comes from no page of elsewhere: a browser that was led here says where from.
fn is_from_here(headers: &HeaderMap, port: u16) -> bool {
    let here = |authority: &str| {
        let (host, at) = authority.rsplit_once(':').unwrap_or((authority, "80"));
        at == port.to_string() && matches!(host, "127.0.0.1" | "localhost" | "[::1]")
    };
    let host = text_of(headers, &header::HOST).is_some_and(here);
    let origin = match headers.get(header::ORIGIN) {
        Some(origin) => origin
            .to_str()
            .is_ok_and(|origin| origin.strip_prefix("http://").is_some_and(here)),
        None => true,
    };
    host && origin
}

fn text_of<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

fn client(headers: &HeaderMap, served: &Served) -> Option<Arc<Client>> {
    served.client(text_of(headers, &SESSION_ID)?)
}

/// Reads a body. A large one waits for room, so that many of them take no more memory than a few.
async fn read(mut body: Incoming, shared: &Shared) -> Result<(Bytes, Room), Answer> {
    let too_large = || plain(StatusCode::PAYLOAD_TOO_LARGE, "the message is larger than 64 MiB");
    let announced = body.size_hint().lower();
    if announced > MAX_MESSAGE as u64 {
        return Err(too_large());
    }
    let (mut all, mut room) = (BytesMut::new(), None);
    let reading = async {
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                return Err(plain(StatusCode::BAD_REQUEST, "the message is broken off"));
            };
            let Ok(data) = frame.into_data() else { continue };
            if all.len() + data.len() > MAX_MESSAGE {
                return Err(too_large());
            }
            if all.len() + data.len() > LARGE && room.is_none() {
                room = shared.room().await;
                // Growing step by step would take more.
                let whole = usize::try_from(announced).unwrap_or(MAX_MESSAGE).min(MAX_MESSAGE);
                all.reserve(whole.saturating_sub(all.len()));
            }
            all.extend_from_slice(&data);
        }
        Ok(())
    };
    match tokio::time::timeout(BODY_TIME, reading).await {
        Ok(read) => read?,
        Err(_) => {
            return Err(plain(
                StatusCode::REQUEST_TIMEOUT,
                "the message took longer than 30 seconds",
            ));
        }
    }
    Ok((all.freeze(), room))
}

/// Answers what was posted, or says what is wrong with it.
async fn post(request: hyper::Request<Incoming>, shared: &Arc<Shared>, served: &Arc<Served>) -> Result<Answer, Answer> {
    let (head, body) = request.into_parts();
    let (body, room) = read(body, shared).await?;
    let wrong = |wrong: Wrong| failed(StatusCode::BAD_REQUEST, None, wrong);
    let sent = Sent::read(&body).map_err(wrong)?;
    drop(body);
    let known = client(&head.headers, served);
    if known.is_none() && head.headers.contains_key(SESSION_ID) {
        // The client begins anew then.
        let reason = "this session is over, or was never there".to_owned();
        return Err(failed(StatusCode::NOT_FOUND, sent.id(), (-32001, reason)));
    }
    if let (Some(client), Some(revision)) = (&known, text_of(&head.headers, &REVISION))
        && !client.speaks(revision)
    {
        let reason =
            "this is not the revision of MCP that was agreed on, nor another one that is known here".to_owned();
        return Err(failed(StatusCode::BAD_REQUEST, sent.id(), (-32600, reason)));
    }
    let takes_batches = known.as_ref().is_some_and(|client| client.takes_batches());
    let (parts, is_batch) = sent.parts(takes_batches, &room).map_err(wrong)?;
    drop(room);
    let listener = known.clone().or_else(|| served.plain());
    let mut requests = Vec::new();
    for part in parts {
        match (part, &listener) {
            (message::Kind::Request(request), _) => requests.push(request),
            (part, Some(listener)) => drop(listener.take(shared, part).await),
            // Nobody is there who could be told.
            (_, None) => {}
        }
    }
    let Some(first) = requests.first() else {
        return Ok(plain(StatusCode::ACCEPTED, ""));
    };
    let caller = match known {
        Some(client) => Caller {
            client,
            new: None,
            is_known: true,
        },
        None => connected(shared, served, &first.method)
            .await
            .map_err(|error| body_of(StatusCode::OK, JSON, message::answer(first.id.get(), &Err(error))))?,
    };
    Ok(asked(shared, caller, requests, is_batch, &head.headers).await)
}

/// Who asks.
struct Caller {
    client: Arc<Client>,
    /// The id of a session that begins with this.
    new: Option<String>,
    /// Whether it has a session that it could come back to.
    is_known: bool,
}

/// The client of a request without a session: a new one for `initialize`, with its id, and otherwise the one for all such requests.
async fn connected(shared: &Arc<Shared>, served: &Arc<Served>, method: &str) -> Result<Caller, Text> {
    if method == "initialize" {
        let id = secret().map_err(|error| error_text(INTERNAL, &error.to_string(), None))?;
        let client = Client::connect(shared, served.clone(), false, None).await?;
        if let Some(one) = served.add(&id, client.clone()) {
            one.end(shared);
        }
        return Ok(Caller {
            client,
            new: Some(id),
            is_known: true,
        });
    }
    let client = match served.plain() {
        Some(client) => client,
        None => {
            let client = Client::connect(shared, served.clone(), true, None).await?;
            let kept = served.set_plain(client.clone());
            if !kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, &client)) {
                client.end(shared);
            }
            kept.ok_or_else(|| error_text(INTERNAL, "the session that this server was for is over", None))?
        }
    };
    Ok(Caller {
        client,
        new: None,
        is_known: false,
    })
}

/// Asks, and answers with a stream of events, or with one piece of JSON if the client wants nothing else.
async fn asked(
    shared: &Arc<Shared>,
    caller: Caller,
    requests: Vec<Request>,
    is_batch: bool,
    headers: &HeaderMap,
) -> Answer {
    let Caller { client, new, is_known } = caller;
    let accepted = text_of(headers, &header::ACCEPT);
    // Whoever says nothing takes the simplest.
    let streams = accepted.is_some_and(|accepted| accepted.contains(EVENTS));
    let stream = client.new_stream();
    let is_primed = is_known && client.is_primed();
    // From now on it counts as one that is read.
    let cursor = streams.then(|| stream.read(None));
    let begin = |request| client.begin(shared, request, &stream);
    let begun: Vec<Asking> = requests.into_iter().map(begin).collect();
    let work = {
        let (stream, client) = (stream.clone(), client.clone());
        async move {
            let mut asked: JoinSet<String> = begun.into_iter().map(Asking::answer).collect();
            let mut answers = Vec::new();
            while let Some(answer) = asked.join_next().await {
                match answer {
                    // Whoever reads too little has lost it.
                    Ok(answer) if streams => drop(stream.push(&answer)),
                    Ok(answer) => answers.push(answer),
                    Err(error) => tracing::error!("a request to an MCP server came to nothing: {error}"),
                }
            }
            if streams && is_known {
                client.keep(&stream);
            }
            stream.end();
            answers
        }
    };
    // It goes on when the connection breaks, if the client may come back for the answer.
    let mut work = tokio::spawn(work);
    let ends_with_this = (!is_known).then(|| EndsWithThis(work.abort_handle()));
    let begins = new.is_some();
    // A session has an id if it has begun, so that answer comes before all else.
    let answers = match begins || cursor.is_none() {
        true => (&mut work).await.unwrap_or_default(),
        false => Vec::new(),
    };
    let has_begun = client.has_begun();
    if begins && !has_begun {
        client.end(shared);
    }
    let mut answer = match cursor {
        Some(cursor) => events(is_primed, stream, cursor, ends_with_this),
        None if answers.is_empty() => plain(StatusCode::INTERNAL_SERVER_ERROR, "there is no answer"),
        None => body_of(StatusCode::OK, JSON, message::together(&answers, is_batch)),
    };
    if let Some(id) = new.filter(|_| has_begun).and_then(|id| HeaderValue::from_str(&id).ok()) {
        answer.headers_mut().insert(SESSION_ID, id);
    }
    answer
}

fn get(headers: &HeaderMap, served: &Arc<Served>) -> Answer {
    let wants = text_of(headers, &header::ACCEPT).is_some_and(|accepted| accepted.contains(EVENTS));
    let Some(client) = client(headers, served) else {
        return without_session(headers);
    };
    if !wants {
        return not_allowed();
    }
    let is_primed = client.is_primed();
    let last = text_of(headers, &LAST_EVENT).and_then(|last| {
        let (stream, event) = last.split_once('-')?;
        Some((stream.parse().ok()?, event.parse().ok()?))
    });
    match last {
        Some((stream, event)) => match client.stream(stream) {
            Some(stream) => events(is_primed, stream.clone(), stream.read(Some(event)), None),
            None => plain(StatusCode::NOT_FOUND, "this stream is over, or was never there"),
        },
        None => {
            let main = client.main();
            events(is_primed, main.clone(), main.read(None), None)
        }
    }
}

/// What is said to somebody whose session is not there.
fn without_session(headers: &HeaderMap) -> Answer {
    match headers.contains_key(SESSION_ID) {
        true => plain(StatusCode::NOT_FOUND, "this session is over, or was never there"),
        false => not_allowed(),
    }
}

fn not_allowed() -> Answer {
    let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "");
    answer
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static("POST, GET, DELETE"));
    answer
}

fn body_of(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()).boxed());
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

fn plain(status: StatusCode, text: &'static str) -> Answer {
    body_of(status, "text/plain; charset=utf-8", text)
}

fn failed(status: StatusCode, id: Option<&RawValue>, wrong: Wrong) -> Answer {
    body_of(status, JSON, failure(id.map_or("null", RawValue::get), &wrong))
}

fn events(is_primed: bool, log: Arc<EventLog>, cursor: Cursor, work: Option<EndsWithThis>) -> Answer {
    let events = match is_primed {
        true => Events::primed(log, cursor),
        false => Events::new(log, cursor, work),
    };
    let mut answer = Response::new(BoxBody::new(events));
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(EVENTS));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    answer
}
