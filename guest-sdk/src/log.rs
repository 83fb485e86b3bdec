//! Lines for the host's log. Owns their form on the channel, and where they go if the channel takes none.

use std::fmt;

use crate::peer::Peer;
use crate::raw;
use crate::runtime;

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something failed.
    Error,
    /// Something is odd.
    Warn,
    /// Something a user may want to know.
    Info,
    /// Something an author may want to know.
    Debug,
    /// Everything else.
    Trace,
}

impl Level {
    /// The name on the channel.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// Writes a line to the host's log, under the proxy's name. The macros [`error!`](crate::error!), [`warn!`](crate::warn!),
/// [`info!`](crate::info!), [`debug!`](crate::debug!) and [`trace!`](crate::trace!) call this.
///
/// Lines are dropped with everything else that a handler sent if it panics in the same turn. During `start` they go to standard
/// error, which ends in the same log.
pub fn write(level: Level, message: fmt::Arguments<'_>) {
    let message = message.to_string();
    let text = serde_json::json!({"level": level.name(), "message": message}).to_string();
    let sent = raw::Value::parse(&text).is_ok_and(|params| {
        let notification = raw::Notification {
            on_behalf_of: None,
            method: "host/log".to_owned(),
            params: Some(params),
        };
        runtime::send(Peer::Host, raw::Message::Notification(notification)).is_ok()
    });
    if !sent {
        print(&format!("{}: {message}", level.name()));
    }
}

/// Writes one line to standard error.
pub(crate) fn print(line: &str) {
    eprintln!("{}", one_line(line));
}

pub(crate) fn one_line(text: &str) -> String {
    text.trim_end().replace('\r', "").replace('\n', "\\n")
}

/// Logs that something failed; takes what `format!` takes.
#[macro_export]
macro_rules! error {
    ($($arguments:tt)+) => { $crate::log::write($crate::log::Level::Error, ::core::format_args!($($arguments)+)) };
}

/// Logs that something is odd; takes what `format!` takes.
#[macro_export]
macro_rules! warn {
    ($($arguments:tt)+) => { $crate::log::write($crate::log::Level::Warn, ::core::format_args!($($arguments)+)) };
}

/// Logs what a user may want to know; takes what `format!` takes.
#[macro_export]
macro_rules! info {
    ($($arguments:tt)+) => { $crate::log::write($crate::log::Level::Info, ::core::format_args!($($arguments)+)) };
}

/// Logs what an author may want to know; takes what `format!` takes.
#[macro_export]
macro_rules! debug {
    ($($arguments:tt)+) => { $crate::log::write($crate::log::Level::Debug, ::core::format_args!($($arguments)+)) };
}

/// Logs anything else; takes what `format!` takes.
#[macro_export]
macro_rules! trace {
    ($($arguments:tt)+) => { $crate::log::write($crate::log::Level::Trace, ::core::format_args!($($arguments)+)) };
}
