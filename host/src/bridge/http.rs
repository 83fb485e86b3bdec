//! The HTTP side of the bridge: MCP's streamable transport. Lets in whoever knows a server's secret and nobody else; what is asked is the
//! business of the client that asks.

use super::client::{Client, Request};
use super::event_log::{Cursor, EventLog};
use super::message::{Kind, MAX_MESSAGE, Message, failure};
use super::served::{Served, secret};
use super::{Shared, lock};
use crate::wire::text::Text;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited, combinators::BoxBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::value::RawValue;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Connections at a time: those of an agent's clients, several each.
const MAX_CONNECTIONS: usize = 256;

/// How long the head of a request may take, and its body.
const HEAD_TIME: Duration = Duration::from_secs(10);
const BODY_TIME: Duration = Duration::from_secs(30);

/// How often a stream on which nothing is said shows that it is still there. Agents give up after a minute or more.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Serves until it is aborted.
pub(super) async fn listen(listener: TcpListener, port: u16, shared: Arc<Shared>) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // They end with this.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(permit) = room.clone().acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("a connection to the bridge of MCP failed: {error}");
                // Out of descriptors, perhaps; that passes.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let shared = shared.clone();
        connections.spawn(async move {
            let _permit = permit;
            let service = service_fn(move |request| {
                let shared = shared.clone();
                async move { Ok::<_, Infallible>(answer(request, port, &shared).await) }
            });
            let mut server = hyper::server::conn::http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
            if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!("a connection to the bridge of MCP ended: {error}");
            }
        });
    }
}

async fn answer(request: hyper::Request<Incoming>, port: u16, shared: &Arc<Shared>) -> Answer {
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
    match *request.method() {
        Method::POST => post(request, shared, &served).await,
        Method::GET => get(request.headers(), &served),
        Method::DELETE => match client(request.headers(), &served) {
            Some(client) => {
                client.end(shared);
                plain(StatusCode::OK, "")
            }
            None => not_allowed(),
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

async fn post(request: hyper::Request<Incoming>, shared: &Arc<Shared>, served: &Arc<Served>) -> Answer {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, MAX_MESSAGE).collect();
    let body = match tokio::time::timeout(BODY_TIME, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => {
            return plain(
                StatusCode::PAYLOAD_TOO_LARGE,
                "the message is broken off, or larger than 64 MiB",
            );
        }
        Err(_) => return plain(StatusCode::REQUEST_TIMEOUT, "the message took longer than 30 seconds"),
    };
    let message = match Message::read(&body) {
        Ok(message) => message,
        Err((code, reason)) => return failed(StatusCode::BAD_REQUEST, None, code, &reason),
    };
    let known = client(&head.headers, served);
    if known.is_none() && head.headers.contains_key(SESSION_ID) {
        // The client begins anew then.
        let reason = "this session is over, or was never there";
        return failed(StatusCode::NOT_FOUND, message.id.as_deref(), -32001, reason);
    }
    match message.kind() {
        Ok(Kind::Request(request)) => {
            let client = match known {
                Some(client) => Ok((client, None)),
                None => connected(shared, served, &request.method).await,
            };
            match client {
                Ok((client, new)) => asked(shared, &client, new, request, &head.headers).await,
                Err(error) => {
                    let (id, error) = (request.id.get(), error.to_text());
                    body_of(
                        StatusCode::OK,
                        JSON,
                        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}"),
                    )
                }
            }
        }
        Ok(Kind::Notification(method, params)) => {
            if let Some(client) = known.or_else(|| served.plain()) {
                client.tell(shared, &method, params.as_deref()).await;
            }
            plain(StatusCode::ACCEPTED, "")
        }
        Ok(Kind::Response(id, outcome)) => {
            if let (Some(client), Some(id)) = (known.or_else(|| served.plain()), id) {
                client.answered(shared, id, outcome);
            }
            plain(StatusCode::ACCEPTED, "")
        }
        Err((code, reason)) => failed(StatusCode::BAD_REQUEST, None, code, &reason),
    }
}

/// The client of a request without a session: a new one for `initialize`, with its id, and otherwise the one for all such requests.
async fn connected(
    shared: &Arc<Shared>,
    served: &Arc<Served>,
    method: &str,
) -> Result<(Arc<Client>, Option<String>), Text> {
    let fail = |error: std::io::Error| crate::wire::envelope::error_text(-32603, &error.to_string(), None);
    if method == "initialize" {
        let id = secret().map_err(fail)?;
        let client = Client::connect(shared, served.clone()).await?;
        if let Some(oldest) = served.add(&id, client.clone()) {
            oldest.end(shared);
        }
        return Ok((client, Some(id)));
    }
    match served.plain() {
        Some(client) if !client.is_over() => Ok((client, None)),
        _ => {
            let client = Client::connect(shared, served.clone()).await?;
            let kept = served.set_plain(client.clone());
            if !Arc::ptr_eq(&kept, &client) {
                client.end(shared);
            }
            Ok((kept, None))
        }
    }
}

/// Asks, and answers with a stream of events, or with one piece of JSON if the client wants nothing else.
async fn asked(
    shared: &Arc<Shared>,
    client: &Arc<Client>,
    new: Option<String>,
    request: Request,
    headers: &HeaderMap,
) -> Answer {
    let accepted = text_of(headers, &header::ACCEPT);
    // Whoever says nothing takes the simplest.
    let streams = accepted.is_some_and(|accepted| accepted.contains(EVENTS));
    let stream = client.new_stream();
    let work = {
        let (shared, client, stream) = (shared.clone(), client.clone(), stream.clone());
        async move {
            client.ask(&shared, request, &stream).await;
            stream.end();
        }
    };
    // It goes on when the connection breaks: the client may come back for the answer.
    let work = tokio::spawn(work);
    let mut answer = if streams {
        events(stream.clone(), stream.read(None))
    } else {
        let _ = work.await;
        let mut cursor = stream.read(None);
        let mut last = None;
        while let Some(event) = stream.next(&mut cursor).await {
            last = Some(event);
        }
        body_of(StatusCode::OK, JSON, last.map_or(Bytes::new(), |(_, answer)| answer))
    };
    if let Some(id) = new.and_then(|id| HeaderValue::from_str(&id).ok()) {
        answer.headers_mut().insert(SESSION_ID, id);
    }
    answer
}

fn get(headers: &HeaderMap, served: &Arc<Served>) -> Answer {
    let wants = text_of(headers, &header::ACCEPT).is_some_and(|accepted| accepted.contains(EVENTS));
    let Some(client) = client(headers, served).filter(|_| wants) else {
        return not_allowed();
    };
    let last = text_of(headers, &LAST_EVENT).and_then(|last| {
        let (stream, event) = last.split_once('-')?;
        Some((stream.parse().ok()?, event.parse().ok()?))
    });
    match last {
        Some((stream, event)) => match client.stream(stream) {
            Some(stream) => events(stream.clone(), stream.read(Some(event))),
            None => plain(StatusCode::NOT_FOUND, "this stream is over, or was never there"),
        },
        None => {
            let main = client.main();
            events(main.clone(), main.read(None))
        }
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

fn failed(status: StatusCode, id: Option<&RawValue>, code: i64, reason: &str) -> Answer {
    body_of(status, JSON, failure(id.map_or("null", RawValue::get), code, reason))
}

fn events(log: Arc<EventLog>, cursor: Cursor) -> Answer {
    let stream = Events {
        reading: read(log, cursor),
    };
    let mut answer = Response::new(BoxBody::new(stream));
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(EVENTS));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    answer
}

type Reading = Pin<Box<dyn Future<Output = Option<(Bytes, Arc<EventLog>, Cursor)>> + Send + Sync>>;

/// The next event; something that says nothing if there is none for a while.
fn read(log: Arc<EventLog>, mut cursor: Cursor) -> Reading {
    Box::pin(async move {
        let next = tokio::time::timeout(KEEP_ALIVE, log.next(&mut cursor)).await;
        let frame = match next {
            Ok(event) => framed(log.number, event?),
            Err(_) => Bytes::from_static(b": \n\n"),
        };
        Some((frame, log, cursor))
    })
}

fn framed(stream: u64, (number, message): (u64, Bytes)) -> Bytes {
    let mut frame = format!("id: {stream}-{number}\nevent: message\ndata: ").into_bytes();
    frame.extend_from_slice(&message);
    frame.extend_from_slice(b"\n\n");
    frame.into()
}

/// The body of a stream of events.
struct Events {
    reading: Reading,
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.reading.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Ready(Some((event, log, cursor))) => {
                self.reading = read(log, cursor);
                Poll::Ready(Some(Ok(Frame::data(event))))
            }
        }
    }
}
