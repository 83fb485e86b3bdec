//! The JSON-RPC wire: shared JSON text, edits on it, lines in and lines out. Knows nothing of who sends what to whom.

pub mod edit;
pub mod envelope;
pub mod lines;
pub mod output;
pub mod scan;
pub mod skim;
pub mod text;
