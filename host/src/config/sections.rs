//! The sections of `consort.toml` and what may stand in each.

use super::groups::Groups;
use super::reader::{Item, Reader, Table};
use super::{Configuration, LINES, NO_CONFIGURATION, is_name, name_of};
use crate::agent::AgentCommand;
use crate::audit::Level;
use crate::connection::ProxyOptions;
use crate::grants::Grant;
use crate::limits::{Limit, Settings, Unit};
use crate::message::OnFailure;
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;
use toml::de::DeValue;

impl Reader<'_> {
    pub(super) fn configuration(&self, table: &Table<'_>) -> anyhow::Result<Configuration> {
        self.only(
            table,
            "the file",
            &[
                "agent",
                "proxies",
                "groups",
                "grace-seconds",
                "max-line",
                "notices",
                "audit",
                "audit-file",
            ],
        )?;
        let mut configuration = Configuration::default();
        let groups = match table.get("groups") {
            Some(groups) => Groups::read(self, groups)?,
            None => Groups::default(),
        };
        if let Some(agent) = table.get("agent") {
            configuration.agent = Some(self.agent(agent)?);
        }
        if let Some(proxies) = table.get("proxies") {
            configuration.proxies = groups.members(self, proxies, "proxies")?;
        }
        if let Some(seconds) = table.get("grace-seconds") {
            configuration.grace_seconds = Some(self.integer(seconds, "grace-seconds")?);
        }
        if let Some(item) = table.get("notices") {
            configuration.notices = item
                .get_ref()
                .as_bool()
                .ok_or_else(|| self.expected(item, "notices", "true or false"))?;
        }
        if let Some(size) = table.get("max-line") {
            let size = self.size(size, "max-line", LINES)?;
            configuration.max_line = usize::try_from(size).ok();
        }
        if let Some(item) = table.get("audit") {
            let level = Level::named(self.string(item, "audit")?)
                .ok_or_else(|| self.wrong(item.span(), "`audit` must be \"off\", \"events\" or \"changes\""))?;
            configuration.audit = Some(level);
        }
        if let Some(file) = table.get("audit-file") {
            configuration.audit_file = Some(self.path(self.string(file, "audit-file")?));
        }
        configuration.groups = groups.all();
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

    pub(super) fn proxy(&self, item: &Item<'_>, place: &str, earlier: &[ProxyOptions]) -> anyhow::Result<ProxyOptions> {
        let table = self.table(item, place)?;
        self.only(
            table,
            &format!("[[{place}]]"),
            &["name", "file", "config", "grant", "limits", "on-failure", "group"],
        )?;
        let file = table
            .get("file")
            .ok_or_else(|| self.wrong(item.span(), "a proxy has neither `file` nor `group`"))?;
        let file = self.path(self.string(file, "file")?);
        let taken = |name: &str| earlier.iter().any(|proxy| proxy.name == name);
        let name = match table.get("name") {
            None => name_of(&file, taken),
            Some(item) => {
                let name = self.string(item, "name")?;
                if !is_name(name) {
                    return Err(self.wrong(
                        item.span(),
                        "a proxy's `name` must be one line of text without `/` or `=`",
                    ));
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
        let grants = match table.get("grant") {
            None => Vec::new(),
            Some(item) => self.grants(item)?,
        };
        let limits = match table.get("limits") {
            None => Settings::new(),
            Some(item) => self.limits(item)?,
        };
        let on_failure = match table.get("on-failure") {
            None => None,
            Some(item) => Some(
                OnFailure::named(self.string(item, "on-failure")?)
                    .ok_or_else(|| self.wrong(item.span(), "`on-failure` must be \"bypass\" or \"closed\""))?,
            ),
        };
        Ok(ProxyOptions {
            name,
            file,
            configuration,
            grants,
            common_grants: Vec::new(),
            limits,
            on_failure,
        })
    }

    fn grants(&self, item: &Item<'_>) -> anyhow::Result<Vec<Grant>> {
        let base = self.file.parent().unwrap_or_else(|| Path::new(""));
        let list = item
            .get_ref()
            .as_array()
            .ok_or_else(|| self.expected(item, "grant", "a list of grants"))?;
        list.iter()
            .map(|item| {
                let grant: Grant = self
                    .string(item, "grant")?
                    .parse()
                    .map_err(|reason: String| self.wrong(item.span(), &reason))?;
                Ok(grant.based(base))
            })
            .collect()
    }

    fn limits(&self, item: &Item<'_>) -> anyhow::Result<Settings> {
        let table = self.table(item, "limits")?;
        self.only(table, "`limits`", &Limit::ALL.map(Limit::name))?;
        let mut settings = Settings::new();
        for (name, item) in table {
            let Some(limit) = Limit::named(name.get_ref()) else {
                continue;
            };
            let value = match item.get_ref() {
                DeValue::String(text) => limit.parse(text),
                DeValue::Integer(_) if limit.unit() != Unit::Time => limit.check(self.integer(item, limit.name()).ok()),
                _ => limit.check(None),
            };
            settings.push((limit, value.map_err(|reason| self.wrong(item.span(), &reason))?));
        }
        settings.sort_by_key(|(limit, _)| *limit);
        Ok(settings)
    }
}
