//! Who decides on a permission: an option of the command line, or the person at the terminal.

use agent_client_protocol_schema::v1::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, SelectedPermissionOutcome,
};
use rustix::termios::{QueueSelector, tcflush};
use std::fs::File;
use std::future;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::os::fd::AsFd;
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

/// Reads answers from the terminal, one for each question. A line that was typed before its question was asked is thrown away.
#[derive(Default)]
pub(super) struct Questions {
    reader: Option<Reader>,
}

struct Reader {
    terminal: File,
    ask: blocking::SyncSender<()>,
    lines: mpsc::Receiver<String>,
}

impl Questions {
    /// Whether there is a terminal to ask on, one that shows questions and takes answers.
    pub(super) fn can_ask(&mut self) -> bool {
        if self.reader.is_none() && io::stderr().is_terminal() {
            self.reader = terminal().and_then(|file| start(file).ok());
        }
        self.reader.is_some()
    }

    /// Throws away what was typed before; to be called before a question is shown.
    pub(super) fn forget(&mut self) {
        if let Some(reader) = &self.reader {
            // A terminal that cannot be flushed can still be read.
            let _ = tcflush(&reader.terminal, QueueSelector::IFlush);
        }
    }

    /// Wants a line.
    pub(super) fn ask(&mut self) {
        if let Some(reader) = &self.reader {
            // Full if the thread still waits for the answer to a question that was withdrawn; it will do for this one.
            let _ = reader.ask.try_send(());
        }
    }

    /// The next line; empty at the end of input. Never ready if nothing can be read.
    pub(super) async fn answer(&mut self) -> String {
        match &mut self.reader {
            Some(reader) => reader.lines.recv().await.unwrap_or_default(),
            None => future::pending().await,
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

fn start(file: File) -> io::Result<Reader> {
    let terminal = file.try_clone()?;
    let (ask, asked) = blocking::sync_channel(1);
    let (sender, lines) = mpsc::channel(1);
    // Not waited for at the end: it may be in a read.
    thread::Builder::new().name("terminal".into()).spawn(move || {
        let mut reader = BufReader::new(file);
        while asked.recv().is_ok() {
            let mut line = String::new();
            if reader.read_line(&mut line).is_err() {
                line.clear();
            }
            if sender.blocking_send(line).is_err() {
                break;
            }
        }
    })?;
    Ok(Reader { terminal, ask, lines })
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
