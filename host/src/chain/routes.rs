//! Which proxies a message can go past without a look: what nobody on the way is interested in costs as much as if nobody were there.

use super::parcel::{Body, Direction, Parcel};
use super::proxy::ProxyState;
use std::collections::HashMap;
use std::sync::Arc;

/// Methods that are remembered. ACP has some dozens; one that invents more is looked up anew each time.
const MAX_METHODS: usize = 256;

/// Bytes of the longest one that is.
const MAX_METHOD: usize = 128;

/// The interest in methods, of both directions. Holds as long as no proxy changes its interests.
#[derive(Debug, Default)]
pub(super) struct Routes {
    known: HashMap<Arc<str>, usize>,
    /// For each method whether a proxy wants it, by direction.
    wanted: Vec<[Box<[bool]>; 2]>,
}

/// One method's, to be asked about each proxy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route(usize);

impl Routes {
    /// The way of a message, if it is one that can go past.
    pub(super) fn of(&mut self, parcel: &Parcel, proxies: &[ProxyState]) -> Option<Route> {
        let method = match &parcel.body {
            Body::Request { method, .. } | Body::Notification { method, .. } if &**method != "initialize" => method,
            _ => return None,
        };
        if let Some(known) = self.known.get(&**method) {
            return Some(Route(*known));
        }
        if self.known.len() >= MAX_METHODS || method.len() > MAX_METHOD {
            return None;
        }
        let wanted = [Direction::Down, Direction::Up].map(|direction| {
            proxies
                .iter()
                .map(|proxy| proxy.interests.of(direction, method).is_some())
                .collect()
        });
        self.wanted.push(wanted);
        self.known.insert(method.clone(), self.wanted.len() - 1);
        Some(Route(self.wanted.len() - 1))
    }

    /// Whether this proxy is interested.
    pub(super) fn leads_to(&self, route: Route, parcel: &Parcel, index: usize) -> bool {
        let wanted = self.wanted.get(route.0).map(|wanted| &wanted[parcel.direction.index()]);
        wanted.and_then(|wanted| wanted.get(index)).copied().unwrap_or(true)
    }

    /// A proxy has other interests now.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}
