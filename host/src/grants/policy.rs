//! What one proxy may do, made of its grants: quick to ask on every message.

use super::grant::{FileGrant, Grant};
use super::pattern::Pattern;
use super::profile::{Profile, Right};
use crate::message::{How, Interest, Peer};
use std::path::PathBuf;

/// A directory that a proxy finds in its file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryGrant {
    /// Where it is.
    pub host: PathBuf,
    /// Its name for the proxy.
    pub guest: String,
    /// Whether it may be written to.
    pub write: bool,
}

/// The rights of one proxy.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    grants: Vec<Grant>,
    /// What its manifest asks for, granted or not.
    wished: Vec<Profile>,
    /// By right and peer.
    patterns: [[Vec<Pattern>; 3]; 4],
    files: Vec<FileGrant>,
    /// MCP servers of any kind may be added to a session.
    pub(super) any_servers: bool,
    /// MCP servers that the proxy itself serves may be added to a session.
    pub(super) own_servers: bool,
    /// MCP servers of others may be left out of a session.
    pub(super) fewer_servers: bool,
    /// MCP connections may be used that are not to servers of its own.
    pub(super) any_connection: bool,
    /// Sessions may be named that the proxy was not shown.
    pub(super) any_session: bool,
    /// `initialize` and the set-up of sessions may be changed at will.
    pub(super) set_up: bool,
}

impl Policy {
    /// What these grants allow.
    pub fn new(grants: impl IntoIterator<Item = Grant>) -> Self {
        let mut policy = Self::default();
        for grant in grants {
            policy.add(&grant);
            policy.grants.push(grant);
        }
        policy
    }

    /// What a proxy gets that asks for `wishes` in its manifest, or has none, and is granted `granted` by the user who named it.
    pub fn agreed(wishes: Option<&[Grant]>, granted: &[Grant]) -> Self {
        let Some(wishes) = wishes else {
            return Self::new(granted.iter().cloned());
        };
        let mut agreed: Vec<Grant> = Vec::new();
        for wish in wishes {
            let met = granted.iter().filter_map(|granted| wish.meet(granted));
            let ordinary = wish.is_ordinary().then(|| wish.clone());
            for grant in ordinary.into_iter().chain(met) {
                if !agreed.contains(&grant) {
                    agreed.push(grant);
                }
            }
        }
        let profile = |wish: &Grant| match wish {
            Grant::Profile(profile) => Some(*profile),
            _ => None,
        };
        Self {
            wished: wishes.iter().filter_map(profile).collect(),
            ..Self::new(agreed)
        }
    }

    fn add(&mut self, grant: &Grant) {
        match grant {
            Grant::Profile(profile) => {
                for rule in profile.rules() {
                    self.add_rule(rule.0, rule.1, Pattern::new(rule.2));
                }
                self.own_servers |= matches!(profile, Profile::OfferTools | Profile::Everything);
                self.any_servers |= matches!(profile, Profile::AddMcpServers | Profile::Everything);
                self.fewer_servers |= matches!(profile, Profile::FilterTools | Profile::Everything);
                self.any_connection |= matches!(profile, Profile::FilterTools | Profile::Everything);
                self.any_session |= matches!(profile, Profile::OwnSessions | Profile::Everything);
                self.set_up |= matches!(profile, Profile::SessionSetup | Profile::Everything);
            }
            Grant::Raw { right, peer, pattern } => self.add_rule(*right, *peer, pattern.clone()),
            Grant::File(file) => self.files.push(file.clone()),
            Grant::Directory { .. } | Grant::Environment { .. } => {}
        }
    }

    fn add_rule(&mut self, right: Right, peer: Peer, pattern: Pattern) {
        let patterns = &mut self.patterns[right.index()][peer.index()];
        if !patterns.contains(&pattern) {
            patterns.push(pattern);
        }
    }

    /// The grants that it is made of.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Whether the proxy may do this with a method. What only conductors say to each other is nobody's.
    pub fn may(&self, right: Right, peer: Peer, method: &str) -> bool {
        !is_reserved(method)
            && self.patterns[right.index()][peer.index()]
                .iter()
                .any(|pattern| pattern.matches(method))
    }

    /// Whether it may read a file of a session's working directory.
    pub fn may_read(&self, path: &str) -> bool {
        self.files.iter().any(|file| file.allows(path))
    }

    /// Whether lists may show it a file of a session's working directory.
    pub fn may_list(&self, path: &str) -> bool {
        self.files.iter().any(|file| file.lists(path))
    }

    /// Whether lists may show it something that is below a folder there; the empty one is that directory.
    pub fn may_list_below(&self, folder: &str) -> bool {
        self.files.iter().any(|file| file.lists_below(folder))
    }

    /// Whether MCP messages of all servers concern it, and not only those of its own.
    pub fn hears_all_servers(&self) -> bool {
        self.any_connection
    }

    /// Whether it may name sessions that it was not shown.
    pub fn may_name_any_session(&self) -> bool {
        self.any_session
    }

    /// Directories that it finds in its file system.
    pub fn directories(&self) -> impl Iterator<Item = DirectoryGrant> + '_ {
        self.grants.iter().filter_map(|grant| match grant {
            Grant::Directory { host, guest, write } => Some(DirectoryGrant {
                host: host.clone(),
                guest: guest.clone().unwrap_or_else(|| host.to_string_lossy().into_owned()),
                write: *write,
            }),
            _ => None,
        })
    }

    /// Its environment.
    pub fn environment(&self) -> impl Iterator<Item = (String, String)> + '_ {
        self.grants.iter().filter_map(|grant| match grant {
            Grant::Environment { name, value } => {
                let value = value.clone().or_else(|| std::env::var(name).ok())?;
                Some((name.clone(), value))
            }
            _ => None,
        })
    }

    /// What is left of a proxy's interests, and those that are not left as they were. Who wants to take part gets no copies
    /// instead: it would take them for the messages themselves.
    pub fn cut(&self, interests: &[Interest]) -> (Vec<Interest>, Vec<Interest>) {
        let mut left: Vec<Interest> = Vec::new();
        let mut cut = Vec::new();
        for interest in interests {
            let wanted = Pattern::new(&interest.method);
            let of = |right: Right| self.patterns[right.index()][interest.source.index()].iter();
            let mut whole = false;
            let mut take = |pattern: &Pattern| {
                if let Some(meet) = wanted.meet(pattern) {
                    whole |= meet == wanted;
                    let granted = Interest {
                        source: interest.source,
                        method: meet.to_string(),
                        how: interest.how,
                    };
                    if !left.contains(&granted) {
                        left.push(granted);
                    }
                }
            };
            // Who may answer a request has to own it; whether it may change it is another question.
            of(Right::Intercept).chain(of(Right::Answer)).for_each(&mut take);
            if interest.how == How::Observe {
                of(Right::Observe).for_each(&mut take);
            }
            if !whole {
                cut.push(interest.clone());
            }
        }
        (left, cut)
    }

    /// What would have to be granted for this, as a part of a sentence: something that the proxy asks for, if that gives it.
    pub fn missing(&self, right: Right, peer: Peer, method: &str) -> String {
        if is_reserved(method) {
            return "to be a conductor: no grant gives it".into();
        }
        let pattern = Pattern::new(method);
        let mut profiles = self.wished.iter().copied().chain(Profile::ALL);
        let profile = profiles.find(|profile| *profile != Profile::Everything && profile.gives(right, peer, &pattern));
        match profile {
            Some(profile) => format!("the grant `{}` ({})", profile.name(), profile.sentence()),
            None => format!(
                "the grant `{}:{}:{}`",
                right.name(),
                peer.name(),
                crate::log::named(method)
            ),
        }
    }
}

/// What conductors say to each other; a proxy that could send it would speak for others.
fn is_reserved(method: &str) -> bool {
    let method = method.strip_prefix('_').unwrap_or(method);
    method.starts_with("proxy/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(texts: &[&str]) -> Vec<Grant> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn ordinary_wishes_are_given_and_dangerous_ones_only_when_granted() {
        let wishes = grants(&["change-prompts", "decide-permissions", "editor-files", "file:**"]);
        let policy = Policy::agreed(Some(&wishes), &grants(&["editor-files", "editor-commands", "file:a"]));
        assert_eq!(policy.grants(), grants(&["change-prompts", "editor-files", "file:a"]));
        assert!(policy.may(Right::Intercept, Peer::Client, "session/prompt"));
        assert!(policy.may(Right::Originate, Peer::Client, "fs/read_text_file"));
        assert!(
            !policy.may(Right::Originate, Peer::Client, "terminal/create"),
            "not asked for"
        );
        assert!(!policy.may(Right::Answer, Peer::Agent, "session/request_permission"));
        assert!(policy.may_read("a") && !policy.may_read("b"));
    }

    #[test]
    fn without_a_manifest_only_what_is_granted_is_given() {
        assert!(Policy::agreed(None, &[]).grants().is_empty());
        let policy = Policy::agreed(None, &grants(&["everything"]));
        assert!(policy.may(Right::Originate, Peer::Client, "terminal/create"));
        for method in ["proxy/successor", "_proxy/successor", "proxy/initialize"] {
            assert!(!policy.may(Right::Originate, Peer::Client, method), "{method}");
        }
        assert!(!policy.may_read("a"));
    }

    #[test]
    fn interests_are_cut_to_what_is_granted() {
        let interest = |source, method: &str, how| Interest {
            source,
            method: method.into(),
            how,
        };
        let policy = Policy::new(grants(&["read-prompts", "change-answers"]));
        let (left, cut) = policy.cut(&[
            interest(Peer::Client, "*", How::Intercept),
            interest(Peer::Agent, "session/update", How::Intercept),
            interest(Peer::Client, "session/cancel", How::Intercept),
            interest(Peer::Client, "session/close", How::Observe),
            interest(Peer::Agent, "terminal/*", How::Observe),
        ]);
        let has = |source, method: &str, how| left.contains(&interest(source, method, how));
        assert!(has(Peer::Client, "session/prompt", How::Intercept), "it may answer it");
        assert!(has(Peer::Client, "session/close", How::Observe));
        assert!(
            !left.iter().any(|interest| interest.method == "session/cancel"),
            "no copy instead"
        );
        assert!(has(Peer::Agent, "session/update", How::Intercept));
        assert!(!left.iter().any(|interest| interest.method.starts_with("terminal/")));
        assert_eq!(cut.len(), 3);
    }

    #[test]
    fn what_is_missing_is_named_in_human_words() {
        let missing = Policy::default().missing(Right::Originate, Peer::Client, "terminal/create");
        assert!(
            missing.contains("editor-commands") && missing.contains("runs commands"),
            "{missing}"
        );
        let missing = Policy::default().missing(Right::Answer, Peer::Agent, "_x/y");
        assert!(missing.contains("answer:agent:_x/y"), "{missing}");
        let wishes = grants(&["filter-tools", "everything"]);
        let missing = Policy::agreed(Some(&wishes), &[]).missing(Right::Intercept, Peer::Client, "session/new");
        assert!(missing.contains("filter-tools"), "{missing}");
    }
}
