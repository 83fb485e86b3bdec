//! A native process proxy for the reference conductor, with the same edits as the guests that Consort is measured with. Its argument
//! says which:
//! - `updates`: puts `>` before the text of each `agent_message_chunk`;
//! - `prompts`: puts a text block in front of each prompt;
//! - `all`: both, and puts `>` before the title in each question for permission;
//! - `none`: registers nothing, so the SDK passes everything on.

use agent_client_protocol::v1::schema::{
    ContentBlock, PromptRequest, PromptResponse, RequestPermissionRequest, RequestPermissionResponse,
    SessionNotification, SessionUpdate, TextContent,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{
    Agent, Client, Conductor, Error, Proxy, Stdio, on_receive_notification, on_receive_request,
};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let proxy = Proxy.v1().name("native-proxy");
    match std::env::args().nth(1).as_deref() {
        Some("updates") => {
            proxy
                .on_receive_notification_from(
                    Agent,
                    async |update, connection| edit_update(update, connection),
                    on_receive_notification!(),
                )
                .connect_to(Stdio::new())
                .await
        }
        Some("prompts") => {
            proxy
                .on_receive_request_from(
                    Client,
                    async |prompt, responder, connection| edit_prompt(prompt, responder, connection),
                    on_receive_request!(),
                )
                .connect_to(Stdio::new())
                .await
        }
        Some("all") => {
            proxy
                .on_receive_notification_from(
                    Agent,
                    async |update, connection| edit_update(update, connection),
                    on_receive_notification!(),
                )
                .on_receive_request_from(
                    Client,
                    async |prompt, responder, connection| edit_prompt(prompt, responder, connection),
                    on_receive_request!(),
                )
                .on_receive_request_from(
                    Agent,
                    async |question, responder, connection| edit_question(question, responder, connection),
                    on_receive_request!(),
                )
                .connect_to(Stdio::new())
                .await
        }
        Some("none") => proxy.connect_to(Stdio::new()).await,
        _ => Err(Error::internal_error().data("name what is edited: updates, prompts, all or none")),
    }
}

fn edit_update(mut update: SessionNotification, connection: ConnectionTo<Conductor>) -> Result<(), Error> {
    if let SessionUpdate::AgentMessageChunk(chunk) = &mut update.update
        && let ContentBlock::Text(text) = &mut chunk.content
    {
        text.text.insert(0, '>');
    }
    connection.send_notification_to(Client, update)
}

fn edit_prompt(
    mut prompt: PromptRequest,
    responder: Responder<PromptResponse>,
    connection: ConnectionTo<Conductor>,
) -> Result<(), Error> {
    prompt
        .prompt
        .insert(0, ContentBlock::Text(TextContent::new("a block of context")));
    connection.send_request_to(Agent, prompt).forward_response_to(responder)
}

fn edit_question(
    mut question: RequestPermissionRequest,
    responder: Responder<RequestPermissionResponse>,
    connection: ConnectionTo<Conductor>,
) -> Result<(), Error> {
    if let Some(title) = &mut question.tool_call.fields.title {
        title.insert(0, '>');
    }
    connection
        .send_request_to(Client, question)
        .forward_response_to(responder)
}
