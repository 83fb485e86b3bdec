//! What the demo agent does in a turn: everything is settled when the prompt arrives, apart from what a permission changes.

use super::FAKE_TOKEN;
use agent_client_protocol_schema::v1::{
    ContentBlock, ContentChunk, EmbeddedResourceResource, PermissionOption, PermissionOptionKind, Plan, PlanEntry,
    PlanEntryPriority, PlanEntryStatus, RequestPermissionOutcome, SessionUpdate, StopReason, TextContent, ToolCall,
    ToolCallContent, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use serde_json::value::RawValue;
use std::collections::VecDeque;

/// How many characters of text a chunk has; small, so that a short answer is streamed too and a token is split.
const CHUNK: usize = 24;
/// How many characters of a block are repeated.
const REPEATED: usize = 2000;

const TOOL_CALL: &str = "demo-tool-1";
const ALLOW: &str = "demo-allow";
const REJECT: &str = "demo-reject";

/// One thing that the agent does.
#[derive(Debug)]
pub(super) enum Step {
    Update(Box<SessionUpdate>),
    Ask(Box<Permission>),
    End(StopReason),
}

/// A question for the user.
#[derive(Debug)]
pub(super) struct Permission {
    pub(super) tool_call: ToolCallUpdate,
    pub(super) options: Vec<PermissionOption>,
}

/// A prompt that has not been answered.
pub(super) struct Turn {
    request: Box<RawValue>,
    steps: VecDeque<Step>,
    /// The id of a request of its own that the turn waits for.
    waiting: Option<u64>,
}

impl Turn {
    pub(super) fn new(request: Box<RawValue>, prompt: &[ContentBlock]) -> Self {
        Self {
            request,
            steps: steps(prompt),
            waiting: None,
        }
    }

    /// The id of the prompt's request.
    pub(super) fn request(&self) -> &RawValue {
        &self.request
    }

    /// Whether there is something to do now.
    pub(super) fn is_active(&self) -> bool {
        self.waiting.is_none() && !self.steps.is_empty()
    }

    pub(super) fn next(&mut self) -> Option<Step> {
        if self.waiting.is_some() {
            return None;
        }
        self.steps.pop_front()
    }

    pub(super) fn wait_for(&mut self, request: u64) {
        self.waiting = Some(request);
    }

    pub(super) fn waits_for(&self, id: &str) -> bool {
        self.waiting.is_some_and(|number| number.to_string() == id)
    }

    /// Goes on after the answer to the turn's question.
    pub(super) fn permission(&mut self, outcome: &RequestPermissionOutcome) {
        self.waiting = None;
        let allowed = match outcome {
            RequestPermissionOutcome::Selected(selected) => &*selected.option_id.0 == ALLOW,
            _ => {
                self.steps.clear();
                self.steps.push_back(Step::End(StopReason::Cancelled));
                return;
            }
        };
        let (status, text) = if allowed {
            (ToolCallStatus::Completed, "echo says: 42")
        } else {
            (ToolCallStatus::Failed, "The tool was not allowed to run.")
        };
        let fields = ToolCallUpdateFields::new()
            .status(status)
            .content(vec![ToolCallContent::from(ContentBlock::from(text))]);
        let update = SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(TOOL_CALL, fields));
        self.steps.push_front(Step::Update(Box::new(update)));
    }
}

fn steps(prompt: &[ContentBlock]) -> VecDeque<Step> {
    // What a proxy puts in front of the prompt is not what the user asks for.
    let asked = prompt.iter().rev().find_map(|block| match block {
        ContentBlock::Text(text) => Some(text.text.as_str()),
        _ => None,
    });
    let has = |command: &str| {
        asked.is_some_and(|text| {
            text.split_whitespace()
                .any(|word| word.strip_prefix('/') == Some(command))
        })
    };
    let mut steps = Steps::default();
    if has("refuse") {
        steps.say("I would rather not.");
        return steps.end(StopReason::Refusal);
    }
    steps.update(SessionUpdate::AgentThoughtChunk(chunk(
        "I only repeat what reaches me.",
    )));
    let plan = has("plan");
    if plan {
        steps.plan(0);
    }
    steps.say(&repeated(prompt));
    if plan {
        steps.plan(1);
    }
    if has("tool") {
        steps.tool();
    }
    if has("secret") {
        steps.say(&format!("The token is {FAKE_TOKEN}, keep it to yourself.\n"));
    }
    if has("wait") {
        steps.say("Waiting to be cancelled.\n");
        return steps.0;
    }
    if plan {
        steps.plan(2);
    }
    steps.end(StopReason::EndTurn)
}

#[derive(Default)]
struct Steps(VecDeque<Step>);

impl Steps {
    fn update(&mut self, update: SessionUpdate) {
        self.0.push_back(Step::Update(Box::new(update)));
    }

    fn say(&mut self, text: &str) {
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.char_indices().nth(CHUNK).map_or(rest.len(), |(end, _)| end);
            let (piece, behind) = rest.split_at(end);
            self.update(SessionUpdate::AgentMessageChunk(chunk(piece)));
            rest = behind;
        }
    }

    /// Shows the plan with so many entries done.
    fn plan(&mut self, done: usize) {
        let entries = ["Repeat what was sent", "End the turn"]
            .iter()
            .enumerate()
            .map(|(index, what)| {
                let status = match index {
                    index if index < done => PlanEntryStatus::Completed,
                    index if index == done => PlanEntryStatus::InProgress,
                    _ => PlanEntryStatus::Pending,
                };
                PlanEntry::new(*what, PlanEntryPriority::Medium, status)
            })
            .collect();
        self.update(SessionUpdate::Plan(Plan::new(entries)));
    }

    fn tool(&mut self) {
        let call = ToolCall::new(TOOL_CALL, "Run echo 42").kind(ToolKind::Execute);
        self.update(SessionUpdate::ToolCall(call.clone()));
        self.0.push_back(Step::Ask(Box::new(Permission {
            tool_call: ToolCallUpdate::from(call),
            options: vec![
                PermissionOption::new(ALLOW, "Allow once", PermissionOptionKind::AllowOnce),
                PermissionOption::new(REJECT, "Reject", PermissionOptionKind::RejectOnce),
            ],
        })));
    }

    fn end(mut self, reason: StopReason) -> VecDeque<Step> {
        self.0.push_back(Step::End(reason));
        self.0
    }
}

fn chunk(text: &str) -> ContentChunk {
    ContentChunk::new(ContentBlock::Text(TextContent::new(text)))
}

/// What the agent got, so that a person sees what the proxies made of it.
fn repeated(prompt: &[ContentBlock]) -> String {
    let mut text = match prompt.len() {
        1 => "I got one block.\n".to_owned(),
        count => format!("I got {count} blocks.\n"),
    };
    for (number, block) in prompt.iter().enumerate() {
        let (title, content) = match block {
            ContentBlock::Text(block) => (measured("text", &block.text), block.text.as_str()),
            ContentBlock::Resource(block) => match &block.resource {
                EmbeddedResourceResource::TextResourceContents(resource) => (
                    measured(&format!("resource {}", resource.uri), &resource.text),
                    resource.text.as_str(),
                ),
                EmbeddedResourceResource::BlobResourceContents(resource) => (
                    measured(&format!("binary resource {}", resource.uri), &resource.blob),
                    "",
                ),
                _ => ("resource of an unknown kind".to_owned(), ""),
            },
            ContentBlock::ResourceLink(link) => (format!("link to {}", link.uri), ""),
            ContentBlock::Image(image) => (measured(&image.mime_type, &image.data), ""),
            ContentBlock::Audio(audio) => (measured(&audio.mime_type, &audio.data), ""),
            _ => ("block of an unknown kind".to_owned(), ""),
        };
        text.push_str(&format!("[{}] {title}\n", number + 1));
        let (content, more) = match content.char_indices().nth(REPEATED) {
            Some((end, _)) => (&content[..end], "…\n"),
            None => (content, ""),
        };
        for line in content.lines() {
            text.push_str(&format!("    {line}\n"));
        }
        text.push_str(more);
    }
    text
}

fn measured(what: &str, content: &str) -> String {
    format!("{what}, {} bytes", content.len())
}
