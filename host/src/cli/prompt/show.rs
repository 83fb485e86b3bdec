//! What a person or a script sees of a conversation. The answer goes to standard output, everything else to standard error.

use crate::cli::exit;
use crate::cli::text::{Look, Paint, colour, one_line, plain, shortened};
use agent_client_protocol_schema::v1::{
    ContentBlock, Plan, PlanEntryStatus, RequestPermissionOutcome, RequestPermissionRequest, SessionNotification,
    SessionUpdate, ToolCall, ToolCallContent, ToolCallStatus, ToolCallUpdate,
};
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};

/// How many tool calls' titles are remembered; more are forgotten, all at once.
const MOST_TOOL_CALLS: usize = 1000;
/// How much of a tool's input is shown with a question, in characters.
const SHOWN_INPUT: usize = 600;
/// How many lines of a change are shown with a question.
const SHOWN_LINES: usize = 40;

/// A stream's place on the line that it writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Start,
    Middle,
}

/// For whom a conversation is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Audience {
    /// A person at a terminal, or whoever reads the answer.
    Person,
    /// A script: one line of JSON for each update.
    Script,
    /// Nobody.
    Nobody,
}

pub(super) struct Show {
    audience: Audience,
    paint: Paint,
    output: Column,
    error: Column,
    /// Whether both streams are on a terminal, where one begins where the other has stopped.
    together: bool,
    tool_calls: HashMap<String, (String, ToolCallStatus)>,
}

impl Show {
    pub(super) fn new(audience: Audience) -> Self {
        let (output, error) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        Self {
            audience,
            paint: Paint(colour(error)),
            output: Column::Start,
            error: Column::Start,
            together: output && error,
            tool_calls: HashMap::new(),
        }
    }

    /// Shows the parameters of a `session/update`.
    pub(super) fn update(&mut self, params: &RawValue) -> anyhow::Result<()> {
        match self.audience {
            Audience::Person => {}
            Audience::Script => return exit::print(&format!("{}\n", params.get())),
            Audience::Nobody => return Ok(()),
        }
        let update = match serde_json::from_str::<SessionNotification>(params.get()) {
            Ok(notification) => notification.update,
            Err(error) => {
                tracing::debug!("an update of a kind that is not known here: {error}");
                return Ok(());
            }
        };
        match update {
            SessionUpdate::AgentMessageChunk(chunk) => self.answer(&content(&chunk.content)),
            SessionUpdate::AgentThoughtChunk(chunk) => self.thought(&content(&chunk.content)),
            SessionUpdate::ToolCall(call) => self.tool_call(call),
            SessionUpdate::ToolCallUpdate(update) => self.tool_call_update(update),
            SessionUpdate::Plan(plan) => self.plan(&plan),
            SessionUpdate::Notice(notice) => self.line(&one_line(&notice.title)),
            _ => Ok(()),
        }
    }

    /// Shows the end of a prompt, with its result.
    pub(super) fn end(&mut self, result: &RawValue) -> anyhow::Result<()> {
        if self.audience == Audience::Script {
            exit::print(&format!("{}\n", result.get()))?;
        }
        Ok(())
    }

    /// Ends the lines that are open.
    pub(super) fn pause(&mut self) -> anyhow::Result<()> {
        if self.output == Column::Middle {
            exit::print("\n")?;
            self.output = Column::Start;
        }
        self.close_line();
        Ok(())
    }

    /// Says something of the program's own.
    pub(super) fn note(&mut self, sentence: &str) -> anyhow::Result<()> {
        self.close_line();
        exit::complain(sentence);
        Ok(())
    }

    /// Shows what was decided without asking.
    pub(super) fn decision(
        &mut self,
        request: &RequestPermissionRequest,
        outcome: &RequestPermissionOutcome,
    ) -> anyhow::Result<()> {
        let decided = match outcome {
            RequestPermissionOutcome::Selected(selected) => request
                .options
                .iter()
                .find(|option| option.option_id == selected.option_id)
                .map_or("?", |option| option.name.as_str()),
            _ => "cancelled",
        };
        let title = self.title_of(&request.tool_call);
        self.line(&format!("? {}: {}", one_line(&title), one_line(decided)))
    }

    /// Asks a question; the answer is read elsewhere.
    pub(super) fn question(&mut self, request: &RequestPermissionRequest) -> anyhow::Result<()> {
        let title = self.title_of(&request.tool_call);
        let head = format!("? {}", one_line(&title));
        self.line(&self.paint.text(Look::Yellow, &head))?;
        let fields = &request.tool_call.fields;
        for location in fields.locations.iter().flatten() {
            self.line(&format!("  {}", one_line(&location.path.to_string_lossy())))?;
        }
        if let Some(input) = &fields.raw_input {
            let input = one_line(&input.to_string());
            self.line(&format!("  {}", shortened(&input, SHOWN_INPUT)))?;
        }
        for content in fields.content.iter().flatten() {
            if let ToolCallContent::Diff(diff) = content {
                self.line(&format!("  {}", one_line(&diff.path.to_string_lossy())))?;
                self.change(diff.old_text.as_deref().unwrap_or(""), "-", Look::Red)?;
                self.change(&diff.new_text, "+", Look::Green)?;
            }
        }
        for (number, option) in request.options.iter().enumerate() {
            self.line(&format!("  {}) {}", number + 1, one_line(&option.name)))?;
        }
        self.close_line();
        eprint_text(&format!("  1-{}, or nothing to cancel: ", request.options.len()));
        self.error = Column::Middle;
        Ok(())
    }

    /// The user has ended the line that a question stands on.
    pub(super) fn answered(&mut self) {
        self.error = Column::Start;
    }

    fn change(&mut self, text: &str, sign: &str, look: Look) -> anyhow::Result<()> {
        for line in text.lines().take(SHOWN_LINES) {
            let line = format!("  {sign} {}", one_line(line));
            self.line(&self.paint.text(look, &line))?;
        }
        let more = text.lines().count().saturating_sub(SHOWN_LINES);
        if more > 0 {
            self.line(&format!("  {sign} … {more} more lines"))?;
        }
        Ok(())
    }

    fn answer(&mut self, text: &str) -> anyhow::Result<()> {
        let text = plain(text);
        if text.is_empty() {
            return Ok(());
        }
        if self.error == Column::Middle {
            eprint_text("\n");
            self.error = Column::Start;
        }
        exit::print(&text)?;
        self.output = column_after(&text);
        Ok(())
    }

    fn thought(&mut self, text: &str) -> anyhow::Result<()> {
        let text = plain(text);
        if text.is_empty() {
            return Ok(());
        }
        if self.error == Column::Start {
            self.close_line();
        }
        eprint_text(&self.paint.text(Look::Dim, &text));
        self.error = column_after(&text);
        Ok(())
    }

    fn tool_call(&mut self, call: ToolCall) -> anyhow::Result<()> {
        let (id, status) = (call.tool_call_id.0.to_string(), call.status);
        self.remember(id, call.title.clone(), status);
        self.tool_line(&call.title, status)
    }

    fn tool_call_update(&mut self, update: ToolCallUpdate) -> anyhow::Result<()> {
        let title = self.title_of(&update);
        let id = update.tool_call_id.0.to_string();
        let before = self.tool_calls.get(&id).map(|(_, status)| *status);
        let status = update.fields.status.or(before).unwrap_or_default();
        self.remember(id, title.clone(), status);
        if before == Some(status) {
            return Ok(());
        }
        self.tool_line(&title, status)
    }

    fn tool_line(&mut self, title: &str, status: ToolCallStatus) -> anyhow::Result<()> {
        let (sign, look) = match status {
            ToolCallStatus::Completed => ("✓", Look::Green),
            ToolCallStatus::Failed => ("✗", Look::Red),
            _ => ("●", Look::Cyan),
        };
        let sign = self.paint.text(look, sign);
        self.line(&format!("{sign} {}", one_line(title)))
    }

    fn plan(&mut self, plan: &Plan) -> anyhow::Result<()> {
        self.line(&self.paint.text(Look::Bold, "Plan"))?;
        for entry in &plan.entries {
            let (sign, look) = match entry.status {
                PlanEntryStatus::Completed => ("✓", Look::Green),
                PlanEntryStatus::InProgress => ("▸", Look::Cyan),
                _ => ("·", Look::Dim),
            };
            let sign = self.paint.text(look, sign);
            self.line(&format!("  {sign} {}", one_line(&entry.content)))?;
        }
        Ok(())
    }

    fn remember(&mut self, id: String, title: String, status: ToolCallStatus) {
        if self.tool_calls.len() == MOST_TOOL_CALLS && !self.tool_calls.contains_key(&id) {
            self.tool_calls.clear();
        }
        self.tool_calls.insert(id, (title, status));
    }

    fn title_of(&self, update: &ToolCallUpdate) -> String {
        let id = &*update.tool_call_id.0;
        update
            .fields
            .title
            .clone()
            .or_else(|| self.tool_calls.get(id).map(|(title, _)| title.clone()))
            .unwrap_or_else(|| id.to_owned())
    }

    /// A whole line on standard error. What may obey to a terminal has been taken out of it.
    fn line(&mut self, line: &str) -> anyhow::Result<()> {
        if self.audience == Audience::Nobody {
            return Ok(());
        }
        self.close_line();
        eprint_text(&format!("{line}\n"));
        Ok(())
    }

    /// Begins a new line on standard error, where the last one may be the answer's.
    fn close_line(&mut self) {
        if self.error == Column::Middle || (self.together && self.output == Column::Middle) {
            eprint_text("\n");
            if self.together {
                self.output = Column::Start;
            }
        }
        self.error = Column::Start;
    }
}

fn column_after(text: &str) -> Column {
    if text.ends_with('\n') {
        Column::Start
    } else {
        Column::Middle
    }
}

fn eprint_text(text: &str) {
    // There is nowhere left to say that standard error is gone.
    let _ = io::stderr().write_all(text.as_bytes());
}

fn content(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => format!("[image {}]", image.mime_type),
        ContentBlock::Audio(audio) => format!("[audio {}]", audio.mime_type),
        ContentBlock::ResourceLink(link) => format!("[{}]", link.uri),
        ContentBlock::Resource(_) => "[resource]".to_owned(),
        _ => "[content of an unknown kind]".to_owned(),
    }
}
