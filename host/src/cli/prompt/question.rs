//! Who decides on a permission: an option of the command line, or the person at the terminal.

use agent_client_protocol_schema::v1::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, SelectedPermissionOutcome,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::termios::{QueueSelector, tcflush};
use std::fs::File;
use std::future;
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc as blocking;
use std::thread;
use tokio::sync::mpsc;

/// What is done about permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Policy {
    Ask,
    Allow,
    Reject,
}

/// The outcome by an option that the agent offered: the one that lasts least among those of the right kind, else `cancelled`.
pub(super) fn by_kind(options: &[PermissionOption], policy: Policy) -> RequestPermissionOutcome {
    let kinds = match policy {
        Policy::Allow => [PermissionOptionKind::AllowOnce, PermissionOptionKind::AllowAlways],
        Policy::Ask | Policy::Reject => [PermissionOptionKind::RejectOnce, PermissionOptionKind::RejectAlways],
    };
    kinds
        .iter()
        .find_map(|kind| options.iter().find(|option| option.kind == *kind))
        .map_or(RequestPermissionOutcome::Cancelled, |option| {
            RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option.option_id.clone()))
        })
}

/// No line that is typed on a terminal is longer, in bytes.
const MAX_LINE: usize = 4096;

/// Reads answers from the terminal, one for each question. A line that was typed before its question was asked is thrown away.
#[derive(Default)]
pub(super) struct Questions {
    reader: Option<Reader>,
}

struct Reader {
    terminal: File,
    /// The number of the question on the screen.
    question: Arc<AtomicU64>,
    ask: blocking::SyncSender<()>,
    lines: mpsc::Receiver<Line>,
}

struct Line {
    /// The question that was on the screen when the line could be read.
    question: u64,
    text: String,
}

impl Questions {
    /// Whether there is a terminal to ask on, one that shows questions and takes answers.
    pub(super) fn can_ask(&mut self) -> bool {
        if self.reader.is_none() && io::stderr().is_terminal() {
            self.reader = terminal().and_then(|file| start(file).ok());
        }
        self.reader.is_some()
    }

    /// Begins a question and throws away what was typed before; to be called before it is shown.
    pub(super) fn forget(&mut self) {
        if let Some(reader) = &mut self.reader {
            // A terminal that cannot be flushed can still be read.
            let _ = tcflush(&reader.terminal, QueueSelector::IFlush);
            // Last, so that the thread never takes an old line for an answer to this question.
            reader.question.fetch_add(1, Ordering::SeqCst);
            while reader.lines.try_recv().is_ok() {}
        }
    }

    /// Wants a line.
    pub(super) fn ask(&mut self) {
        if let Some(reader) = &self.reader {
            // Full if the thread has yet to begin with what an earlier question wanted, which was withdrawn.
            let _ = reader.ask.try_send(());
        }
    }

    /// The next line; empty at the end of input. Never ready if nothing can be read.
    pub(super) async fn answer(&mut self) -> String {
        let Some(reader) = &mut self.reader else {
            return future::pending().await;
        };
        loop {
            match reader.lines.recv().await {
                Some(line) if line.question == reader.question.load(Ordering::SeqCst) => return line.text,
                Some(_) => {}
                None => return String::new(),
            }
        }
    }
}

/// Standard input if it is a terminal, else the terminal that the program was started from.
fn terminal() -> Option<File> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Some(File::from(stdin.as_fd().try_clone_to_owned().ok()?));
    }
    File::open("/dev/tty").ok()
}

fn start(mut file: File) -> io::Result<Reader> {
    let terminal = file.try_clone()?;
    let question = Arc::new(AtomicU64::new(0));
    let current = Arc::clone(&question);
    let (ask, asked) = blocking::sync_channel(1);
    let (sender, lines) = mpsc::channel(1);
    // Not waited for at the end: it may be in a read.
    thread::Builder::new().name("terminal".into()).spawn(move || {
        // A terminal gives one line at a time.
        let mut buffer = vec![0; MAX_LINE];
        while asked.recv().is_ok() {
            // The question that the line answers is the one on the screen when it comes, not the one that this began to wait for. Where
            // nothing can be waited for, the line only counts for the latter.
            let _ = retry_on_intr(|| poll(&mut [PollFd::new(&file, PollFlags::IN)], None));
            let question = current.load(Ordering::SeqCst);
            let length = file.read(&mut buffer).unwrap_or_default();
            let text = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()).into_owned();
            if sender.blocking_send(Line { question, text }).is_err() {
                break;
            }
        }
    })?;
    Ok(Reader {
        terminal,
        question,
        ask,
        lines,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::time::{Duration, Instant};

    fn chosen(kinds: &[PermissionOptionKind], policy: Policy) -> Option<String> {
        let options: Vec<_> = kinds
            .iter()
            .enumerate()
            .map(|(number, kind)| PermissionOption::new(number.to_string(), "Same name", *kind))
            .collect();
        match by_kind(&options, policy) {
            RequestPermissionOutcome::Selected(selected) => Some(selected.option_id.0.to_string()),
            _ => None,
        }
    }

    #[test]
    fn an_option_that_was_offered_is_chosen_by_its_kind() {
        use PermissionOptionKind::{AllowAlways, AllowOnce, RejectAlways, RejectOnce};
        let all = [AllowAlways, RejectAlways, AllowOnce, RejectOnce];
        assert_eq!(chosen(&all, Policy::Allow).as_deref(), Some("2"));
        assert_eq!(chosen(&all, Policy::Reject).as_deref(), Some("3"));
        assert_eq!(chosen(&[AllowAlways], Policy::Allow).as_deref(), Some("0"));
        assert_eq!(chosen(&[AllowAlways], Policy::Reject), None);
        assert_eq!(chosen(&[RejectOnce], Policy::Allow), None);
    }

    /// Questions that are asked on a pipe, and the end to type into.
    fn questions() -> (Questions, impl Write) {
        let (terminal, keyboard) = io::pipe().unwrap();
        let reader = start(File::from(OwnedFd::from(terminal))).unwrap();
        (Questions { reader: Some(reader) }, keyboard)
    }

    fn ask(questions: &mut Questions) {
        questions.forget();
        questions.ask();
    }

    fn has_line(questions: &Questions) -> bool {
        let lines = &questions.reader.as_ref().unwrap().lines;
        let patience = Instant::now() + Duration::from_secs(30);
        while lines.is_empty() && Instant::now() < patience {
            thread::sleep(Duration::from_millis(1));
        }
        !lines.is_empty()
    }

    #[tokio::test]
    async fn the_answer_to_a_withdrawn_question_is_not_that_to_the_next_one() {
        let (mut questions, mut keyboard) = questions();
        ask(&mut questions);
        keyboard.write_all(b"1\n").unwrap();
        assert!(has_line(&questions));
        ask(&mut questions);
        keyboard.write_all(b"2\n").unwrap();
        assert_eq!(questions.answer().await, "2\n");
    }

    #[tokio::test]
    async fn a_line_that_is_on_its_way_when_its_question_is_withdrawn_is_dropped() {
        let (mut questions, mut keyboard) = questions();
        ask(&mut questions);
        keyboard.write_all(b"1\n").unwrap();
        assert!(has_line(&questions));
        // The next question begins after all is drained, and before the line comes.
        questions
            .reader
            .as_ref()
            .unwrap()
            .question
            .fetch_add(1, Ordering::SeqCst);
        questions.ask();
        keyboard.write_all(b"2\n").unwrap();
        assert_eq!(questions.answer().await, "2\n");
    }

    #[tokio::test]
    async fn whoever_waits_for_a_withdrawn_question_takes_the_answer_to_the_one_on_the_screen() {
        let (mut questions, mut keyboard) = questions();
        for _ in 0..3 {
            ask(&mut questions);
        }
        keyboard.write_all(b"1\n").unwrap();
        assert_eq!(questions.answer().await, "1\n");
        ask(&mut questions);
        drop(keyboard);
        assert_eq!(questions.answer().await, "", "the end of input");
    }
}
