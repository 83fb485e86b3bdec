//! Write a proxy for [Consort](https://github.com/consort-acp/consort): a sandboxed WebAssembly component that sits between
//! an ACP client (an editor) and an ACP agent, and may watch, change, answer and originate messages.
//!
//! A proxy is a type that implements [`Proxy`]. `start` says which messages it wants; everything else goes past it at no cost.
//! Handlers are async: they may ask the client, the agent or the host something and await the answer, several at once.
//!
//! ```
//! use consort_proxy::Peer::{Agent, Client};
//! use consort_proxy::{Interests, Json, Notification, Outcome, Proxy, Request, info, json};
//!
//! /// Says please in front of every prompt, and makes the agent shout.
//! struct Shout;
//!
//! impl Proxy for Shout {
//!     fn start(_config: Json) -> Result<(Self, Interests), String> {
//!         Ok((Shout, Interests::new().intercept(Client, "session/prompt").intercept(Agent, "session/update")))
//!     }
//!
//!     async fn request(&self, mut request: Request) -> Outcome {
//!         request.params().add("/prompt/0", json!({"type": "text", "text": "Please: "}))?;
//!         let result = request.forward_and_wait().await?;
//!         info!("the turn ended with {:?}", result.string("/stopReason"));
//!         request.reply(result)
//!     }
//!
//!     async fn notification(&self, update: Notification) -> Outcome {
//!         if let Some(text) = update.params().string("/update/content/text") {
//!             update.params().replace("/update/content/text", text.to_uppercase())?;
//!         }
//!         update.forward()
//!     }
//! }
//!
//! consort_proxy::export!(Shout);
//!
//! // In a test, which runs natively:
//! # #[cfg(not(target_family = "wasm"))] {
//! use consort_proxy::testing::Harness;
//!
//! let mut host = Harness::start::<Shout>(serde_json::json!({})).unwrap();
//! host.request(Client, "session/prompt", serde_json::json!({"sessionId": "s1", "prompt": []}));
//! let prompt = host.next();
//! assert_eq!(prompt.params()["prompt"][0]["text"], "Please: ");
//!
//! host.notify(Agent, "session/update", serde_json::json!({"update": {"content": {"text": "done"}}}));
//! assert_eq!(host.next().params()["update"]["content"]["text"], "DONE");
//!
//! host.answer(&prompt, serde_json::json!({"stopReason": "end_turn"}));
//! assert_eq!(host.next().result()["stopReason"], "end_turn");
//! # }
//! ```
//!
//! # The crate of a proxy
//!
//! ```toml
//! [lib]
//! crate-type = ["cdylib", "rlib"] # a component, and something that tests can use
//!
//! # What it would like to be allowed, with a reason for whoever is to allow it: without this it gets nothing by itself.
//! [package.metadata.consort.grants]
//! change-prompts = "says please"
//! change-answers = "shouts"
//!
//! [dependencies]
//! consort-proxy = { path = "/path/to/consort/guest-sdk" } # not on crates.io yet
//!
//! [dev-dependencies]
//! serde_json = "1"
//! ```
//!
//! `consort build` (or `cargo build --release --target wasm32-wasip2`) makes the component; `cargo test` runs its tests
//! natively, against [`testing::Harness`].
//!
//! # JSON without copies
//!
//! Params and results are handles on text that the host holds ([`Json`]): read or edit only the part that matters, and a
//! prompt of 16 MiB costs no memory here. What is not edited passes byte for byte, unknown fields and odd numbers included.
//! With the feature `schema` the types of the crate `agent-client-protocol-schema` are at hand for decoding:
//!
//! ```
//! # #[cfg(feature = "schema")] {
//! use consort_proxy::{Outcome, Request, schema::v1::PromptRequest};
//!
//! async fn count(request: Request) -> Outcome {
//!     let prompt: PromptRequest = request.params().decode()?;
//!     consort_proxy::debug!("{} blocks", prompt.prompt.len());
//!     request.forward()
//! }
//! # }
//! ```
//!
//! # Panics
//!
//! A panic costs the proxy its instance and all that it kept in memory; the host starts a new one. Its message and place appear
//! in the host's log.

mod directories;
mod error;
pub mod glob;
pub mod host;
mod interests;
mod json;
pub mod log;
#[cfg(feature = "mcp")]
pub mod mcp;
mod message;
#[cfg(any(target_family = "wasm", test))]
mod panic;
mod peer;
mod proxy;
mod quotes;
mod raw;
mod runtime;
mod sessions;
#[cfg(not(target_family = "wasm"))]
pub mod testing;

/// Generated from the world; for [`export!`] only.
#[cfg(target_family = "wasm")]
#[allow(
    missing_docs,
    unreachable_pub,
    unsafe_code,
    clippy::undocumented_unsafe_blocks,
    reason = "generated: passing values to and from the host needs raw memory"
)]
#[doc(hidden)]
#[path = "bindings.rs"]
pub mod __bindings;

#[cfg(feature = "schema")]
pub use agent_client_protocol_schema as schema;
pub use directories::Directories;
pub use error::{Refusal, RpcError};
pub use interests::{How, Interest, Interests};
pub use json::{Content, Edit, Json, JsonError, Part, Raw, escape};
pub use message::{Handled, Notification, Observed, Outcome, Request, Seen};
pub use peer::{Call, Peer};
pub use proxy::Proxy;
#[cfg(feature = "mcp")]
pub use schemars;
pub use sessions::Sessions;

/// For macros only.
#[doc(hidden)]
pub mod __private {
    pub use crate::json::literal;
    pub use serde_json;

    #[cfg(target_family = "wasm")]
    use crate::{raw, runtime::Runtime};

    /// The world's export `start`.
    ///
    /// # Errors
    /// What the proxy's `start` says.
    #[cfg(target_family = "wasm")]
    pub fn start<P: crate::Proxy>(config: crate::__bindings::Value) -> Result<raw::Registration, String> {
        crate::panic::install_hook();
        let runtime = Runtime::new();
        Runtime::enter(Some(runtime.clone()));
        runtime.start::<P>(config).map(crate::Interests::into_raw)
    }

    /// The world's export `receive`.
    #[cfg(target_family = "wasm")]
    pub fn receive(source: raw::Peer, ticket: u64, message: raw::Message) -> raw::Receipt {
        match Runtime::current() {
            Some(runtime) => runtime.receive(source, ticket, message),
            None => raw::Receipt::Done,
        }
    }
}

/// Makes a [`Proxy`] the component's proxy. Once in a crate.
#[macro_export]
macro_rules! export {
    ($proxy:ty) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            struct Component;

            impl $crate::__bindings::Guest for Component {
                fn start(
                    config: $crate::__bindings::Value,
                ) -> ::core::result::Result<$crate::__bindings::Registration, ::std::string::String> {
                    $crate::__private::start::<$proxy>(config)
                }

                fn receive(
                    source: $crate::__bindings::Peer,
                    ticket: $crate::__bindings::Ticket,
                    message: $crate::__bindings::Message,
                ) -> $crate::__bindings::Receipt {
                    $crate::__private::receive(source, ticket, message)
                }
            }

    $crate::__bindings::export_component!(Component with_types_in $crate::__bindings);
        };

        #[cfg(not(target_family = "wasm"))]
        const _: () = {
            const fn is_a_proxy<P: $crate::Proxy>() {}
            is_a_proxy::<$proxy>();
        };
    };
}
