//! The configuration file `consort.toml`: what stands in it, and what is wrong with it. Must not know of the command line or of
//! how a chain works.

mod groups;
mod reader;
mod sections;

use crate::agent::AgentCommand;
use crate::audit::Level;
use crate::connection::ProxyOptions;
pub use crate::folders::expand_home;
use crate::units;
use anyhow::Context;
use reader::{Reader, one_line};
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use toml::de::DeTable;

/// The configuration of a proxy that has none, as JSON.
pub const NO_CONFIGURATION: &str = "{}";

/// The longest line in bytes that can be configured. Shorter ones would cut what agents send in every session, and the text of
/// longer ones would not fit into a proxy.
pub(crate) const LINES: RangeInclusive<u64> = 64 << 10..=1 << 30;

/// What a configuration file says.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    /// The agent.
    pub agent: Option<AgentCommand>,
    /// The proxies, client side first.
    pub proxies: Vec<ProxyOptions>,
    /// The groups of proxies by name, each with the members of its groups in their places.
    pub groups: BTreeMap<String, Vec<ProxyOptions>>,
    /// The longest line in bytes that is taken from either side.
    pub max_line: Option<usize>,
    /// Whether faults of proxies are told in the sessions that they concern.
    pub notices: bool,
    /// What is written to the audit file.
    pub audit: Option<Level>,
    /// The audit file.
    pub audit_file: Option<PathBuf>,
    /// How many seconds pending requests may go on after the end of the client's input.
    pub grace_seconds: Option<u64>,
}

/// Where the user's configuration file is, whether or not it is there: `$XDG_CONFIG_HOME/consort/consort.toml`, or the same under
/// `~/.config`.
pub fn user_file() -> Option<PathBuf> {
    let folder = match env::var_os("XDG_CONFIG_HOME").map(PathBuf::from) {
        Some(folder) if folder.is_absolute() => folder,
        _ => PathBuf::from(env::var_os("HOME").filter(|home| !home.is_empty())?).join(".config"),
    };
    Some(folder.join("consort").join("consort.toml"))
}

/// A proxy's name: its file's name without the ending, with a number behind it if `taken` says so.
pub fn name_of(file: &Path, taken: impl Fn(&str) -> bool) -> String {
    let stem = file
        .file_stem()
        .map_or_else(|| "proxy".into(), |stem| stem.to_string_lossy())
        .replace(char::is_control, "?");
    if !taken(&stem) {
        return stem;
    }
    let mut number = 2_u64;
    loop {
        let name = format!("{stem}-{number}");
        if !taken(&name) {
            return name;
        }
        number += 1;
    }
}

/// Whether a name can be given to a proxy or a group: `/` parts a group from its members, `=` a name from a value.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '=']) && !name.contains(char::is_control)
}

/// Puts a group's members behind other proxies, under names that tell where they belong: `GROUP/MEMBER`.
pub fn join(group: &str, members: &[ProxyOptions], proxies: &mut Vec<ProxyOptions>) {
    let label = name_of(Path::new(&format!("{group}.")), |label| {
        let prefix = format!("{label}/");
        proxies.iter().any(|proxy| proxy.name.starts_with(&prefix))
    });
    proxies.extend(members.iter().map(|member| ProxyOptions {
        name: format!("{label}/{}", member.name),
        ..member.clone()
    }));
}

/// A size such as `16 MiB`, `16MiB`, `512 KiB` or `1 GiB`, in bytes.
///
/// # Errors
///
/// A sentence if it is none, or not among the allowed ones.
pub(crate) fn size(text: &str, allowed: RangeInclusive<u64>) -> Result<u64, String> {
    units::bytes(text)
        .filter(|bytes| allowed.contains(bytes))
        .ok_or_else(|| {
            let (least, most) = (units::shown(*allowed.start()), units::shown(*allowed.end()));
            format!("it must be a size from {least} to {most}, such as \"16 MiB\"")
        })
}

impl Configuration {
    /// Reads a configuration file.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, is not TOML, or says something that Consort does not know; the error names file and line.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(file)
            .with_context(|| format!("cannot read the configuration file {}", file.display()))?;
        Self::parse(&text, file)
    }

    /// The same for text that was read from `file`. Relative paths are relative to the file's folder,
    /// and those that begin with `~/` to the home directory.
    ///
    /// # Errors
    ///
    /// As for [`Configuration::read`].
    pub fn parse(text: &str, file: &Path) -> anyhow::Result<Self> {
        let reader = Reader { text, file };
        let document = DeTable::parse(text)
            .map_err(|error| reader.wrong(error.span().unwrap_or(0..0), &one_line(error.message())))?;
        reader.configuration(document.get_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limit;
    use serde_json::Value;

    fn parse(text: &str) -> anyhow::Result<Configuration> {
        Configuration::parse(text, Path::new("/etc/consort/consort.toml"))
    }

    fn complaint(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn everything_that_can_be_said_is_understood() {
        let configuration = parse(
            r#"
            grace-seconds = 5
            notices = true
            audit = "changes"
            audit-file = "audit.jsonl"
            [agent]
            command = "claude-agent-acp"
            args = ["--x", "y z"]
            inherit-env = ["ANTHROPIC_*"]
            cwd = "/tmp"
            [agent.env]
            KEY = "value"
            [[proxies]]
            file = "context.wasm"
            config = { files = ["AGENTS.md"], when = 1979-05-27, share = 0.5, big = 0xff, deep = { yes = true } }
            grant = ["decide-permissions", "directory:~/notes=/notes", "directory:docs"]
            limits = { memory = "16 MiB", cpu = "2 s", requests = 7 }
            [[proxies]]
            file = "/opt/context.wasm"
            [[proxies]]
            name = "mine"
            file = "context.wasm"
            "#,
        )
        .unwrap();
        let agent = configuration.agent.unwrap();
        assert_eq!(agent.program, "claude-agent-acp");
        assert_eq!(agent.arguments, ["--x", "y z"]);
        assert_eq!(agent.inherit, ["ANTHROPIC_*"]);
        assert_eq!(agent.environment, [("KEY".into(), "value".into())]);
        assert_eq!(agent.directory.as_deref(), Some(Path::new("/tmp")));
        assert_eq!(configuration.grace_seconds, Some(5));
        assert!(configuration.notices);
        assert_eq!(configuration.audit, Some(Level::Changes));
        assert_eq!(
            configuration.audit_file.as_deref(),
            Some(Path::new("/etc/consort/audit.jsonl"))
        );
        let names: Vec<_> = configuration.proxies.iter().map(|proxy| proxy.name.as_str()).collect();
        assert_eq!(names, ["context", "context-2", "mine"]);
        let first = &configuration.proxies[0];
        assert_eq!(first.file, Path::new("/etc/consort/context.wasm"));
        assert_eq!(
            first.limits,
            [(Limit::Memory, 16 << 20), (Limit::Cpu, 2_000), (Limit::Requests, 7)]
        );
        let grants: Vec<_> = first.grants.iter().map(ToString::to_string).collect();
        assert_eq!(grants[0], "decide-permissions");
        assert!(
            grants[1].ends_with("/notes=/notes") && !grants[1].contains('~'),
            "{grants:?}"
        );
        assert_eq!(grants[2], "directory:/etc/consort/docs=docs");
        assert_eq!(
            serde_json::from_str::<Value>(&first.configuration).unwrap(),
            serde_json::json!({"files": ["AGENTS.md"], "when": "1979-05-27", "share": 0.5, "big": 255, "deep": {"yes": true}})
        );
        assert_eq!(configuration.proxies[1].file, Path::new("/opt/context.wasm"));
        assert!(configuration.proxies[1].limits.is_empty());
        assert_eq!(configuration.proxies[1].configuration, NO_CONFIGURATION);
    }

    #[test]
    fn mistakes_are_named_with_file_and_line() {
        assert_eq!(
            complaint("[agent]\ncomand = \"x\"\n"),
            "/etc/consort/consort.toml:2: unknown key `comand` in [agent]; did you mean `command`?"
        );
        assert_eq!(
            complaint("\n\n[[proxies]]\nfile = \"a.wasm\"\nquux = 1\n"),
            "/etc/consort/consort.toml:5: unknown key `quux` in [[proxies]]; known are name, file, config, grant, limits, on-failure, group"
        );
        assert_eq!(
            complaint("[agent]\ncommand = 7\n"),
            "/etc/consort/consort.toml:2: `command` must be a string, not a number"
        );
        assert!(complaint("[agent]\nargs = [").starts_with("/etc/consort/consort.toml:2: "));
        assert_eq!(
            complaint("audit = \"on\""),
            "/etc/consort/consort.toml:1: `audit` must be \"off\", \"events\" or \"changes\""
        );
        assert!(complaint("[proxies]\nfile = \"a\"").contains("[[proxies]]"));
        assert!(complaint("[[proxies]]\nname = \"a\"").contains("neither `file` nor `group`"));
        assert!(complaint("[agent]\nargs = []").contains("no `command`"));
        for (limits, word) in [
            ("{ memory = \"5 TiB\" }", "16 MiB"),
            ("{ memory = 1 }", "`memory`"),
            ("{ cpu = 5 }", "10 s"),
            ("{ memmory = 5 }", "did you mean `memory`?"),
            ("7", "must be a table"),
        ] {
            let said = complaint(&format!("[[proxies]]\nfile = \"a\"\nlimits = {limits}"));
            assert!(
                said.starts_with("/etc/consort/consort.toml:3: ") && said.contains(word),
                "{said}"
            );
        }
        let said = complaint("[[proxies]]\nfile = \"a\"\ngrant = [\"read-prompts\", \"nonsense\"]");
        assert!(said.contains("consort.toml:3: ") && said.contains("nonsense"), "{said}");
        assert!(complaint("[[proxies]]\nfile = \"a\"\nconfig = { x = inf }").contains("JSON"));
        assert!(
            complaint("[[proxies]]\nfile=\"a\"\nname=\"n\"\n[[proxies]]\nfile=\"b\"\nname=\"n\"")
                .contains("two proxies are named \"n\"")
        );
    }

    #[test]
    fn a_command_that_is_a_path_is_relative_to_the_file() {
        let agent = parse("[agent]\ncommand = \"bin/agent\"").unwrap().agent.unwrap();
        assert_eq!(agent.program, "/etc/consort/bin/agent");
    }

    #[test]
    fn a_group_is_its_members_in_its_place() {
        let configuration = parse(
            r#"
            max-line = "1 MiB"
            [[proxies]]
            file = "first.wasm"
            [[proxies]]
            group = "outer"
            [[proxies]]
            group = "inner"
            [[proxies]]
            group = "inner"
            [groups]
            outer = [{ file = "a.wasm" }, { group = "inner" }, { file = "a.wasm" }]
            inner = [{ file = "b.wasm", config = { x = 1 } }]
            "#,
        )
        .unwrap();
        let names: Vec<_> = configuration.proxies.iter().map(|proxy| proxy.name.as_str()).collect();
        assert_eq!(
            names,
            ["first", "outer/a", "outer/inner/b", "outer/a-2", "inner/b", "inner-2/b"]
        );
        assert_eq!(configuration.proxies[2].file, Path::new("/etc/consort/b.wasm"));
        assert_eq!(configuration.proxies[2].configuration, r#"{"x":1}"#);
        assert_eq!(configuration.groups["outer"].len(), 3);
        assert_eq!(configuration.max_line, Some(1 << 20));
    }

    #[test]
    fn mistakes_in_groups_are_named() {
        assert_eq!(
            complaint("[groups]\na = [{ group = \"b\" }]\nb = [{ group = \"c\" }]\nc = [{ group = \"a\" }]"),
            "/etc/consort/consort.toml:4: a group contains itself: \"a\" → \"b\" → \"c\" → \"a\""
        );
        assert_eq!(
            complaint("[[proxies]]\ngroup = \"x\"\n[groups]\na = []"),
            "/etc/consort/consort.toml:1: there is no group \"x\"; there are a"
        );
        assert_eq!(
            complaint("[groups]\na = [{ group = \"safty\" }]\nsafety = []"),
            "/etc/consort/consort.toml:2: there is no group \"safty\"; did you mean \"safety\"? There are a, safety"
        );
        assert!(complaint("[groups]\n\"a b\" = 1").contains(r#"[[groups."a b"]]"#));
        assert!(complaint("[groups]\n'a\"\\' = 1").contains(r#"[[groups."a\"\\"]]"#));
        assert!(complaint("[[proxies]]\ngroup = \"x\"").contains("no [groups]"));
        assert!(complaint("[[proxies]]\ngroup = \"a\"\nfile = \"f\"\n[groups]\na = []").contains("`file`"));
        assert!(complaint("[groups]\n\"a/b\" = []").contains("without `/`"));
        assert!(complaint("groups = 1").contains("must be a table"));
        let mut explosion = String::from("[groups]\ng0 = [{ file = \"a\" }]\n");
        for number in 1..12 {
            let before = number - 1;
            explosion += &format!("g{number} = [{{ group = \"g{before}\" }}, {{ group = \"g{before}\" }}]\n");
        }
        assert!(complaint(&explosion).contains("more than 1000 proxies"));
        assert!(complaint("max-line = \"1 KiB\"").contains("from 64 KiB to 1 GiB"));
    }
}
