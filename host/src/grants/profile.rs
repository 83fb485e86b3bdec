//! Rights, and the profiles that give them names that a person understands. The tables here are the one place that says which
//! method belongs to which risk.

use super::pattern::Pattern;
use crate::message::Peer;

/// A kind of right about messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Right {
    /// Gets copies of messages that come from the peer.
    Observe,
    /// Gets the messages themselves, may change them and drop notifications.
    Intercept,
    /// May answer requests that come from the peer, or change their answers.
    Answer,
    /// May send messages of its own to the peer.
    Originate,
}

impl Right {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Observe, Self::Intercept, Self::Answer, Self::Originate];

    /// The name in a grant.
    pub fn name(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Intercept => "intercept",
            Self::Answer => "answer",
            Self::Originate => "originate",
        }
    }

    pub(super) fn index(self) -> usize {
        match self {
            Self::Observe => 0,
            Self::Intercept => 1,
            Self::Answer => 2,
            Self::Originate => 3,
        }
    }
}

/// A named set of rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// Sees prompts.
    ReadPrompts,
    /// Changes prompts.
    ChangePrompts,
    /// Sees what the agent says.
    ReadAnswers,
    /// Changes what the agent says.
    ChangeAnswers,
    /// Serves MCP tools.
    OfferTools,
    /// Saves state.
    KeepState,
    /// Answers permission requests.
    DecidePermissions,
    /// Uses the editor's files.
    EditorFiles,
    /// Uses the editor's terminals.
    EditorCommands,
    /// Adds MCP servers other than its own.
    AddMcpServers,
    /// Filters the MCP servers and tools of others.
    FilterTools,
    /// Uses sessions that it was not shown.
    OwnSessions,
    /// Changes `initialize` and the set-up of sessions.
    SessionSetup,
    /// All of that.
    Everything,
}

/// One right of a profile, with the methods as a pattern.
pub(super) struct Rule(pub(super) Right, pub(super) Peer, pub(super) &'static str);

use Peer::{Agent, Client, Host};
use Right::{Answer, Intercept, Observe, Originate};

/// What ends a session: who remembers something for each has to hear of it.
const CLOSE: Rule = Rule(Observe, Client, "session/close");
const DELETE: Rule = Rule(Observe, Client, "session/delete");

impl Profile {
    /// All of them, the ordinary ones first.
    pub const ALL: [Self; 14] = [
        Self::ReadPrompts,
        Self::ChangePrompts,
        Self::ReadAnswers,
        Self::ChangeAnswers,
        Self::OfferTools,
        Self::KeepState,
        Self::DecidePermissions,
        Self::EditorFiles,
        Self::EditorCommands,
        Self::AddMcpServers,
        Self::FilterTools,
        Self::OwnSessions,
        Self::SessionSetup,
        Self::Everything,
    ];

    /// The name in manifests and configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadPrompts => "read-prompts",
            Self::ChangePrompts => "change-prompts",
            Self::ReadAnswers => "read-answers",
            Self::ChangeAnswers => "change-answers",
            Self::OfferTools => "offer-tools",
            Self::KeepState => "keep-state",
            Self::DecidePermissions => "decide-permissions",
            Self::EditorFiles => "editor-files",
            Self::EditorCommands => "editor-commands",
            Self::AddMcpServers => "add-mcp-servers",
            Self::FilterTools => "filter-tools",
            Self::OwnSessions => "own-sessions",
            Self::SessionSetup => "session-setup",
            Self::Everything => "everything",
        }
    }

    /// What it means for a person, after "it".
    pub fn sentence(self) -> &'static str {
        match self {
            Self::ReadPrompts => "reads your prompts",
            Self::ChangePrompts => "changes your prompts",
            Self::ReadAnswers => "reads the agent's answers",
            Self::ChangeAnswers => "reads your prompts, and changes the agent's answers or answers in its place",
            Self::OfferTools => "offers tools to the agent",
            Self::KeepState => "keeps notes of its own on this computer",
            Self::DecidePermissions => "decides what the agent may do",
            Self::EditorFiles => "reads and writes files through your editor",
            Self::EditorCommands => "runs commands through your editor",
            Self::AddMcpServers => "adds MCP servers that run commands or use the network",
            Self::FilterTools => {
                "takes MCP servers out of your sessions, and reads and changes what the agent says to them and hears from them"
            }
            Self::OwnSessions => {
                "starts and prompts sessions of its own, and reads and changes what the agent says in any"
            }
            Self::SessionSetup => "changes how sessions are set up, and what editor and agent say they can do",
            Self::Everything => "sees and changes everything",
        }
    }

    /// Whether a proxy that the user named gets it by asking for it.
    pub fn is_ordinary(self) -> bool {
        matches!(
            self,
            Self::ReadPrompts
                | Self::ChangePrompts
                | Self::ReadAnswers
                | Self::ChangeAnswers
                | Self::OfferTools
                | Self::KeepState
        )
    }

    /// The rights about messages. What else a profile allows stands in [`super::policy`].
    pub(super) fn rules(self) -> &'static [Rule] {
        match self {
            Self::ReadPrompts => &[
                Rule(Observe, Client, "session/prompt"),
                Rule(Observe, Client, "session/cancel"),
                CLOSE,
                DELETE,
            ],
            Self::ChangePrompts => &[
                Rule(Intercept, Client, "session/prompt"),
                Rule(Observe, Client, "session/cancel"),
                Rule(Originate, Agent, "session/cancel"),
                CLOSE,
                DELETE,
            ],
            Self::ReadAnswers => &[
                Rule(Observe, Agent, "session/update"),
                Rule(Observe, Agent, "session/request_permission"),
                CLOSE,
                DELETE,
            ],
            Self::ChangeAnswers => &[
                Rule(Intercept, Agent, "session/update"),
                Rule(Answer, Client, "session/prompt"),
                // What a loaded session brings ends with the answer.
                Rule(Answer, Client, "session/load"),
                Rule(Answer, Client, "session/resume"),
                Rule(Originate, Client, "session/update"),
                CLOSE,
                DELETE,
            ],
            Self::OfferTools => &[
                Rule(Intercept, Client, "session/new"),
                Rule(Intercept, Client, "session/load"),
                Rule(Intercept, Client, "session/resume"),
                Rule(Intercept, Client, "session/fork"),
                Rule(Intercept, Agent, "mcp/*"),
                Rule(Answer, Agent, "mcp/*"),
                Rule(Originate, Agent, "mcp/*"),
                CLOSE,
                DELETE,
            ],
            Self::KeepState => &[Rule(Originate, Host, "host/state/*")],
            Self::DecidePermissions => &[
                Rule(Intercept, Agent, "session/request_permission"),
                Rule(Answer, Agent, "session/request_permission"),
                Rule(Originate, Client, "session/request_permission"),
                Rule(Intercept, Agent, "elicitation/*"),
                Rule(Answer, Agent, "elicitation/*"),
                Rule(Originate, Client, "elicitation/*"),
                // A mode can be one that asks for nothing.
                Rule(Intercept, Client, "session/set_mode"),
                Rule(Intercept, Client, "session/set_config_option"),
                Rule(Originate, Agent, "session/set_mode"),
                Rule(Originate, Agent, "session/set_config_option"),
                CLOSE,
                DELETE,
            ],
            Self::EditorFiles => &[
                Rule(Intercept, Agent, "fs/*"),
                Rule(Answer, Agent, "fs/*"),
                Rule(Originate, Client, "fs/*"),
            ],
            Self::EditorCommands => &[
                Rule(Intercept, Agent, "terminal/*"),
                Rule(Answer, Agent, "terminal/*"),
                Rule(Originate, Client, "terminal/*"),
            ],
            Self::AddMcpServers => &[
                Rule(Intercept, Client, "session/new"),
                Rule(Intercept, Client, "session/load"),
                Rule(Intercept, Client, "session/resume"),
                Rule(Intercept, Client, "session/fork"),
            ],
            Self::FilterTools => &[
                Rule(Intercept, Client, "session/new"),
                Rule(Intercept, Client, "session/load"),
                Rule(Intercept, Client, "session/resume"),
                Rule(Intercept, Client, "session/fork"),
                Rule(Intercept, Agent, "mcp/*"),
                Rule(Answer, Agent, "mcp/*"),
                // As it was called in drafts.
                Rule(Intercept, Agent, "_mcp/*"),
                Rule(Answer, Agent, "_mcp/*"),
            ],
            Self::OwnSessions => &[
                Rule(Originate, Agent, "session/new"),
                Rule(Originate, Agent, "session/fork"),
                Rule(Originate, Agent, "session/load"),
                Rule(Originate, Agent, "session/resume"),
                Rule(Originate, Agent, "session/list"),
                Rule(Originate, Agent, "session/prompt"),
                Rule(Originate, Agent, "session/cancel"),
                Rule(Originate, Agent, "session/close"),
                Rule(Originate, Agent, "session/delete"),
                Rule(Originate, Client, "session/update"),
                Rule(Intercept, Agent, "session/update"),
            ],
            Self::SessionSetup => &[
                Rule(Intercept, Client, "initialize"),
                Rule(Answer, Client, "initialize"),
                Rule(Intercept, Client, "session/new"),
                Rule(Answer, Client, "session/new"),
                Rule(Intercept, Client, "session/load"),
                Rule(Answer, Client, "session/load"),
                Rule(Intercept, Client, "session/resume"),
                Rule(Answer, Client, "session/resume"),
                Rule(Intercept, Client, "session/fork"),
                Rule(Answer, Client, "session/fork"),
            ],
            Self::Everything => &[
                Rule(Intercept, Client, "initialize"),
                Rule(Answer, Client, "initialize"),
                Rule(Intercept, Client, "*"),
                Rule(Answer, Client, "*"),
                Rule(Originate, Client, "*"),
                Rule(Intercept, Agent, "*"),
                Rule(Answer, Agent, "*"),
                Rule(Originate, Agent, "*"),
                Rule(Originate, Host, "*"),
            ],
        }
    }

    /// Whether a method is one that some profile tells apart: what is said of it must not be lost among names that a proxy invents.
    pub(crate) fn knows(method: &str) -> bool {
        const OF_PREFIXES: [&str; 14] = [
            "fs/read_text_file",
            "fs/write_text_file",
            "terminal/create",
            "terminal/output",
            "terminal/release",
            "terminal/kill",
            "terminal/wait_for_exit",
            "mcp/connect",
            "mcp/message",
            "mcp/disconnect",
            "elicitation/create",
            "host/file/list",
            "host/file/read",
            "host/state/set",
        ];
        let exact = |profile: &Self| profile.rules().iter().any(|Rule(_, _, pattern)| *pattern == method);
        OF_PREFIXES.contains(&method) || Self::ALL.iter().any(exact)
    }

    /// Whether it gives this right for all of these methods.
    pub(super) fn gives(self, right: Right, peer: Peer, pattern: &Pattern) -> bool {
        self.rules().iter().any(|rule| {
            // Who takes part may look on as well.
            let Rule(given, of, methods) = rule;
            let right = *given == right || (right == Right::Observe && *given == Right::Intercept);
            right && *of == peer && Pattern::new(methods).covers(pattern)
        })
    }
}
