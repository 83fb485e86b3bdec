//! Which variables of Consort's own environment an agent gets.

use super::AgentCommand;
use std::ffi::OsString;

/// Variables that every agent inherits: what programs need to find their files, their language and the network, and the
/// settings of the known agents themselves. Everything else, secrets of other programs included, stays out. A `*` at the
/// end stands for any ending.
pub const INHERITED: &[&str] = &[
    // Where things are.
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "PWD",
    "TMPDIR",
    "TMP",
    "TEMP",
    "XDG_*",
    // Language, terminal, display.
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "CLICOLOR*",
    "FORCE_COLOR",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "SSH_AUTH_SOCK",
    "DBUS_SESSION_BUS_ADDRESS",
    // The way to the network.
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "SSL_CERT_*",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    // Runtimes that agents are written for.
    "NODE_*",
    "NPM_*",
    "npm_*",
    "NVM_*",
    "FNM_*",
    "VOLTA_*",
    "BUN_*",
    "DENO_*",
    "PYTHON*",
    "VIRTUAL_ENV",
    "UV_*",
    "RUST_BACKTRACE",
    "RUST_LOG",
    // The known agents and the models that they talk to.
    "ACP_*",
    "AGENT_*",
    "ANTHROPIC_*",
    "CLAUDE_*",
    "OPENAI_*",
    "CODEX_*",
    "GEMINI_*",
    "GOOGLE_*",
    "COPILOT_*",
    "GOOSE_*",
    "OPENCODE_*",
    "QWEN_*",
    "DASHSCOPE_*",
    "MISTRAL_*",
    "KIMI_*",
    "MOONSHOT_*",
    "OPENROUTER_*",
    "CURSOR_*",
    "AUGGIE_*",
];

/// The agent's environment.
pub(super) fn environment(command: &AgentCommand) -> Vec<(OsString, OsString)> {
    let mut environment: Vec<_> = std::env::vars_os()
        .filter(|(name, _)| {
            let name = name.to_string_lossy();
            let inherited = INHERITED.iter().copied();
            inherited
                .chain(command.inherit.iter().map(String::as_str))
                .any(|pattern| matches(pattern, &name))
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
