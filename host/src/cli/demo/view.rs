//! The demo on the screen.

use super::difference::{self, Line};
use super::record::{Passage, Record};
use crate::build::Built;
use crate::cli::text::{Look, Paint, one_line, shortened, size};
use crate::tap::Place;
use std::env;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// The widest line, in columns.
const WIDTH: usize = 96;

pub(super) struct View<'a> {
    pub(super) paint: Paint,
    pub(super) proxies: &'a [Built],
    pub(super) record: Record,
    /// How long it took to build the proxies.
    pub(super) building: Duration,
}

/// Which way a message goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Down,
    Up,
}

impl View<'_> {
    pub(super) fn render(&self) -> String {
        let mut screen = String::from("\n");
        self.chain(&mut screen);
        self.journey(&mut screen, "The prompt goes down", &self.record.prompt, Way::Down);
        self.journey(&mut screen, "The answer comes up", &self.record.answer, Way::Up);
        self.summary(&mut screen);
        screen
    }

    fn chain(&self, screen: &mut String) {
        let names: Vec<String> = self
            .proxies
            .iter()
            .map(|proxy| {
                let name = self.paint.text(Look::Cyan, &one_line(&proxy.name));
                format!("[{name} {}]", size(proxy.size))
            })
            .collect();
        put(screen, &format!("  client ── {} ── demo agent", names.join(" ── ")));
    }

    fn journey(&self, screen: &mut String, title: &str, passages: &[Passage], way: Way) {
        let arrow = if way == Way::Down { "▼" } else { "▲" };
        put(screen, "");
        put(screen, &self.paint.text(Look::Bold, &format!("{arrow} {title}")));
        let first = match way {
            Way::Down => Place::Client,
            Way::Up => Place::Agent,
        };
        let Some(begun) = passages.iter().find(|passage| passage.from == first) else {
            put(screen, "  nothing was seen");
            return;
        };
        let sender = if way == Way::Down { "client" } else { "demo agent" };
        self.heading(screen, sender, &count(begun.messages));
        for line in begun.text.lines() {
            self.line(screen, ' ', Look::Dim, line, false);
        }
        let mut indices: Vec<usize> = (0..self.proxies.len()).collect();
        if way == Way::Up {
            indices.reverse();
        }
        for index in indices {
            let name = &self.proxies[index].name;
            let here = Place::Proxy(index);
            let text = |side: fn(&Passage) -> Place| -> Option<&Passage> {
                passages
                    .iter()
                    .find(|passage| side(passage) == here && way_of(passage) == way)
            };
            match (text(|passage| passage.to), text(|passage| passage.from)) {
                (Some(before), Some(after)) if before.text == after.text => {
                    self.heading(screen, name, "passed it on as it was");
                }
                (Some(before), Some(after)) => {
                    self.heading(screen, name, "changed it");
                    self.difference(screen, &before.text, &after.text);
                }
                (Some(_), None) => self.heading(screen, name, "kept it"),
                (None, _) => self.heading(screen, name, "did not ask for it and was not woken up"),
            }
        }
    }

    fn heading(&self, screen: &mut String, name: &str, what: &str) {
        let name = self.paint.text(Look::Cyan, &one_line(name));
        let what = self.paint.text(Look::Dim, what);
        put(screen, &format!("  {name}  {what}"));
    }

    fn difference(&self, screen: &mut String, before: &str, after: &str) {
        let lines = difference::lines(before, after);
        for line in difference::shortened(&lines) {
            match line {
                None => self.line(screen, ' ', Look::Dim, "…", true),
                Some(Line::Same(line)) => self.line(screen, ' ', Look::Dim, line, true),
                Some(Line::Removed(line)) => self.line(screen, '-', Look::Red, line, true),
                Some(Line::Added(line)) => self.line(screen, '+', Look::Green, line, true),
            }
        }
    }

    fn line(&self, screen: &mut String, sign: char, look: Look, line: &str, painted: bool) {
        let line = shortened(&one_line(line), WIDTH - 8);
        let line = format!("{sign} {line}");
        let line = if painted {
            self.paint.text(look, line.trim_end())
        } else {
            line.trim_end().to_owned()
        };
        put(screen, format!("    {line}").trim_end());
    }

    fn summary(&self, screen: &mut String) {
        let record = &self.record;
        let mut facts = vec![format!("{} proxies", self.proxies.len())];
        if self.proxies.iter().any(|proxy| proxy.changed) {
            facts.push(format!("built in {:.1} s", self.building.as_secs_f64()));
        }
        if let Some(ready) = record.ready {
            facts.push(format!("chain ready in {}", milliseconds(ready)));
        }
        if let Some(turn) = record.turn {
            facts.push(format!("turn took {}", milliseconds(turn)));
        }
        facts.push(format!("{} messages on all hops", record.hops));
        put(screen, "");
        put(screen, &self.paint.text(Look::Bold, &facts.join(", ")));
        put(
            screen,
            "Each proxy is a WebAssembly component in a sandbox of its own; the agent is a process as always.",
        );
        let folder = self.proxies.first().map_or_else(String::new, folder_of);
        let next = format!("consort prompt --proxies {} \"Hello\" -- YOUR-AGENT", one_line(&folder));
        put(screen, &format!("Next: {}", self.paint.text(Look::Green, &next)));
    }
}

/// Where the proxies are, as seen from the current directory.
fn folder_of(proxy: &Built) -> String {
    let folder = proxy.file.parent().unwrap_or(&proxy.file);
    let here = env::current_dir().ok();
    let short = here.and_then(|here| folder.strip_prefix(here).ok().map(Path::to_owned));
    short.unwrap_or_else(|| folder.to_owned()).display().to_string()
}

fn way_of(passage: &Passage) -> Way {
    if passage.from < passage.to { Way::Down } else { Way::Up }
}

fn count(messages: usize) -> String {
    match messages {
        1 => "sends".to_owned(),
        messages => format!("streams it in {messages} pieces"),
    }
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}

fn put(screen: &mut String, line: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(screen, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passage(from: Place, to: Place, text: &str) -> Passage {
        Passage {
            from,
            to,
            text: text.into(),
            messages: 1,
        }
    }

    #[test]
    fn each_proxy_is_shown_with_what_it_did() {
        let proxies: Vec<Built> = ["context", "redact"]
            .iter()
            .map(|name| Built {
                name: (*name).into(),
                file: "x.wasm".into(),
                size: 2048,
                changed: false,
                unsuitable: None,
            })
            .collect();
        let (client, context, redact, agent) = (Place::Client, Place::Proxy(0), Place::Proxy(1), Place::Agent);
        let record = Record {
            prompt: vec![
                passage(client, context, "[text]\nkey ghp_x\n"),
                passage(context, redact, "[rules]\n[text]\nkey ghp_x\n"),
                passage(redact, agent, "[rules]\n[text]\nkey ***\n"),
            ],
            answer: vec![
                passage(agent, redact, "token ghp_y\x1b[31m\n"),
                passage(redact, client, "token ***\n"),
            ],
            hops: 5,
            ..Record::default()
        };
        let view = View {
            paint: Paint(false),
            proxies: &proxies,
            record,
            building: Duration::ZERO,
        };
        let screen = view.render();
        let expected = "\
▼ The prompt goes down
  client  sends
      [text]
      key ghp_x
  context  changed it
    + [rules]
      [text]
      key ghp_x
  redact  changed it
      [rules]
      [text]
    - key ghp_x
    + key ***

▲ The answer comes up
  demo agent  sends
      token ghp_y\\u{1b}[31m
  redact  changed it
    - token ghp_y\\u{1b}[31m
    + token ***
  context  did not ask for it and was not woken up
";
        assert!(screen.contains(expected), "{screen}");
        assert!(!screen.contains('\x1b'));
    }
}
