//! The working directory of each session, learnt from how sessions are set up. Owns where ACP says so; keeps it as long as other state of a
//! session.

use crate::message::{Outcome, Request};
use crate::sessions::Sessions;

/// The working directory of each session, as the client gave it. The proxy needs [`crate::Interests::set_ups`], and
/// [`crate::Interests::session_ends`] for as long as it keeps them.
///
/// It is not known of sessions that were set up before the proxy was started again.
///
/// ```
/// use consort_proxy::{Directories, Outcome, Proxy, Request};
/// # use consort_proxy::{Interests, Json};
///
/// struct Where(Directories);
///
/// impl Proxy for Where {
/// #   fn start(_config: Json) -> Result<(Self, Interests), String> {
/// #       Ok((Self(Directories::new()), Interests::new().set_ups().session_ends()))
/// #   }
///     async fn request(&self, request: Request) -> Outcome {
///         self.0.set_up(request).await
///     }
/// }
/// ```
#[derive(Debug, Default)]
pub struct Directories(Sessions<String>);

impl Directories {
    /// None is known yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The directory of a session, if it is known.
    pub fn of(&self, session: &str) -> Option<String> {
        let directory = self.0.with(session, |directory| directory.clone());
        (!directory.is_empty()).then_some(directory)
    }

    /// Passes the set-up of a session on, and learns its directory.
    ///
    /// # Errors
    /// Those of passing it on.
    pub async fn set_up(&self, mut request: Request) -> Outcome {
        let Some(directory) = request.params().string("/cwd") else {
            return request.forward();
        };
        if matches!(request.method(), "session/load" | "session/resume") {
            if let Some(session) = request.session_id() {
                self.0.with(&session, |known| *known = directory);
            }
            return request.forward();
        }
        let result = request.forward_and_wait().await?;
        if let Some(session) = result.string("/sessionId") {
            self.0.with(&session, |known| *known = directory);
        }
        request.reply(result)
    }
}
