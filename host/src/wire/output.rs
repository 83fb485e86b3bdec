//! Messages to bytes: a queue of what waits to be written. Small text is packed together, large text is not copied.

use super::envelope::Id;
use super::text::Text;
use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::IoSlice;

/// Pieces from this size on are queued as they are; below, copying them is cheaper than one more piece to write.
const KEEP_FROM: usize = 8 * 1024;

/// Small text is packed into pieces of about this size. One that grew with what waits would be copied as it grows, and the C library
/// keeps much more of the memory behind large allocations once it has seen them freed.
const PACKED: usize = 64 * 1024;

/// Bytes that wait to be written to one peer.
#[derive(Debug, Default)]
pub struct Output {
    ready: VecDeque<Bytes>,
    tail: BytesMut,
    waiting: usize,
}

impl Output {
    /// How many bytes wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Queues a request (with an id) or a notification (without).
    pub fn call(&mut self, id: Option<&str>, method: &str, params: Option<&Text>) {
        self.begin_call(id);
        self.method(method, params);
        self.small(b"}\n");
    }

    /// The same in an envelope: the call becomes the params of another method.
    pub fn wrapped_call(&mut self, id: Option<&str>, envelope: &str, method: &str, params: Option<&Text>) {
        self.begin_call(id);
        self.method(envelope, None);
        self.small(b",\"params\":{");
        self.method(method, params);
        self.small(b"}}\n");
    }

    fn begin_call(&mut self, id: Option<&str>) {
        self.small(b"{\"jsonrpc\":\"2.0\",");
        if let Some(id) = id {
            self.small(b"\"id\":");
            self.small(id.as_bytes());
            self.small(b",");
        }
    }

    fn method(&mut self, method: &str, params: Option<&Text>) {
        self.small(b"\"method\":");
        if method
            .bytes()
            .all(|byte| (b' '..0x7f).contains(&byte) && byte != b'"' && byte != b'\\')
        {
            self.small(b"\"");
            self.small(method.as_bytes());
            self.small(b"\"");
        } else {
            self.text(&Text::of(&method));
        }
        if let Some(params) = params {
            self.small(b",\"params\":");
            self.text(params);
        }
    }

    /// Queues a response.
    pub fn response(&mut self, id: &Id, outcome: &Result<Text, Text>) {
        self.small(b"{\"jsonrpc\":\"2.0\",\"id\":");
        self.small(id.as_json().as_bytes());
        let text = match outcome {
            Ok(result) => {
                self.small(b",\"result\":");
                result
            }
            Err(error) => {
                self.small(b",\"error\":");
                error
            }
        };
        self.text(text);
        self.small(b"}\n");
    }

    /// Fills slices for a vectored write; says how many.
    pub fn slices<'a>(&'a mut self, into: &mut [IoSlice<'a>]) -> usize {
        self.settle();
        let mut count = 0;
        for (slot, piece) in into.iter_mut().zip(&self.ready) {
            *slot = IoSlice::new(piece);
            count += 1;
        }
        count
    }

    /// Takes away what was written.
    pub fn written(&mut self, mut count: usize) {
        self.waiting = self.waiting.saturating_sub(count);
        while let Some(front) = self.ready.front_mut() {
            if count < front.len() {
                front.advance(count);
                return;
            }
            count -= front.len();
            self.ready.pop_front();
        }
    }

    /// Takes out everything that waits.
    pub fn take(&mut self) -> Vec<u8> {
        self.settle();
        self.waiting = 0;
        self.ready.drain(..).fold(Vec::new(), |mut all, piece| {
            all.extend_from_slice(&piece);
            all
        })
    }

    /// Drops everything: nobody reads any more.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn settle(&mut self) {
        if !self.tail.is_empty() {
            self.ready.push_back(self.tail.split().freeze());
        }
    }

    fn small(&mut self, bytes: &[u8]) {
        self.waiting += bytes.len();
        if self.tail.len() >= PACKED {
            self.settle();
        }
        self.tail.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &Text) {
        for piece in text.pieces() {
            if piece.len() < KEEP_FROM && memchr::memchr2(b'\n', b'\r', piece).is_none() {
                self.small(piece);
            } else {
                self.large(piece);
            }
        }
    }

    /// A line must not contain a line end. Text may: outside of strings JSON allows it (inside it is escaped), so a
    /// space in its place means the same.
    fn large(&mut self, piece: &Bytes) {
        if memchr::memchr2(b'\n', b'\r', piece).is_some() {
            let plain: Vec<u8> = piece
                .iter()
                .map(|&byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte })
                .collect();
            self.small(&plain);
            return;
        }
        self.settle();
        self.waiting += piece.len();
        self.ready.push_back(piece.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(output: &mut Output) -> String {
        let mut all = Vec::new();
        while output.waiting() > 0 {
            let mut slices = [IoSlice::new(&[]); 4];
            let count = output.slices(&mut slices);
            let taken = slices[0].len().div_ceil(2);
            assert!(count > 0);
            all.extend_from_slice(&slices[0][..taken]);
            output.written(taken);
        }
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn writes_lines_in_order_whatever_is_taken() {
        let mut output = Output::default();
        let big = format!("[\"{}\"]", "x".repeat(20_000));
        output.call(Some("1"), "a/b", Some(&Text::trusted("{}")));
        output.call(None, "quote\"", Some(&Text::trusted(big.clone())));
        output.wrapped_call(Some("2"), "p/s", "m", None);
        output.wrapped_call(None, "p/s", "m", Some(&Text::trusted("[1]")));
        output.response(&Id::null(), &Err(Text::trusted("{\n}")));
        let expected = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a/b\",\"params\":{{}}}}\n\
             {{\"jsonrpc\":\"2.0\",\"method\":\"quote\\\"\",\"params\":{big}}}\n\
             {{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"p/s\",\"params\":{{\"method\":\"m\"}}}}\n\
             {{\"jsonrpc\":\"2.0\",\"method\":\"p/s\",\"params\":{{\"method\":\"m\",\"params\":[1]}}}}\n\
             {{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{{ }}}}\n"
        );
        assert_eq!(drain(&mut output), expected);
    }
}
