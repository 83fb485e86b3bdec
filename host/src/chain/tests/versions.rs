//! Who decides about the version of the protocol.

use crate::chain::bench::{Bench, HOLD_TIME, answer, everything, ok, registered, request};
use crate::chain::{ProxySetup, Role, Router};
use crate::log::ProxyLog;
use crate::message::{How, Interest, Peer, Registration};
use serde_json::json;

#[test]
fn the_version_offered_is_the_least_that_intercepting_proxies_understand() {
    let seen = || {
        vec![Interest {
            source: Peer::Agent,
            method: "*".into(),
            how: How::Observe,
        }]
    };
    for (proxies, offered) in [
        (vec![], 2),
        (vec![(everything(), None)], 1),
        (vec![(everything(), Some(2)), (everything(), Some(9))], 2),
        (vec![(everything(), Some(2)), (everything(), Some(1))], 1),
        (vec![(seen(), None), (everything(), Some(3))], 2),
    ] {
        let setups = proxies.into_iter().map(|(interests, protocol_version)| ProxySetup {
            name: "p".into(),
            log: ProxyLog::new("p".into(), 65_536),
            registration: Registration {
                interests,
                protocol_version,
                missing: Vec::new(),
            },
            on_failure: Default::default(),
            hold_time: HOLD_TIME,
            servers: None,
            state: 1 << 20,
        });
        let mut bench = Bench {
            router: Router::new(Role::Agent, setups.collect(), None),
        };
        bench.client(json!({"id": 0, "method": "initialize", "params": {"protocolVersion": 2}}));
        bench.router.agent_started(Ok(()));
        bench.pass_all();
        assert_eq!(bench.at_agent()[0]["params"]["protocolVersion"], offered);
    }
}

#[test]
fn a_proxy_cannot_change_the_protocol_version() {
    let setup = ProxySetup {
        name: "p".into(),
        log: ProxyLog::new("p".into(), 65_536),
        registration: registered(everything()),
        on_failure: Default::default(),
        hold_time: HOLD_TIME,
        servers: None,
        state: 1 << 20,
    };
    let mut bench = Bench {
        router: Router::new(Role::Agent, vec![setup], None),
    };
    bench.client(json!({"id": 0, "method": "initialize", "params": {"protocolVersion": 1, "x": 1.5}}));
    bench.router.agent_started(Ok(()));
    let (index, turn) = bench.turn();
    let raised = json!({"protocolVersion": 9});
    bench.done(
        index,
        vec![request(Peer::Agent, Some(1), Some(turn.ticket), "initialize", raised)],
    );
    let offered = bench.at_agent();
    assert_eq!(offered[0]["params"]["protocolVersion"], 1);
    bench.agent(json!({"id": offered[0]["id"], "result": {"protocolVersion": 1}}));
    let (index, _) = bench.turn();
    let changed = ok(json!({"protocolVersion": 7, "y": 2}));
    bench.done(index, vec![answer(Peer::Client, turn.ticket, changed)]);
    assert_eq!(bench.at_client()[0]["result"], json!({"protocolVersion": 1, "y": 2}));
}
