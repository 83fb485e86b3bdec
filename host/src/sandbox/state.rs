//! What a proxy's store holds.

use super::channel::Ledger;
use super::limits::{Limiter, MAX_HANDLES, MAX_RANDOM, ProxyLimits};
use super::output::Output;
use crate::log::ProxyLog;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

/// The state of a proxy's store.
pub(super) struct State {
    pub(super) table: ResourceTable,
    pub(super) limiter: Limiter,
    pub(super) ledger: Ledger,
    pub(super) log: ProxyLog,
    /// Bytes of the largest message.
    pub(super) max_message: usize,
    /// Bytes of JSON text behind handles.
    pub(super) held: usize,
    /// Ticks that the current call has used.
    pub(super) ticks: u64,
    wasi: WasiCtx,
}

impl State {
    /// The state of a new instance: an empty WASI context whose output goes to the log.
    pub(super) fn new(log: ProxyLog, limits: ProxyLimits) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(MAX_HANDLES);
        let wasi = WasiCtx::builder()
            .stdout(Output::new(log.clone()))
            .stderr(Output::new(log.clone()))
            .allow_tcp(false)
            .allow_udp(false)
            .max_random_size(MAX_RANDOM)
            .build();
        Self {
            table,
            limiter: Limiter::new(limits.memory),
            ledger: Ledger::new(limits.message),
            log,
            max_message: limits.message,
            held: 0,
            ticks: 0,
            wasi,
        }
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}
