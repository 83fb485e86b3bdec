//! What a proxy may do: rights about messages, in profiles with human names, and the checks inside of parameters where a method
//! alone does not tell the risk. Knows the methods of ACP by name; must not know how messages travel or what a sandbox is.

mod check;
mod grant;
mod pattern;
mod policy;
mod profile;
mod servers;

pub(crate) use check::{Checked, is_setup, originated, passed_on, unknown_session};
pub use grant::{FileGrant, Grant};
pub use pattern::Pattern;
pub use policy::{DirectoryGrant, Policy};
pub use profile::{Profile, Right};
pub use servers::OwnServers;
pub(crate) use servers::{ids_of, is_mcp};
