//! `consort check`: a component tried out in a cage, and what came of it.

use super::text::{self, Look, Paint};
use super::{chain, exit, run, wishes};
use crate::check::{self, Did, Report, Timing};
use crate::config;
use crate::fault::Fault;
use crate::grants::Grant;
use crate::limits::{Limit, Settings};
use crate::tap::{Kind, Place};
use anyhow::anyhow;
use clap::{Args, ValueHint};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

/// Try a proxy out in a cage: a scripted session with ordinary and nasty messages
#[derive(Args, Debug)]
#[command(after_help = "\
The proxy gets the ordinary things that it asks for, and what --grant names. There is no agent, no editor and no file: what it \
asks for is answered with examples, and its sleeps end at once. Only a directory that you grant it is the real one.

Exit status: 0 if it went through without a fault, 1 if it had faults or did not start.

Examples:
  consort check redact.wasm
  consort check --grant decide-permissions --proxy-config '{\"default\": \"deny\"}' permission.wasm
  consort check --json stranger.wasm | jq .denied")]
pub(super) struct Arguments {
    /// The component
    #[arg(value_name = "FILE.wasm", value_parser = chain::path(), value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// What it may do beyond the ordinary things that it asks for
    #[arg(long = "grant", value_name = "GRANT", value_delimiter = ',')]
    grants: Vec<Grant>,
    /// What it gets as its configuration: JSON, or a file that holds it
    #[arg(long = "proxy-config", value_name = "JSON|@FILE")]
    configuration: Option<String>,
    /// A limit that differs, such as memory='16 MiB' or cpu='100 ms'
    #[arg(long = "limit", value_name = "NAME=VALUE", value_parser = limit)]
    limits: Vec<(Limit, u64)>,
    /// How long all of it may take [default: 60]
    #[arg(long, value_name = "SECONDS")]
    time: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn limit(text: &str) -> Result<(Limit, u64), String> {
    let names = || Limit::ALL.map(Limit::name).join(", ");
    let (name, value) = text.split_once('=').ok_or("it must have the form NAME=VALUE")?;
    let limit = Limit::named(name).ok_or_else(|| format!("no limit is named `{name}`; there are {}", names()))?;
    Ok((limit, limit.parse(value)?))
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let configuration = match arguments.configuration.as_deref() {
        None => config::NO_CONFIGURATION.to_owned(),
        Some(text) => chain::json_or_file("the configuration", text)?,
    };
    let settings: Settings = arguments.limits.clone();
    let runtime = run::start_runtime()?;
    let report = runtime.block_on(async {
        check::check(&check::Options {
            file: &arguments.file,
            configuration: &configuration,
            grants: &arguments.grants,
            time: arguments.time.map_or(check::TRIAL_TIME, Duration::from_secs),
            limits: &settings,
        })
        .await
    });
    runtime.shutdown_timeout(run::SHUTDOWN);
    let file = arguments.file.file_stem().unwrap_or_default().to_string_lossy();
    let report = report.map_err(|fault| anyhow!(fault.sentence(&file)))?;
    let failed =
        !report.trial.faults.is_empty() || !report.trial.unanswered.is_empty() || !report.trial.not_played.is_empty();
    if arguments.json {
        exit::print(&format!("{:#}\n", as_json(&report)))?;
    } else {
        let paint = Paint(text::colour(io::stdout().is_terminal()));
        exit::print(&as_text(&report, paint))?;
    }
    Ok(if failed { exit::FAILURE } else { exit::SUCCESS })
}

fn as_text(report: &Report, paint: Paint) -> String {
    let mut all = String::new();
    let mut row = |name: &str, value: &str| {
        let name = paint.text(Look::Bold, &format!("{name:<10}"));
        // Writing to a string cannot fail.
        let _ = writeln!(all, "{name} {value}");
    };
    match &report.manifest {
        None => row("manifest", "none: it may do nothing but what you grant it with --grant"),
        Some((manifest, _)) => {
            for (label, value) in wishes::rows(manifest, None, paint) {
                row(label, &value);
            }
        }
    }
    row("granted", &listed(report.grants.iter().map(Grant::without_value)));
    let interests = report.interests.iter().map(|interest| {
        let how = match interest.how {
            crate::message::How::Observe => "sees",
            crate::message::How::Intercept => "takes",
        };
        let method = text::one_line(&interest.method);
        format!("{how} {method} of the {}", interest.source.name())
    });
    row("interests", &listed(interests));
    let (compiled, started) = (shown(report.compiled), shown(report.started));
    row("start", &format!("compiled in {compiled}, started in {started}"));
    let mut label = "did";
    for line in did(&report.trial.did) {
        row(std::mem::take(&mut label), &line);
    }
    let mut label = "changed";
    for (source, method, times) in &report.trial.changed {
        let method = text::one_line(method);
        row(
            std::mem::take(&mut label),
            &format!("{method} from the {} ({times}×)", source.name()),
        );
    }
    let mut label = "denied";
    for (denial, times) in &report.trial.denials {
        let line = format!("{} ({times}×)", text::one_line(&denial.reason));
        row(std::mem::take(&mut label), &paint.text(Look::Yellow, &line));
    }
    let mut label = "time";
    for (method, timing) in slowest(&report.trial.timings) {
        let (median, longest) = (shown(timing.median()), shown(timing.longest()));
        let memory = match timing.growth() {
            0 => String::new(),
            growth => format!(", up to {} of memory more", text::size(growth)),
        };
        let line = format!(
            "{}: {median} a message, at most {longest}{memory} ({}×)",
            text::one_line(method),
            timing.count()
        );
        row(std::mem::take(&mut label), &line);
    }
    row("memory", &format!("{} at most", text::size(report.trial.memory)));
    let mut label = "faults";
    for line in faults(report) {
        row(std::mem::take(&mut label), &paint.text(Look::Red, &line));
    }
    if label == "faults" {
        row(label, &paint.text(Look::Green, "none"));
    }
    all
}

/// What went wrong, a line each.
fn faults(report: &Report) -> Vec<String> {
    let faults = report.trial.faults.iter().map(|(part, fault)| {
        let Fault { class, cause, .. } = fault;
        format!("{part}: {} ({})", text::one_line(cause), class.name())
    });
    let unanswered = report
        .trial
        .unanswered
        .iter()
        .map(|(part, times)| format!("{part}: {times} requests have no answer; this is a fault of Consort"));
    let parts = report.trial.not_played.join(", ");
    let not_played = (!parts.is_empty()).then(|| format!("there was no time left for: {parts}; --time gives it more"));
    faults.chain(unanswered).chain(not_played).collect()
}

/// The methods that took the longest.
fn slowest(timings: &[(String, Timing)]) -> Vec<&(String, Timing)> {
    const SHOWN: usize = 8;
    let mut slowest: Vec<_> = timings.iter().collect();
    slowest.sort_by_key(|(_, timing)| std::cmp::Reverse(timing.median()));
    slowest.truncate(SHOWN);
    slowest
}

/// What passed between the proxy and the others: a line for each of them and each way.
fn did(did: &[Did]) -> Vec<String> {
    let mut lines: BTreeMap<(Place, bool), Vec<String>> = BTreeMap::new();
    for Did {
        sent,
        peer,
        kind,
        method,
        times,
    } in did
    {
        let what = match (kind, method.as_str()) {
            (Kind::Request | Kind::Notification, method) => text::one_line(method),
            (Kind::Result, "") => "answers".to_owned(),
            (Kind::Error, "") => "errors".to_owned(),
            (Kind::Result, method) => format!("answers to {}", text::one_line(method)),
            (Kind::Error, method) => format!("errors to {}", text::one_line(method)),
        };
        lines
            .entry((*peer, *sent))
            .or_default()
            .push(format!("{what} {times}×"));
    }
    lines
        .into_iter()
        .map(|((peer, sent), what)| {
            let peer = match peer {
                Place::Client => "the client",
                Place::Host => "Consort",
                Place::Agent | Place::Proxy(_) => "the agent",
            };
            let way = if sent { "sent to" } else { "got from" };
            format!("{way} {peer}: {}", what.join(", "))
        })
        .collect()
}

fn listed(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    match items.is_empty() {
        true => "nothing".to_owned(),
        false => items.join(", "),
    }
}

/// A time for a person.
fn shown(time: Duration) -> String {
    match time.as_micros() {
        0..1_000 => format!("{} µs", time.as_micros()),
        1_000..10_000_000 => format!("{} ms", time.as_millis()),
        _ => format!("{} s", time.as_secs()),
    }
}

fn as_json(report: &Report) -> Value {
    let kind = |kind: Kind| match kind {
        Kind::Request => "request",
        Kind::Notification => "notification",
        Kind::Result => "result",
        Kind::Error => "error",
    };
    let peer = |place: Place| match place {
        Place::Client => "client",
        Place::Host => "host",
        Place::Agent | Place::Proxy(_) => "agent",
    };
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    json!({
        "sha256": report.sha256,
        "manifest": report.manifest.as_ref().map(|(manifest, _)| manifest.to_json()),
        "warnings": report.manifest.as_ref().map(|(_, warnings)| warnings),
        "granted": report.grants.iter().map(Grant::without_value).collect::<Vec<_>>(),
        "interests": report.interests.iter().map(|interest| json!({
            "source": interest.source.name(),
            "method": interest.method,
            "how": match interest.how { crate::message::How::Observe => "observe", crate::message::How::Intercept => "intercept" },
        })).collect::<Vec<_>>(),
        "compiledMicroseconds": micros(report.compiled),
        "startedMicroseconds": micros(report.started),
        "did": report.trial.did.iter().map(|did| json!({
            "sent": did.sent, "peer": peer(did.peer), "kind": kind(did.kind), "method": did.method, "times": did.times,
        })).collect::<Vec<_>>(),
        "changed": report.trial.changed.iter().map(|(source, method, times)| json!({
            "source": source.name(), "method": &**method, "times": times,
        })).collect::<Vec<_>>(),
        "denied": report.trial.denials.iter().map(|(denial, times)| json!({
            "peer": denial.peer.name(), "method": &*denial.method, "reason": denial.reason, "times": times,
        })).collect::<Vec<_>>(),
        "faults": report.trial.faults.iter().map(|(part, fault)| json!({
            "part": part, "class": fault.class.name(), "phase": fault.phase.name(), "cause": fault.cause,
        })).collect::<Vec<_>>(),
        "notPlayed": report.trial.not_played,
        "timings": report.trial.timings.iter().map(|(method, timing)| json!({
            "method": method, "count": timing.count(),
            "memoryGrowth": timing.growth(),
            "medianMicroseconds": micros(timing.median()), "longestMicroseconds": micros(timing.longest()),
        })).collect::<Vec<_>>(),
        "memory": report.trial.memory,
    })
}
