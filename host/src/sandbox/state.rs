//! What a proxy's store holds.

use super::engine::Loaded;
use super::held::Held;
use super::ledger::Ledger;
use super::limits::{Limiter, MAX_RANDOM, MAX_WASI};
use super::meter::Meter;
use super::output::Output;
use crate::fault::{Class, Fault, Phase};
use crate::limits::Limit;
use crate::log::ProxyLog;
use std::sync::Arc;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxView, WasiView};

/// The state of a proxy's store.
pub(super) struct State {
    /// What its JSON handles stand for.
    pub(super) table: ResourceTable,
    /// What its handles of WASI stand for, open files among them.
    wasi_table: ResourceTable,
    pub(super) limiter: Limiter,
    pub(super) ledger: Ledger,
    pub(super) log: ProxyLog,
    /// Bytes of the largest message.
    pub(super) max_message: usize,
    /// The JSON text behind handles.
    pub(super) held: Held,
    /// What its calls use.
    pub(super) meter: Arc<Meter>,
    wasi: WasiCtx,
}

impl State {
    /// The state of a new instance: a WASI context with nothing in it but what was granted, whose output goes to the log.
    ///
    /// # Errors
    ///
    /// A fault if a granted directory is not there.
    pub(super) fn new(loaded: &Loaded) -> Result<Self, Fault> {
        let limits = loaded.limits;
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.count(Limit::Handles));
        let mut wasi_table = ResourceTable::new();
        wasi_table.set_max_capacity(MAX_WASI);
        let log = loaded.log.clone();
        let mut wasi = WasiCtx::builder();
        wasi.stdout(Output::new(log.clone()))
            .stderr(Output::new(log.clone()))
            .allow_tcp(false)
            .allow_udp(false)
            .max_random_size(MAX_RANDOM);
        for (name, value) in loaded.policy.environment() {
            wasi.env(name, value);
        }
        for directory in loaded.policy.directories() {
            let rights = match directory.write {
                true => FsPerms::ReadWrite,
                false => FsPerms::ReadOnly,
            };
            wasi.preopened_dir(&directory.host, &directory.guest, rights)
                .map_err(|error| {
                    let cause = format!(
                        "the directory {} that it was granted cannot be opened: {error}",
                        directory.host.display()
                    );
                    Fault::new(Class::Load, Phase::Start, cause)
                })?;
        }
        Ok(Self {
            table,
            wasi_table,
            limiter: Limiter::new(limits.get(Limit::Memory)),
            ledger: Ledger::new(limits, loaded.policy.clone(), loaded.record.clone()),
            log,
            max_message: limits.count(Limit::MessageSize),
            held: Held::new(&limits),
            meter: Arc::new(Meter::new(&limits, loaded.record.clone(), loaded.clock().clone())),
            wasi: wasi.build(),
        })
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.wasi_table,
        }
    }
}
