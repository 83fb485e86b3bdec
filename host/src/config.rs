//! The configuration file `consort.toml`: what stands in it, and what is wrong with it. Must not know of the command line or of
//! how a chain works.

use crate::agent::AgentCommand;
use crate::connection::ProxyOptions;
pub use crate::sandbox::DEFAULT_MEMORY;
use anyhow::{Context, anyhow};
use serde_json::{Map, Number, Value};
use std::env;
use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The configuration of a proxy that has none, as JSON.
pub const NO_CONFIGURATION: &str = "{}";

/// The most memory in bytes that can be configured: a 32-bit WebAssembly memory has no more.
const MOST_MEMORY: u64 = 4 << 30;

/// What a configuration file says.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    /// The agent.
    pub agent: Option<AgentCommand>,
    /// The proxies, client side first.
    pub proxies: Vec<ProxyOptions>,
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

/// A path with the home directory in the place of a leading `~/`: editors start programs without a shell, which would do it.
pub fn expand_home(path: PathBuf) -> PathBuf {
    expand(path, env::var_os("HOME"))
}

fn expand(path: PathBuf, home: Option<OsString>) -> PathBuf {
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) if !rest.as_os_str().is_empty() && !home.is_empty() => Path::new(&home).join(rest),
        _ => path,
    }
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

/// Turns the parsed document into a configuration; keeps text and file for what it says about mistakes.
struct Reader<'a> {
    text: &'a str,
    file: &'a Path,
}

type Table<'a> = DeTable<'a>;
type Item<'a> = Spanned<DeValue<'a>>;

impl Reader<'_> {
    fn configuration(&self, table: &Table<'_>) -> anyhow::Result<Configuration> {
        self.only(table, "the file", &["agent", "proxies", "grace-seconds"])?;
        let mut configuration = Configuration::default();
        if let Some(agent) = table.get("agent") {
            configuration.agent = Some(self.agent(agent)?);
        }
        if let Some(proxies) = table.get("proxies") {
            let array = proxies.get_ref().as_array().ok_or_else(|| {
                self.wrong(
                    proxies.span(),
                    "`proxies` must be a list: each proxy is a table [[proxies]]",
                )
            })?;
            for proxy in array.iter() {
                let proxy = self.proxy(proxy, &configuration.proxies)?;
                configuration.proxies.push(proxy);
            }
        }
        if let Some(seconds) = table.get("grace-seconds") {
            configuration.grace_seconds = Some(self.integer(seconds, "grace-seconds")?);
        }
        Ok(configuration)
    }

    fn agent(&self, item: &Item<'_>) -> anyhow::Result<AgentCommand> {
        let table = self.table(item, "agent")?;
        self.only(table, "[agent]", &["command", "args", "env", "inherit-env", "cwd"])?;
        let command = table
            .get("command")
            .ok_or_else(|| self.wrong(item.span(), "[agent] has no `command`"))?;
        let program = self.string(command, "command")?;
        if program.is_empty() {
            return Err(self.wrong(command.span(), "`command` is empty"));
        }
        let mut agent = AgentCommand {
            // A name is looked up in PATH; a path is relative to the file.
            program: if program.contains('/') {
                self.path(program).into_os_string()
            } else {
                program.into()
            },
            arguments: Vec::new(),
            environment: Vec::new(),
            inherit: Vec::new(),
            directory: None,
        };
        if let Some(item) = table.get("args") {
            agent.arguments = self.strings(item, "args")?;
        }
        if let Some(item) = table.get("inherit-env") {
            agent.inherit = self.strings(item, "inherit-env")?;
        }
        if let Some(item) = table.get("env") {
            for (name, value) in self.table(item, "env")? {
                let value = self.string(value, name.get_ref())?;
                agent
                    .environment
                    .push((OsString::from(name.get_ref().as_ref()), value.into()));
            }
        }
        if let Some(item) = table.get("cwd") {
            agent.directory = Some(self.path(self.string(item, "cwd")?));
        }
        Ok(agent)
    }

    fn proxy(&self, item: &Item<'_>, earlier: &[ProxyOptions]) -> anyhow::Result<ProxyOptions> {
        let table = self.table(item, "proxies")?;
        self.only(table, "[[proxies]]", &["name", "file", "config", "memory"])?;
        let file = table
            .get("file")
            .ok_or_else(|| self.wrong(item.span(), "a proxy has no `file`"))?;
        let file = self.path(self.string(file, "file")?);
        let taken = |name: &str| earlier.iter().any(|proxy| proxy.name == name);
        let name = match table.get("name") {
            None => name_of(&file, taken),
            Some(item) => {
                let name = self.string(item, "name")?;
                if name.is_empty() || name.contains(char::is_control) {
                    return Err(self.wrong(item.span(), "a proxy's `name` must be one line of text"));
                }
                if taken(name) {
                    return Err(self.wrong(
                        item.span(),
                        &format!("two proxies are named \"{name}\"; give one of them another `name`"),
                    ));
                }
                name.to_owned()
            }
        };
        let configuration = match table.get("config") {
            None => NO_CONFIGURATION.to_owned(),
            Some(item) => Value::Object(self.object(self.table(item, "config")?)?).to_string(),
        };
        let memory = match table.get("memory") {
            None => DEFAULT_MEMORY,
            Some(item) => self.memory(item)?,
        };
        Ok(ProxyOptions {
            name,
            file,
            configuration,
            memory,
        })
    }

    /// A number of bytes, or a text like `16 MiB`.
    fn memory(&self, item: &Item<'_>) -> anyhow::Result<u64> {
        let bytes = match item.get_ref() {
            DeValue::String(text) => bytes(text),
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        bytes
            .filter(|bytes| (1..=MOST_MEMORY).contains(bytes))
            .ok_or_else(|| self.wrong(item.span(), "`memory` must be a size up to 4 GiB, such as \"16 MiB\""))
    }

    fn table<'a, 'i>(&self, item: &'a Item<'i>, name: &str) -> anyhow::Result<&'a Table<'i>> {
        item.get_ref()
            .as_table()
            .ok_or_else(|| self.expected(item, name, "a table"))
    }

    fn string<'a>(&self, item: &'a Item<'_>, name: &str) -> anyhow::Result<&'a str> {
        item.get_ref()
            .as_str()
            .ok_or_else(|| self.expected(item, name, "a string"))
    }

    fn strings<T: From<String>>(&self, item: &Item<'_>, name: &str) -> anyhow::Result<Vec<T>> {
        let array = item
            .get_ref()
            .as_array()
            .ok_or_else(|| self.expected(item, name, "a list of strings"))?;
        array
            .iter()
            .map(|item| Ok(self.string(item, name)?.to_owned().into()))
            .collect()
    }

    fn integer(&self, item: &Item<'_>, name: &str) -> anyhow::Result<u64> {
        item.get_ref()
            .as_integer()
            .and_then(|number| u64::from_str_radix(number.as_str(), number.radix()).ok())
            .ok_or_else(|| self.expected(item, name, "a whole number, not negative"))
    }

    fn object(&self, table: &Table<'_>) -> anyhow::Result<Map<String, Value>> {
        table
            .iter()
            .map(|(key, item)| Ok((key.get_ref().to_string(), self.json(item)?)))
            .collect()
    }

    fn json(&self, item: &Item<'_>) -> anyhow::Result<Value> {
        Ok(match item.get_ref() {
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Boolean(value) => Value::Bool(*value),
            DeValue::Datetime(moment) => Value::String(moment.to_string()),
            DeValue::Integer(number) => {
                let (text, radix) = (number.as_str(), number.radix());
                let value = i64::from_str_radix(text, radix)
                    .map(Number::from)
                    .or_else(|_| u64::from_str_radix(text, radix).map(Number::from));
                Value::Number(value.map_err(|_| self.wrong(item.span(), &format!("{text} is too large a number")))?)
            }
            DeValue::Float(number) => number
                .as_str()
                .parse()
                .ok()
                .and_then(Number::from_f64)
                .map(Value::Number)
                .ok_or_else(|| self.wrong(item.span(), &format!("{} has no place in JSON", number.as_str())))?,
            DeValue::Array(items) => Value::Array(
                items
                    .iter()
                    .map(|item| self.json(item))
                    .collect::<anyhow::Result<_>>()?,
            ),
            DeValue::Table(table) => Value::Object(self.object(table)?),
        })
    }

    /// A path of the file, relative to the file's folder or to the home directory.
    fn path(&self, text: &str) -> PathBuf {
        let path = expand_home(text.into());
        match self.file.parent() {
            Some(folder) => folder.join(path),
            None => path,
        }
    }

    /// Complains about the first key that is not among the known ones.
    fn only(&self, table: &Table<'_>, place: &str, known: &[&str]) -> anyhow::Result<()> {
        let unknown = table
            .iter()
            .map(|(key, _)| key)
            .filter(|key| !known.contains(&key.get_ref().as_ref()))
            .min_by_key(|key| key.span().start);
        let Some(key) = unknown else { return Ok(()) };
        let hint = match nearest(key.get_ref(), known) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("known are {}", known.join(", ")),
        };
        Err(self.wrong(
            key.span(),
            &format!("unknown key `{}` in {place}; {hint}", key.get_ref()),
        ))
    }

    fn expected(&self, item: &Item<'_>, name: &str, what: &str) -> anyhow::Error {
        self.wrong(
            item.span(),
            &format!(
                "`{name}` must be {what}, not {}",
                match item.get_ref() {
                    DeValue::String(_) => "a string",
                    DeValue::Integer(_) | DeValue::Float(_) => "a number",
                    DeValue::Boolean(_) => "true or false",
                    DeValue::Datetime(_) => "a date",
                    DeValue::Array(_) => "a list",
                    DeValue::Table(_) => "a table",
                }
            ),
        )
    }

    fn wrong(&self, span: Range<usize>, what: &str) -> anyhow::Error {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        anyhow!("{}:{line}: {what}", self.file.display())
    }
}

fn one_line(text: &str) -> String {
    text.lines().collect::<Vec<_>>().join(", ")
}

/// A size such as `16 MiB`, `16MiB`, `512 KiB` or `1 GiB`.
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|character: char| !character.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim_start() {
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// The known name that the other one was probably meant to be.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|candidate| (distance(name, candidate), *candidate))
        // A third of the letters may be wrong.
        .filter(|(distance, candidate)| *distance <= candidate.chars().count().div_ceil(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many letters have to be inserted, removed or replaced to turn one word into the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut previous: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.chars().enumerate() {
        let mut current = vec![row + 1];
        for (column, candidate) in other.iter().enumerate() {
            let replaced = previous[column] + usize::from(letter != *candidate);
            current.push(replaced.min(previous[column + 1] + 1).min(current[column] + 1));
        }
        previous = current;
    }
    previous[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

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
            memory = "16 MiB"
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
        let names: Vec<_> = configuration.proxies.iter().map(|proxy| proxy.name.as_str()).collect();
        assert_eq!(names, ["context", "context-2", "mine"]);
        let first = &configuration.proxies[0];
        assert_eq!(first.file, Path::new("/etc/consort/context.wasm"));
        assert_eq!(first.memory, 16 << 20);
        assert_eq!(
            serde_json::from_str::<Value>(&first.configuration).unwrap(),
            serde_json::json!({"files": ["AGENTS.md"], "when": "1979-05-27", "share": 0.5, "big": 255, "deep": {"yes": true}})
        );
        assert_eq!(configuration.proxies[1].file, Path::new("/opt/context.wasm"));
        assert_eq!(configuration.proxies[1].memory, DEFAULT_MEMORY);
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
            "/etc/consort/consort.toml:5: unknown key `quux` in [[proxies]]; known are name, file, config, memory"
        );
        assert_eq!(
            complaint("[agent]\ncommand = 7\n"),
            "/etc/consort/consort.toml:2: `command` must be a string, not a number"
        );
        assert!(complaint("[agent]\nargs = [").starts_with("/etc/consort/consort.toml:2: "));
        assert!(complaint("[proxies]\nfile = \"a\"").contains("[[proxies]]"));
        assert!(complaint("[[proxies]]\nname = \"a\"").contains("no `file`"));
        assert!(complaint("[agent]\nargs = []").contains("no `command`"));
        assert!(complaint("[[proxies]]\nfile = \"a\"\nmemory = \"5 TiB\"").contains("16 MiB"));
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
    fn only_a_leading_tilde_and_slash_is_the_home_directory() {
        let expanded = |text: &str| expand(text.into(), Some("/home/me".into()));
        assert_eq!(expanded("~/a/b.wasm"), Path::new("/home/me/a/b.wasm"));
        for path in ["a/~/b", "~you/a", "~", "/a", ""] {
            assert_eq!(expanded(path), Path::new(path));
        }
        for home in [None, Some(OsString::new())] {
            assert_eq!(expand("~/a".into(), home), Path::new("~/a"));
        }
    }

    #[test]
    fn the_nearest_name_is_found_or_none() {
        assert_eq!(nearest("inherit_env", &["env", "inherit-env"]), Some("inherit-env"));
        assert_eq!(nearest("proxy", &["agent", "proxies"]), Some("proxies"));
        assert_eq!(nearest("zzz", &["agent", "proxies"]), None);
    }
}
