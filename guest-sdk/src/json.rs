//! JSON that the host holds: handles, decoding, edits. Owns what JSON looks like to an author; knows nothing of messages.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::quotes;
use crate::raw;

/// A handle on JSON text that the host holds.
///
/// Only what is asked for is copied, so a proxy can route and edit messages that are larger than its own memory; text that
/// is not edited stays as it came, byte for byte. Places are named by JSON pointers (RFC 6901): `""` is the whole value,
/// `"/prompt/0/text"` a part of it; see [`escape`] for names that come from elsewhere.
///
/// The host gives a proxy about 10,000 handles at a time. A handle is given back when it is dropped.
///
/// ```
/// use consort_proxy::{Json, json};
///
/// let update = json!({"update": {"content": {"type": "text", "text": "Hello"}}});
/// let text = update.string("/update/content/text").unwrap_or_default();
/// update.replace("/update/content/text", format!("{text}, world"))?;
/// assert_eq!(update.read("/update/content"), Some(r#"{"type":"text","text":"Hello, world"}"#.to_owned()));
/// # Ok::<(), consort_proxy::JsonError>(())
/// ```
pub struct Json(pub(crate) raw::Value);

/// What went wrong with JSON: a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError(String);

impl fmt::Display for JsonError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for JsonError {}

impl From<JsonError> for String {
    fn from(error: JsonError) -> Self {
        error.0
    }
}

impl Json {
    /// Gives JSON text to the host.
    ///
    /// # Errors
    /// If the text is not exactly one JSON value, nests deeper than 128 levels, or is larger than the host allows.
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        raw::Value::parse(text).map(Self).map_err(JsonError)
    }

    /// Serialises a value.
    ///
    /// # Errors
    /// If the value cannot be JSON, or is larger than the host allows.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Self, JsonError> {
        Self::parse(&serde_json::to_string(value).map_err(|error| JsonError(error.to_string()))?)
    }

    /// How many bytes of JSON text stand at the pointer; none if nothing stands there. Ask before reading what may be large.
    pub fn size(&self, pointer: &str) -> Option<u64> {
        self.0.size(pointer)
    }

    /// The JSON text at the pointer; none if nothing stands there. A string comes with its quotes and escapes.
    pub fn read(&self, pointer: &str) -> Option<String> {
        self.0.read(pointer)
    }

    /// A handle on the part at the pointer, without a copy; none if nothing stands there.
    pub fn get(&self, pointer: &str) -> Option<Self> {
        self.0.get(pointer).map(Self)
    }

    /// The string at the pointer, decoded; none if something else or nothing stands there.
    ///
    /// JSON can escape half of a UTF-16 pair (an agent that cuts its text in the middle of an emoji sends `"\ud83d"`), which no Rust
    /// string can hold: each such half is decoded as U+FFFD. It stays what it is in the JSON unless the string is replaced.
    pub fn string(&self, pointer: &str) -> Option<String> {
        match quotes::off(self.0.read(pointer)?) {
            Ok(text) => Some(text),
            Err(text) => quotes::is_string(&text).then(|| unescape(&text[1..text.len() - 1])),
        }
    }

    /// Whether this string stands at the pointer, as [`Json::string`] decodes it.
    pub fn is_string(&self, pointer: &str, expected: &str) -> bool {
        self.string(pointer).is_some_and(|text| quotes::same(&text, expected))
    }

    /// Deserialises the whole value.
    ///
    /// # Errors
    /// If the JSON has not the shape of a `T`.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, JsonError> {
        self.decode_at("")
    }

    /// Deserialises the part at the pointer.
    ///
    /// # Errors
    /// If nothing stands there, or it has not the shape of a `T`.
    pub fn decode_at<T: DeserializeOwned>(&self, pointer: &str) -> Result<T, JsonError> {
        let text = self
            .read(pointer)
            .ok_or_else(|| JsonError(format!("nothing stands at {pointer:?}")))?;
        serde_json::from_str(&text).map_err(|error| match pointer {
            "" => JsonError(error.to_string()),
            _ => JsonError(format!("what stands at {pointer:?} is not as expected: {error}")),
        })
    }

    /// Adds: before the element of an array (`/list/-` is the end), or as a member of an object, whether or not it is there.
    ///
    /// # Errors
    /// If there is no place for it at the pointer.
    pub fn add(&self, pointer: &str, content: impl Content) -> Result<(), JsonError> {
        self.apply(&[raw::Edit::Add((pointer, content.into_part().raw()))])
    }

    /// Replaces what stands at the pointer.
    ///
    /// # Errors
    /// If nothing stands there.
    pub fn replace(&self, pointer: &str, content: impl Content) -> Result<(), JsonError> {
        self.apply(&[raw::Edit::Replace((pointer, content.into_part().raw()))])
    }

    /// Removes what stands at the pointer.
    ///
    /// # Errors
    /// If nothing stands there.
    pub fn remove(&self, pointer: &str) -> Result<(), JsonError> {
        self.apply(&[raw::Edit::Remove(pointer)])
    }

    /// Makes several edits, in order: all of them or, with an error, none.
    ///
    /// # Errors
    /// If one of them cannot be made.
    ///
    /// ```
    /// use consort_proxy::{Edit, json};
    ///
    /// let value = json!({"keep": 1.10, "old": true});
    /// value.edit(&[Edit::add("/new", "text"), Edit::remove("/old")])?;
    /// assert_eq!(value.text(), r#"{"keep":1.1,"new":"text"}"#);
    /// # Ok::<(), consort_proxy::JsonError>(())
    /// ```
    pub fn edit(&self, edits: &[Edit<'_>]) -> Result<(), JsonError> {
        let edits: Vec<_> = edits.iter().map(Edit::raw).collect();
        self.apply(&edits)
    }

    fn apply(&self, edits: &[raw::Edit<'_>]) -> Result<(), JsonError> {
        self.0.edit(edits).map_err(JsonError)
    }

    /// The whole JSON text.
    pub fn text(&self) -> String {
        self.0.read("").unwrap_or_default()
    }
}

/// A second handle on the same text, without a copy. Edits through one of them do not show in the other.
impl Clone for Json {
    fn clone(&self) -> Self {
        Self(self.0.dup())
    }
}

impl fmt::Debug for Json {
    /// The text if it is short, else its size: debug output must not copy a prompt of many MiB.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHORT: u64 = 1024;
        match self.size("") {
            Some(size) if size > SHORT => write!(formatter, "Json({size} bytes)"),
            _ => write!(formatter, "Json({})", self.text()),
        }
    }
}

/// One of several edits; see [`Json::edit`].
pub struct Edit<'a> {
    operation: Operation,
    pointer: Cow<'a, str>,
    part: Part<'a>,
}

enum Operation {
    Add,
    Replace,
    Remove,
}

impl<'a> Edit<'a> {
    /// As [`Json::add`].
    pub fn add(pointer: impl Into<Cow<'a, str>>, content: impl Content + 'a) -> Self {
        Self {
            operation: Operation::Add,
            pointer: pointer.into(),
            part: content.into_part(),
        }
    }

    /// As [`Json::replace`].
    pub fn replace(pointer: impl Into<Cow<'a, str>>, content: impl Content + 'a) -> Self {
        Self {
            operation: Operation::Replace,
            pointer: pointer.into(),
            part: content.into_part(),
        }
    }

    /// As [`Json::remove`].
    pub fn remove(pointer: impl Into<Cow<'a, str>>) -> Self {
        Self {
            operation: Operation::Remove,
            pointer: pointer.into(),
            part: Part(PartKind::Text(Cow::Borrowed(""))),
        }
    }

    fn raw(&self) -> raw::Edit<'_> {
        match self.operation {
            Operation::Add => raw::Edit::Add((&self.pointer, self.part.raw())),
            Operation::Replace => raw::Edit::Replace((&self.pointer, self.part.raw())),
            Operation::Remove => raw::Edit::Remove(&self.pointer),
        }
    }
}

/// What can be put into JSON: strings (as JSON strings), numbers, booleans, [`serde_json::Value`], other [`Json`] (not copied),
/// and with [`Raw`] any JSON text. Anything else goes through [`Json::encode`].
pub trait Content {
    /// The content as the host takes it. An implementation for another type calls that of one of these.
    fn into_part<'a>(self) -> Part<'a>
    where
        Self: 'a;
}

/// Content in the form that the host takes.
pub struct Part<'a>(PartKind<'a>);

enum PartKind<'a> {
    Text(Cow<'a, str>),
    Borrowed(&'a Json),
    Owned(Json),
}

impl<'a> Part<'a> {
    fn raw(&self) -> raw::Content<'_> {
        match &self.0 {
            PartKind::Text(text) => raw::Content::Text(text),
            PartKind::Borrowed(json) => raw::Content::Value(&json.0),
            PartKind::Owned(json) => raw::Content::Value(&json.0),
        }
    }

    pub(crate) fn into_json(self) -> Result<Json, JsonError> {
        match self.0 {
            PartKind::Text(text) => Json::parse(&text),
            PartKind::Borrowed(json) => Ok(json.clone()),
            PartKind::Owned(json) => Ok(json),
        }
    }

    fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self(PartKind::Text(text.into()))
    }
}

/// JSON text as [`Content`], taken as it is.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'t>(pub &'t str);

impl Content for Raw<'_> {
    fn into_part<'a>(self) -> Part<'a>
    where
        Self: 'a,
    {
        Part::text(self.0)
    }
}

impl Content for Json {
    fn into_part<'a>(self) -> Part<'a>
    where
        Self: 'a,
    {
        Part(PartKind::Owned(self))
    }
}

impl Content for &Json {
    fn into_part<'a>(self) -> Part<'a>
    where
        Self: 'a,
    {
        Part(PartKind::Borrowed(self))
    }
}

impl Content for &str {
    fn into_part<'a>(self) -> Part<'a>
    where
        Self: 'a,
    {
        Part::text(string(self))
    }
}

impl Content for String {
    fn into_part<'a>(self) -> Part<'a>
    where
        Self: 'a,
    {
        Part::text(string(&self))
    }
}

impl Content for &String {
    fn into_part<'a>(self) -> Part<'a>
    where
        Self: 'a,
    {
        self.as_str().into_part()
    }
}

macro_rules! displayed_content {
    ($($type:ty),*) => {$(
        impl Content for $type {
            fn into_part<'a>(self) -> Part<'a>
            where
                Self: 'a,
            {
                Part::text(self.to_string())
            }
        }
    )*};
}

displayed_content!(bool, i32, i64, u32, u64, usize, serde_json::Value, &serde_json::Value);

/// A text as a JSON string.
fn string(text: &str) -> String {
    // Writing a string to memory cannot fail.
    quotes::on(text).unwrap_or_else(|| serde_json::to_string(text).unwrap_or_default())
}

/// Decodes what stands between the quotes of a string. The host has checked it, so every escape is one of JSON's.
fn unescape(mut rest: &str) -> String {
    let mut text = String::with_capacity(rest.len());
    while let Some((plain, escape)) = rest.split_once('\\') {
        text.push_str(plain);
        let mut characters = escape.chars();
        let name = characters.next();
        rest = characters.as_str();
        match name {
            Some('b') => text.push('\u{8}'),
            Some('f') => text.push('\u{c}'),
            Some('n') => text.push('\n'),
            Some('r') => text.push('\r'),
            Some('t') => text.push('\t'),
            Some('u') => {
                let character;
                (character, rest) = code_point(rest);
                text.push(character);
            }
            // A quote or a slash of either kind.
            name => text.extend(name),
        }
    }
    text.push_str(rest);
    text
}

/// The character of a `\u` escape, which may be two, and what stands behind it.
fn code_point(text: &str) -> (char, &str) {
    let Some((unit, rest)) = code_unit(text) else {
        return (char::REPLACEMENT_CHARACTER, text);
    };
    if let Some((low, behind)) = rest.strip_prefix("\\u").and_then(code_unit)
        && let Some(Ok(character @ '\u{10000}'..)) = char::decode_utf16([unit, low]).next()
    {
        return (character, behind);
    }
    let character = char::from_u32(u32::from(unit)).unwrap_or(char::REPLACEMENT_CHARACTER);
    (character, rest)
}

fn code_unit(text: &str) -> Option<(u16, &str)> {
    let (digits, rest) = text.split_at_checked(4)?;
    Some((u16::from_str_radix(digits, 16).ok()?, rest))
}

/// Escapes a name for a JSON pointer.
///
/// ```
/// assert_eq!(consort_proxy::escape("a/b~c"), "a~1b~0c");
/// ```
pub fn escape(name: &str) -> Cow<'_, str> {
    match name.contains(['~', '/']) {
        true => Cow::Owned(name.replace('~', "~0").replace('/', "~1")),
        false => Cow::Borrowed(name),
    }
}

/// Makes a [`Json`] out of JSON with Rust expressions in it, as `serde_json::json!` does.
///
/// ```
/// use consort_proxy::json;
///
/// let id = "s1";
/// assert_eq!(json!({"sessionId": id, "list": [1, null]}).text(), r#"{"sessionId":"s1","list":[1,null]}"#);
/// ```
///
/// # Panics
/// If it nests deeper than 128 levels or is larger than the host allows.
#[macro_export]
macro_rules! json {
    ($($json:tt)+) => {
        $crate::__private::literal(&$crate::__private::serde_json::json!($($json)+))
    };
}

/// What [`json!`] expands to.
#[allow(
    clippy::expect_used,
    reason = "a literal of the author's own, as documented at the macro"
)]
#[doc(hidden)]
pub fn literal(value: &serde_json::Value) -> Json {
    value
        .into_part()
        .into_json()
        .expect("json!: the host did not take the value")
}
