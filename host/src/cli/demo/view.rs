//! The demo on the screen.

use super::difference::{self, Line};
use super::next;
use super::record::{Passage, Record};
use crate::build::Built;
use crate::cli::text::{Look, Paint, one_line, size, wrapped};
use crate::tap::Place;
use std::fmt::Write;
use std::time::Duration;

/// What is about to happen.
const INTRODUCTION: &str = "Consort sends a prompt with a secret in it through two proxies to a demo agent, which only repeats \
    what reaches it and adds a secret of its own.";

/// How many lines are shown at the beginning and at the end of a long text.
const SHOWN: (usize, usize) = (1, 3);

pub(super) struct View<'a> {
    pub(super) paint: Paint,
    pub(super) proxies: &'a [Built],
    pub(super) record: Record,
    /// How long it took to build the proxies.
    pub(super) building: Duration,
    /// How many columns there are.
    pub(super) width: usize,
}

/// What is shown before the chain is started.
pub(super) fn introduction(width: usize) -> String {
    wrapped(INTRODUCTION, width).join("\n") + "\n"
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
        match way {
            Way::Down => self.heading(screen, "client", "sends"),
            Way::Up => self.heading(screen, "demo agent", "answers"),
        }
        self.excerpt(screen, &begun.text);
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
                (None, _) => {
                    let what = if way == Way::Down { "prompts" } else { "answers" };
                    self.heading(screen, name, &format!("reads no {what}, so they go past it"));
                }
            }
        }
        let arrived = passages.iter().find(|passage| passage.to == Place::Client);
        if let (Way::Up, Some(arrived)) = (way, arrived) {
            self.heading(screen, "client", "receives");
            self.excerpt(screen, &arrived.text);
        }
    }

    /// The beginning and the end of a text.
    fn excerpt(&self, screen: &mut String, text: &str) {
        let lines: Vec<&str> = text.lines().collect();
        let (first, last) = SHOWN;
        let left_out = first..lines.len().saturating_sub(last);
        for (index, line) in lines.iter().enumerate() {
            // A single line is as short as what would stand for it.
            if left_out.len() < 2 || !left_out.contains(&index) {
                self.line(screen, ' ', Look::Dim, line, false);
            } else if index == left_out.start {
                self.line(screen, ' ', Look::Dim, "…", true);
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
        let lines = wrapped(&one_line(line), self.width.saturating_sub(6));
        for (index, line) in lines.iter().enumerate() {
            let line = format!("{} {line}", if index == 0 { sign } else { ' ' });
            let line = if painted {
                self.paint.text(look, line.trim_end())
            } else {
                line.trim_end().to_owned()
            };
            put(screen, format!("    {line}").trim_end());
        }
    }

    fn summary(&self, screen: &mut String) {
        let record = &self.record;
        let mut facts = vec![format!("{} proxies", self.proxies.len())];
        if self.proxies.iter().any(|proxy| proxy.changed) {
            facts.push(format!("built in {:.1} s", self.building.as_secs_f64()));
        }
        if let Some(ready) = record.ready {
            facts.push(format!("ready after {}", time(ready)));
        }
        if let Some(turn) = record.turn {
            facts.push(format!("prompt and answer took {}", time(turn)));
        }
        put(screen, "");
        for line in wrapped(&facts.join(", "), self.width) {
            put(screen, &self.paint.text(Look::Bold, &line));
        }
        let mut tell = |text: &str| {
            for line in wrapped(text, self.width) {
                put(screen, &line);
            }
        };
        tell("Each proxy is a WebAssembly component in a sandbox of its own; the agent is a process as always.");
        if let Some(folder) = self.proxies.first().and_then(|proxy| proxy.file.parent()) {
            tell("Next: the same with a prompt of yours. The demo agent answers, or yours if you add `-- AGENT`:");
            // Not wrapped, so that it can be copied.
            let command = one_line(&next::command(folder));
            put(screen, &format!("  {}", self.paint.text(Look::Green, &command)));
        }
    }
}

fn way_of(passage: &Passage) -> Way {
    if passage.from < passage.to { Way::Down } else { Way::Up }
}

fn time(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 1.0 {
        format!("{:.1} ms", seconds * 1000.0)
    } else {
        format!("{seconds:.1} s")
    }
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
        }
    }

    #[test]
    fn each_proxy_is_shown_with_what_it_did() {
        let proxies: Vec<Built> = ["context", "redact"]
            .iter()
            .map(|name| Built {
                warnings: Vec::new(),
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
                passage(agent, redact, "a\nb\nc\nd\nsay it again\ntoken ghp_y\x1b[31m\n"),
                passage(
                    redact,
                    client,
                    "a\nb\nc\nd\nsay it again\ntoken *** and more than fits\n",
                ),
            ],
            ..Record::default()
        };
        let view = View {
            paint: Paint(false),
            proxies: &proxies,
            record,
            building: Duration::ZERO,
            width: 26,
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
  demo agent  answers
      a
      …
      d
      say it again
      token
        ghp_y\\u{1b}[31m
  redact  changed it
      …
      d
      say it again
    - token
        ghp_y\\u{1b}[31m
    + token *** and more
        than fits
  context  reads no answers, so they go past it
  client  receives
      a
      …
      d
      say it again
      token *** and more
        than fits
";
        assert!(screen.contains(expected), "{screen}");
        assert!(!screen.contains('\x1b'));
    }
}
