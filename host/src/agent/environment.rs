//! Which variables of Consort's own environment an agent gets.

use super::AgentCommand;
use std::ffi::OsString;

/// Variables that every agent inherits: what programs need to find their files, their language, their runtime and the
/// network. Everything else, secrets of other programs included, stays out. A `*` at the end stands for any ending.
#[rustfmt::skip]
pub const INHERITED: &[&str] = &[
    // Where things are.
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TMP", "TEMP", "XDG_*",
    // Language, terminal, display.
    "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "COLORTERM", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR",
    "DISPLAY", "WAYLAND_DISPLAY", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS",
    // The way to the network.
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE",
    // Runtimes that agents are written for.
    "NODE_OPTIONS", "NODE_PATH", "NODE_ENV", "NODE_EXTRA_CA_CERTS", "NVM_DIR", "NVM_BIN", "FNM_DIR", "VOLTA_HOME",
    "BUN_INSTALL", "DENO_DIR", "PYTHONPATH", "PYTHONHOME", "PYTHONUNBUFFERED", "VIRTUAL_ENV", "UV_CACHE_DIR",
    "RUST_BACKTRACE", "RUST_LOG",
];

/// The settings and keys of the known agents. An agent gets those in whose row a word of its command line contains the name.
#[rustfmt::skip]
pub const AGENTS: &[(&str, &[&str])] = &[
    ("claude", &["ANTHROPIC_*", "CLAUDE_*"]),
    ("codex", &["OPENAI_*", "CODEX_*"]),
    ("gemini", &["GEMINI_*", "GOOGLE_*"]),
    ("copilot", &["COPILOT_*", "GH_TOKEN", "GITHUB_TOKEN"]),
    ("goose", &["GOOSE_*"]),
    ("opencode", &["OPENCODE_*"]),
    ("qwen", &["QWEN_*", "DASHSCOPE_*", "OPENAI_*"]),
    ("vibe", &["MISTRAL_*"]),
    ("kimi", &["KIMI_*", "MOONSHOT_*"]),
    ("cursor", &["CURSOR_*"]),
    ("auggie", &["AUGMENT_*"]),
    ("acp", &["ACP_*"]),
];

/// The agent's environment.
pub(super) fn environment(command: &AgentCommand) -> Vec<(OsString, OsString)> {
    let words: Vec<_> = std::iter::once(&command.program)
        .chain(&command.arguments)
        .map(|word| word.to_string_lossy())
        .collect();
    let own = AGENTS
        .iter()
        .filter(|(agent, _)| words.iter().any(|word| word.contains(agent)))
        .flat_map(|(_, patterns)| patterns.iter().copied());
    let patterns: Vec<&str> = INHERITED
        .iter()
        .copied()
        .chain(own)
        .chain(command.inherit.iter().map(String::as_str))
        .collect();
    let mut environment: Vec<_> = std::env::vars_os()
        .filter(|(name, _)| {
            let name = name.to_string_lossy();
            patterns.iter().any(|pattern| matches(pattern, &name))
        })
        .collect();
    environment.extend(command.environment.iter().cloned());
    environment
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_end_in_a_star_or_are_exact() {
        assert!(matches("LC_*", "LC_ALL"));
        assert!(!matches("PATH", "PATHEXT"));
        assert!(matches("*", "ANYTHING"));
    }
}
