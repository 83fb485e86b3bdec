//! What tools, resources and prompts give, in the shapes of MCP.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

/// What a tool gives back: blocks of content, and structured content besides if it likes. Texts become one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    pub(super) content: Vec<Value>,
    pub(super) structured: Option<Value>,
}

impl Reply {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also a text.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.block(json!({"type": "text", "text": text.into()}))
    }

    /// Also a block of any kind that MCP knows, such as an image or a link to a resource.
    #[must_use]
    pub fn block(mut self, block: Value) -> Self {
        self.content.push(block);
        self
    }
}

impl From<String> for Reply {
    fn from(text: String) -> Self {
        Self::new().text(text)
    }
}

impl From<&str> for Reply {
    fn from(text: &str) -> Self {
        Self::new().text(text)
    }
}

/// A value that a tool gives back as structured content, and as text for agents that do not look at that.
#[derive(Clone, Copy, Debug)]
pub struct Structured<T>(pub T);

impl<T: Serialize> From<Structured<T>> for Reply {
    fn from(Structured(value): Structured<T>) -> Self {
        // A value that cannot be JSON is the author's fault, and shows as null.
        let value = serde_json::to_value(value).unwrap_or_default();
        let reply = Self::new().text(value.to_string());
        Self {
            structured: Some(value),
            ..reply
        }
    }
}

/// A resource, as a list shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    pub(super) uri: String,
    pub(super) shown: Value,
}

impl Listed {
    /// A resource at a URI. `more` has further members of its description, such as `description` and `mimeType`.
    pub fn new(uri: impl Into<String>, name: &str, more: Value) -> Self {
        let uri = uri.into();
        let shown = super::merged(json!({"uri": uri, "name": name}), more);
        Self { uri, shown }
    }
}

/// What the user has begun to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completing {
    /// The name of the prompt, or the URI of the template with its variables.
    pub of: String,
    /// Which argument or variable it is.
    pub name: String,
    /// What there is of it.
    pub value: String,
    /// The other arguments, as far as they are known.
    pub others: BTreeMap<String, String>,
}

/// What stands in a resource.
#[derive(Clone, Debug, PartialEq)]
pub enum Contents {
    /// Text.
    Text(String),
    /// Bytes in base64, with their type.
    Blob {
        /// The bytes in base64.
        base64: String,
        /// Their MIME type.
        mime_type: String,
    },
}

impl From<String> for Contents {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl Contents {
    pub(super) fn into_value(self, uri: &str, mime_type: Option<&str>) -> Value {
        match self {
            Self::Text(text) => {
                let mut value = json!({"uri": uri, "text": text});
                if let Some(mime_type) = mime_type {
                    value["mimeType"] = mime_type.into();
                }
                value
            }
            Self::Blob { base64, mime_type } => json!({"uri": uri, "blob": base64, "mimeType": mime_type}),
        }
    }
}

/// One message of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub(super) role: &'static str,
    pub(super) content: Value,
}

impl Message {
    /// What the user says.
    pub fn user(text: impl Into<String>) -> Self {
        Self::of("user", text.into())
    }

    /// What the model says.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::of("assistant", text.into())
    }

    /// A block of any kind that MCP knows, such as an image or a resource, that the user shows.
    pub fn user_block(content: Value) -> Self {
        Self { role: "user", content }
    }

    fn of(role: &'static str, text: String) -> Self {
        Self {
            role,
            content: json!({"type": "text", "text": text}),
        }
    }
}
