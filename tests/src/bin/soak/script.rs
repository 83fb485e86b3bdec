//! What client and agent agree upon: scripts of turns, texts that tell what they are, and random numbers that a seed repeats.

use serde_json::{Value, json};

/// What the agent is to do in a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    /// The number of the turn in its session.
    pub(crate) turn: u64,
    /// How many updates it streams.
    pub(crate) updates: u64,
    /// How long the text of each is.
    pub(crate) size: u64,
    /// How often it asks for permission in between.
    pub(crate) asks: u64,
    /// How often it reads a file in between.
    pub(crate) reads: u64,
    /// Milliseconds that it rests after each tenth update.
    pub(crate) rest: u64,
    /// Whether it misbehaves: lines that are no messages, answers that nobody asked for.
    pub(crate) junk: bool,
    /// Whether it gives up what it asked.
    pub(crate) gives_up: bool,
}

impl Script {
    /// Any script.
    pub(crate) fn random(turn: u64, random: &mut Random) -> Self {
        let size = match random.below(1_000) {
            0..3 => 1_000_000,
            3..90 => 20_000,
            90..300 => 1_000,
            _ => 10 + random.below(90),
        };
        let updates = match random.below(1_000) {
            _ if size >= 1_000_000 => 1 + random.below(3),
            _ if size >= 20_000 => random.below(12),
            0..10 => 1_000,
            10..110 => 0,
            110..400 => 20 + random.below(80),
            _ => 1 + random.below(20),
        };
        Self {
            turn,
            updates,
            size,
            asks: random.below(6).saturating_sub(3),
            reads: random.below(7).saturating_sub(4),
            rest: random.below(12),
            junk: random.below(50) == 0,
            gives_up: random.below(30) == 0,
        }
    }

    pub(crate) fn to_json(self) -> Value {
        json!({"turn": self.turn, "updates": self.updates, "size": self.size, "asks": self.asks, "reads": self.reads,
            "rest": self.rest, "junk": self.junk, "gives_up": self.gives_up})
    }

    pub(crate) fn from_json(value: &Value) -> Self {
        let number = |key: &str| value[key].as_u64().unwrap_or(0);
        Self {
            turn: number("turn"),
            updates: number("updates"),
            size: number("size"),
            asks: number("asks"),
            reads: number("reads"),
            rest: number("rest"),
            junk: value["junk"] == true,
            gives_up: value["gives_up"] == true,
        }
    }
}

/// The text of an update: where it belongs, and as many letters as it says.
pub(crate) fn text(turn: u64, number: u64, size: u64) -> String {
    let letters = "x".repeat(usize::try_from(size).unwrap_or(0));
    format!("{turn}:{number}:{size}:{letters}")
}

/// Turn and number of a text, if it is whole.
pub(crate) fn read_text(text: &str) -> Option<(u64, u64)> {
    let mut parts = text.splitn(4, ':');
    let mut number = || parts.next()?.parse::<u64>().ok();
    let (turn, index, size) = (number()?, number()?, number()?);
    let letters = parts.next()?;
    (letters.len() as u64 == size && letters.bytes().all(|byte| byte == b'x')).then_some((turn, index))
}

/// Random numbers: SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below a limit that is not 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
