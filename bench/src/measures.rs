//! The measures, and the order in which they are taken: contestants and numbers of proxies in turn, round after round.

mod big;
mod growth;
mod many;
mod stalled;
mod start;
mod traffic;
mod uninterested;

use crate::chain::Process;
use crate::client::Client;
use crate::contestants::{Contestant, Edits, Programs};
use crate::expected::Changes;
use crate::progress::Progress;
use crate::results::Results;
use crate::settings::Settings;
use anyhow::Context;
use std::process::Command;

/// What one measurement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) contestant: Contestant,
    pub(crate) proxies: usize,
}

/// All that a measure needs.
pub(crate) struct Bench {
    pub(crate) settings: Settings,
    pub(crate) programs: Programs,
    pub(crate) results: Results,
}

/// Something that can be measured.
pub(crate) struct Measure {
    /// The name for `--only`.
    pub(crate) name: &'static str,
    /// What it is, for the help.
    pub(crate) about: &'static str,
    /// In how many of the rounds it is taken, of five.
    rounds: usize,
    subjects: fn(&Settings) -> Vec<Subject>,
    run: fn(&mut Bench, Subject) -> anyhow::Result<()>,
}

/// All measures.
pub(crate) static ALL: &[Measure] = &[
    Measure {
        name: "traffic",
        about: "round trips, updates a second, prompts in flight, CPU, memory and order; each proxy edits each update",
        rounds: 5,
        subjects: all_subjects,
        run: traffic::edited_updates,
    },
    Measure {
        name: "permission",
        about: "round trips of prompts and of questions for permission; each proxy edits prompts, updates and questions",
        rounds: 5,
        subjects: all_subjects,
        run: traffic::edited_all,
    },
    Measure {
        name: "uninterested",
        about: "proxies that take part in nothing of what is sent",
        rounds: 5,
        subjects: uninterested::subjects,
        run: uninterested::run,
    },
    Measure {
        name: "start",
        about: "from the start to the answer of `initialize`, with and without compiled proxies",
        rounds: 3,
        subjects: start::subjects,
        run: start::run,
    },
    Measure {
        name: "big",
        about: "prompts of 1 and 16 MiB, edited and skipped",
        rounds: 3,
        subjects: big::subjects,
        run: big::run,
    },
    Measure {
        name: "stalled",
        about: "memory while the client does not read",
        rounds: 2,
        subjects: stalled::subjects,
        run: stalled::run,
    },
    Measure {
        name: "many",
        about: "many chains in one process",
        rounds: 1,
        subjects: many::subjects,
        run: many::run,
    },
    Measure {
        name: "growth",
        about: "cost with 1 to 10,000 sessions and unanswered requests, and with messages up to 63 MiB",
        rounds: 2,
        subjects: growth::subjects,
        run: growth::run,
    },
];

impl Measure {
    /// Its subjects, as far as they are wanted.
    fn wanted(&self, settings: &Settings) -> Vec<Subject> {
        if !settings.wants(self.name) {
            return Vec::new();
        }
        let mut subjects = (self.subjects)(settings);
        subjects.retain(|subject| settings.contestants.contains(&subject.contestant));
        subjects
    }
}

/// The most proxies that a chain of Consort has in what is wanted.
pub(crate) fn most_proxies(settings: &Settings) -> usize {
    let subjects = ALL.iter().flat_map(|measure| measure.wanted(settings));
    let of_consort = subjects.filter(|subject| subject.contestant == Contestant::Consort);
    of_consort.map(|subject| subject.proxies).max().unwrap_or(0)
}

impl Bench {
    /// Measures all that is wanted.
    pub(crate) fn run(&mut self, progress: &Progress) -> anyhow::Result<()> {
        let rounds = self.settings.rounds;
        self.compile()?;
        for round in 0..rounds {
            for measure in ALL {
                let rounds_of_it = (measure.rounds * rounds / 5).max(1);
                if round >= rounds_of_it {
                    continue;
                }
                for subject in measure.wanted(&self.settings) {
                    let what = format!(
                        "round {} of {rounds}: {}, {}, proxies: {}",
                        round + 1,
                        measure.name,
                        subject.contestant.name(),
                        subject.proxies
                    );
                    progress.say(&what);
                    (measure.run)(self, subject).context(what)?;
                }
            }
        }
        Ok(())
    }

    /// Has all components compiled, so that nothing but the cold start does that while it is measured.
    fn compile(&self) -> anyhow::Result<()> {
        let subject = Subject {
            contestant: Contestant::Consort,
            proxies: most_proxies(&self.settings),
        };
        for edits in [Edits::Updates, Edits::All] {
            self.start(subject, edits)?.initialize()?;
        }
        Ok(())
    }

    /// Starts a chain, without a word to it.
    fn start(&self, subject: Subject, edits: Edits) -> anyhow::Result<Client> {
        let Subject { contestant, proxies } = subject;
        let command = self.programs.chain(contestant, proxies, edits)?;
        self.start_with(command, proxies, edits)
    }

    /// Starts a chain with a command line of its own.
    fn start_with(&self, command: Command, proxies: usize, edits: Edits) -> anyhow::Result<Client> {
        let log = self.programs.work.join("last.log");
        let edited = |yes: bool| if yes { proxies } else { 0 };
        let changes = Changes {
            arrows: edited(edits.updates()),
            question_arrows: edited(edits.questions()),
            blocks: edited(edits.prompts()),
        };
        Client::new(Process::start(command, &log)?, changes)
    }

    /// Starts a chain and opens so many sessions.
    fn connect(&self, subject: Subject, edits: Edits, sessions: usize) -> anyhow::Result<Client> {
        let mut client = self.start(subject, edits)?;
        client.initialize()?;
        client.sessions(sessions)?;
        Ok(client)
    }
}

/// Every contestant with every number of proxies.
fn all_subjects(settings: &Settings) -> Vec<Subject> {
    subjects_with(&settings.proxies)
}

/// Every contestant with these numbers of proxies, next to each other with the same number.
fn subjects_with(numbers: &[usize]) -> Vec<Subject> {
    let all = numbers.iter().flat_map(|proxies| {
        Contestant::ALL.map(|contestant| Subject {
            contestant,
            proxies: *proxies,
        })
    });
    all.filter(|subject| subject.proxies == 0 || subject.contestant.has_proxies())
        .collect()
}
