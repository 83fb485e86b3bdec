//! What a client hears from its server besides answers. A request of the server is answered in any case: by the client, or, if that cannot
//! hear it or nobody wants the answer any more, here.

use super::super::event_log::EventLog;
use super::super::{CANCELLED, INTERNAL, Shared, lock};
use super::{Client, MAX_OPEN, Open};
use crate::wire::edit::{self, Edit};
use crate::wire::envelope::error_text;
use crate::wire::scan;
use crate::wire::text::Text;
use serde_json::{Value, json};
use std::sync::Arc;

impl Client {
    /// The server says something: a request if it has a call.
    pub(in super::super) fn hear(&self, shared: &Shared, call: Option<&str>, params: &Text) {
        let refuse = |reason: &str| shared.answered(call, Err(error_text(INTERNAL, reason, None)), None);
        let method = scan::string_member(params, "method").unwrap_or_default();
        let mut inner = scan::find(params, "/params").map(|range| params.slice(range));
        let mut message = json!({"jsonrpc": "2.0", "method": method});
        let id = call.map(|_| self.number());
        if let (Some(call), Some(id)) = (call, id) {
            message["id"] = id.into();
            let mut state = lock(&self.state);
            if state.is_over || state.calls.len() >= MAX_OPEN {
                drop(state);
                return refuse("the MCP client is gone, or too many requests to it have no answer yet");
            }
            state.calls.insert(id, call.to_owned());
        }
        let token = inner.as_ref().filter(|_| method == "notifications/progress");
        let token = token.and_then(|inner| inner.slice(scan::find(inner, "/progressToken")?).decode::<Value>());
        let request = scan::string_member(params, "requestId").and_then(|request| request.parse().ok());
        let is_said = self.stream_for(token.as_ref(), request).is_some_and(|(stream, token)| {
            if let (Some(token), Some(progress)) = (token, &inner) {
                let put = Edit::Replace("/progressToken".to_owned(), Text::of(&token));
                inner = edit::one(progress, &put).ok().or(inner.take());
            }
            let mut text = message.to_string();
            if let Some(inner) = &inner {
                text.pop();
                text.push_str(",\"params\":");
                text.push_str(&inner.to_text());
                text.push('}');
            }
            stream.push(&text)
        });
        if !is_said
            && let Some(id) = id
            && lock(&self.state).calls.remove(&id).is_some()
        {
            refuse("the MCP client listens to nothing that this request could come over");
        }
    }

    /// Where something goes that the server says: along with the request that it belongs to, or over the stream for all else, or, if
    /// nobody has ever opened that, along with any request. Streams that nobody reads, such as those of answers in one piece, are left
    /// out. Also gives the token that the client has in the place of this one.
    fn stream_for(&self, token: Option<&Value>, request: Option<u64>) -> Option<(Arc<EventLog>, Option<Value>)> {
        let state = lock(&self.state);
        let mut open = state.open.iter().rev().filter(|(_, open)| open.stream.is_heard());
        let is_its_token = |open: &Open| token.is_some() && open.token.as_ref().map(|(_, sent)| sent) == token;
        let belongs = |(number, open): &(&u64, &Open)| Some(**number) == request || is_its_token(open);
        if let Some((_, open)) = open.clone().find(belongs) {
            let own = open
                .token
                .as_ref()
                .filter(|(own, sent)| own != sent && is_its_token(open));
            return Some((open.stream.clone(), own.map(|(own, _)| own.clone())));
        }
        let any = || open.next().map(|(_, open)| open.stream.clone());
        let main = state.main.clone().filter(|main| main.is_heard());
        Some((main.or_else(any)?, None))
    }

    /// Its server gives a request up; that has an answer then.
    pub(in super::super) fn give_up(&self, shared: &Shared, call: u64) {
        let call = call.to_string();
        let mut state = lock(&self.state);
        let id = state.calls.iter().find(|(_, one)| **one == call).map(|(id, _)| *id);
        let Some(id) = id else { return };
        state.calls.remove(&id);
        drop(state);
        let params = json!({"requestId": id, "reason": "the server does not need it any more"});
        let message = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        if let Some((stream, _)) = self.stream_for(None, None) {
            stream.push(&message.to_string());
        }
        shared.answered(Some(&call), Err(error_text(CANCELLED, "cancelled", None)), None);
    }
}
