//! Prompts as they come to the agent: what each orders, and whether it is what the client has written, with the block of every proxy in
//! front of it.

use crate::forms::Kind;
use crate::wire::{self, FILLING, HEAD, Order, quoted};
use anyhow::{Context, bail};
use memchr::memmem;
use std::collections::HashMap;
use std::io::Write as _;
use std::ops::Range;

/// A prompt that is what it has to be, but for its filling.
#[derive(Debug)]
pub(crate) struct Prompt {
    pub(crate) session: String,
    pub(crate) order: Order,
    /// Where its filling is in the line.
    pub(crate) filling: Range<usize>,
}

/// Reads and verifies prompts.
#[derive(Default)]
pub(crate) struct Prompts {
    /// By the number of blocks.
    kinds: HashMap<u64, Kind>,
    /// A line without its filling.
    short: Vec<u8>,
    /// What differs from prompt to prompt.
    parts: [Vec<u8>; 3],
}

impl Prompts {
    /// Reads a prompt and verifies all of it but its filling. That may be long, so [`is_filling`] is for when there is time.
    pub(crate) fn read(&mut self, line: &[u8], id: &str) -> anyhow::Result<Prompt> {
        let (order, start) = order(line)?;
        let size = usize::try_from(order.filling).ok();
        let end = size.and_then(|size| start.checked_add(size));
        let Some(filling) = end.filter(|end| *end <= line.len()).map(|end| start..end) else {
            bail!(
                "a prompt with {} bytes of filling came as {}",
                order.filling,
                quoted(line)
            );
        };
        self.short.clear();
        self.short.extend_from_slice(&line[..filling.start]);
        self.short.extend_from_slice(&line[filling.end..]);
        let session = wire::session(&self.short).context("a prompt came without its session")?;
        self.parts.iter_mut().for_each(Vec::clear);
        let [number, name, text] = &mut self.parts;
        write!(number, "\"id\":{id}")?;
        write!(name, "\"{session}\"")?;
        wire::prompt_text(text, order, 0);
        let kind = self.kinds.entry(order.blocks).or_default();
        if !kind.says(&self.short, &[number, name, text], |wanted| {
            wire::prompt(wanted, id, session, order, order.blocks, 0);
        }) {
            bail!(
                "a prompt with {} added blocks and {} bytes of filling came as {}",
                order.blocks,
                order.filling,
                quoted(line)
            );
        }
        Ok(Prompt {
            session: session.to_owned(),
            order,
            filling,
        })
    }
}

/// The order in a prompt's line, and where the filling starts behind it.
fn order(line: &[u8]) -> anyhow::Result<(Order, usize)> {
    let head = &line[..line.len().min(HEAD)];
    let start = memmem::find(head, b"[[").context("a prompt came without an order")? + 2;
    let length = memmem::find(&head[start..], b"]]").context("a prompt came whose order does not end")?;
    let text = std::str::from_utf8(&head[start..start + length])?;
    let mut order = Order::default();
    let mut words = text.split(' ');
    for field in order.fields() {
        *field = words
            .next()
            .context("a prompt came whose order is too short")?
            .parse()?;
    }
    Ok((order, start + length + 2))
}

/// Whether a filling has nothing else in it. Fast, since it may have 63 MiB.
pub(crate) fn is_filling(bytes: &[u8]) -> bool {
    let differs = |chunk: &[u8]| chunk.iter().fold(0, |all, byte| all | (byte ^ FILLING)) != 0;
    !bytes.chunks(4096).any(differs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: &str = r#"{"type":"text","text":"a block of context"},"#;

    fn order_of(blocks: u64, filling: u64) -> Order {
        Order {
            updates: 3,
            first: 12,
            blocks,
            filling,
            ..Order::default()
        }
    }

    /// A prompt as it is without proxies.
    fn line(order: Order) -> String {
        let mut line = Vec::new();
        wire::prompt(&mut line, 7, "s2", order, 0, order.filling);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn a_prompt_comes_as_it_was_written() {
        let mut prompts = Prompts::default();
        for filling in [0, 5, 40_000] {
            let order = order_of(0, filling);
            let line = line(order);
            // Parsed, then by its form.
            for _ in 0..2 {
                let prompt = prompts.read(line.as_bytes(), "7").unwrap();
                assert_eq!((prompt.session.as_str(), prompt.order), ("s2", order));
                assert_eq!(prompt.filling.len() as u64, filling);
                assert!(is_filling(&line.as_bytes()[prompt.filling]));
            }
        }
    }

    #[test]
    fn the_blocks_of_proxies_stand_in_front() {
        let mut prompts = Prompts::default();
        for filling in [0, 40_000] {
            let plain = line(order_of(2, filling));
            let put = |place: &str, with: &str| plain.replacen(place, &format!("{place}{with}"), 1);
            let good = put("\"prompt\":[", &BLOCK.repeat(2));
            prompts.read(good.as_bytes(), "7").unwrap();
            let behind = good
                .replacen(BLOCK, "", 1)
                .replace("<end>\"}", &format!("<end>\"}},{}", BLOCK.trim_end_matches(',')));
            for bad in [
                plain.clone(),
                put("\"prompt\":[", BLOCK),
                put("\"prompt\":[", &BLOCK.repeat(3)),
                behind,
                good.replacen("context", "contexts", 1),
                put("\"params\":{", "\"prompt\":[],"),
            ] {
                assert!(prompts.read(bad.as_bytes(), "7").is_err(), "{}", quoted(bad.as_bytes()));
            }
            prompts.read(good.as_bytes(), "7").unwrap();
        }
    }

    #[test]
    fn whatever_else_differs_is_told() {
        let mut prompts = Prompts::default();
        let line = line(order_of(0, 100));
        for (good, bad) in [
            ("\"s2\"", "\"s2\",\"more\":1"),
            ("sessionId", "session"),
            ("[[3", "[[4 3"),
            ("[[3", "[[+3"),
            ("]]", "]"),
            ("x<end>", "<end>"),
            ("x<end>", "xx<end>"),
            ("<end>", "<end>."),
        ] {
            let bad = line.replacen(good, bad, 1);
            assert!(prompts.read(bad.as_bytes(), "7").is_err(), "{bad}");
        }
        assert!(prompts.read(line.as_bytes(), "8").is_err());
        assert!(prompts.read(&line.as_bytes()[..60], "7").is_err());
    }

    #[test]
    fn a_filling_is_looked_at_byte_by_byte() {
        for size in [1, 4095, 4096, 4097, 100_000] {
            let mut filling = vec![FILLING; size];
            assert!(is_filling(&filling));
            filling[size - 1] = b'y';
            assert!(!is_filling(&filling));
        }
        assert!(is_filling(b""));
    }
}
