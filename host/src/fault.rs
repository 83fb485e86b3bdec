//! The one fault type at the sandbox boundary. Tests and policy match on its class; people read its sentence.

use std::fmt;

/// What kind of fault it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The component cannot be used.
    Load,
    /// It did what was not granted.
    Denied,
    /// It used too much processor time.
    Cpu,
    /// It used too much memory or too many handles.
    Memory,
    /// It sent too much.
    Flood,
    /// It trapped.
    Trap,
    /// It broke the contract.
    Protocol,
    /// It took too long.
    Timeout,
    /// Consort's own fault.
    Host,
}

impl Class {
    /// The class's name in logs and error data.
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Denied => "denied",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Flood => "flood",
            Self::Trap => "trap",
            Self::Protocol => "protocol",
            Self::Timeout => "timeout",
            Self::Host => "host",
        }
    }
}

/// What a proxy was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Being read, checked or compiled.
    Load,
    /// Being instantiated, or in `start`.
    Start,
    /// In `receive`.
    Receive,
}

impl Phase {
    /// The phase's name in logs and error data.
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Start => "start",
            Self::Receive => "receive",
        }
    }
}

/// Bytes of a cause; the rest is cut. A proxy may have written it.
const MAX_CAUSE: usize = 4 * 1024;

/// Why a proxy failed.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The class.
    pub class: Class,
    /// The phase.
    pub phase: Phase,
    /// The cause and what to do about it, without the proxy's name.
    pub cause: String,
}

impl Fault {
    /// A fault.
    pub fn new(class: Class, phase: Phase, cause: impl Into<String>) -> Self {
        let mut cause = cause.into();
        let end = cause.floor_char_boundary(MAX_CAUSE);
        if end < cause.len() {
            cause.truncate(end);
            cause.push('…');
        }
        Self { class, phase, cause }
    }

    /// The sentence for a person: proxy, phase and cause, on one line whatever a proxy said.
    pub fn sentence(&self, proxy: &str) -> String {
        let what = match self.phase {
            Phase::Load => "cannot be loaded",
            Phase::Start => "did not start",
            Phase::Receive => "failed",
        };
        let class = match self.class {
            Class::Load => String::new(),
            class => format!(" ({})", class.name()),
        };
        format!("proxy `{proxy}` {what}{class}: {}", crate::log::printable(&self.cause))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} fault in {}: {}",
            self.class.name(),
            self.phase.name(),
            self.cause
        )
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_cut() {
        let fault = Fault::new(Class::Load, Phase::Start, "é".repeat(1 << 20));
        assert!(fault.cause.starts_with("éé") && fault.cause.ends_with('…'));
        assert!(fault.cause.len() <= MAX_CAUSE + '…'.len_utf8());
    }
}
