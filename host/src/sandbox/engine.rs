//! The engine that all instances share: its settings, its clock, and components made ready to be instantiated.

use super::bindings::ProxyPre;
use super::cache::Cache;
use super::describe;
use super::limits::{MAX_COMPONENT, TICK};
use super::record::Record;
use super::state::State;
use crate::digest::sha256;
use crate::fault::{Class, Fault, Phase};
use crate::grants::Policy;
use crate::limits::{Limit, Limits};
use crate::log::ProxyLog;
use crate::manifest::Manifest;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::{Config, Engine, EngineWeak};

/// Runs of the clock without a call before it goes to sleep: a second.
const IDLE_TICKS: u32 = 200;

/// Compiles and loads components; all proxies of a process share one.
pub struct Sandbox {
    engine: Engine,
    linker: Linker<State>,
    cache: Option<Cache>,
    clock: Arc<Clock>,
    /// What is in use, by the hash of the component: many connections share its code.
    in_use: Mutex<HashMap<blake3::Hash, Weak<Prepared>>>,
}

/// A component that is ready to be instantiated.
pub struct Prepared {
    /// How long compiling took; none if the compiled code came from the cache.
    pub compiled: Option<Duration>,
    /// Its manifest, if it has one, and what is wrong with that.
    pub manifest: Option<(Manifest, Vec<String>)>,
    /// The SHA-256 of its bytes, in hexadecimal digits.
    pub sha256: String,
    pre: ProxyPre<State>,
    clock: Arc<Clock>,
}

/// A component as one proxy of a chain.
pub struct Loaded {
    /// The proxy's name.
    pub name: Arc<str>,
    /// Its limits.
    pub limits: Limits,
    /// What it may do.
    pub policy: Arc<Policy>,
    /// What is kept of it over the lives of its instances.
    pub record: Arc<Record>,
    pub(super) log: ProxyLog,
    prepared: Arc<Prepared>,
}

impl Loaded {
    /// Uses a component as the proxy with this name. `keeps_changes` says whether its record keeps the texts of what it changes.
    pub fn new(prepared: Arc<Prepared>, name: &str, limits: Limits, policy: Arc<Policy>, keeps_changes: bool) -> Self {
        let name: Arc<str> = name.into();
        Self {
            log: ProxyLog::new(name.clone(), limits.count(Limit::Log)),
            name,
            limits,
            policy,
            record: Arc::new(Record::new(&limits, keeps_changes)),
            prepared,
        }
    }

    /// The proxy's log.
    pub fn log(&self) -> &ProxyLog {
        &self.log
    }

    pub(super) fn pre(&self) -> &ProxyPre<State> {
        &self.prepared.pre
    }

    pub(super) fn clock(&self) -> &Arc<Clock> {
        &self.prepared.clock
    }
}

impl Sandbox {
    /// An engine with the compile cache in `cache`, or without one.
    ///
    /// # Errors
    ///
    /// If wasmtime cannot run on this machine.
    pub fn new(cache: Option<&Path>) -> anyhow::Result<Self> {
        let mut config = Config::new();
        config.epoch_interruption(true);
        config.concurrency_support(false);
        // 4 GiB of address space an instance, the default, runs into limits of containers; 16 MiB cost no speed.
        config.memory_reservation(16 * 1024 * 1024);
        config.memory_reservation_for_growth(16 * 1024 * 1024);
        config.memory_guard_size(64 * 1024);
        // Enough for any sensible guest; recursion without end traps here.
        config.max_wasm_stack(512 * 1024);
        config.async_stack_size(1024 * 1024);
        // Where in the source a trap was, and how native debuggers find their way: nobody is told, and it takes more than the code itself.
        config.generate_address_map(false);
        config.native_unwind_info(false);
        let engine = Engine::new(&config)?;
        let mut linker = Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
        super::bindings::Proxy::add_to_linker::<_, HasSelf<State>>(&mut linker, |state| state)?;
        let clock = Clock::start(engine.weak())?;
        let cache = cache.and_then(|folder| Cache::open(folder, &engine));
        Ok(Self {
            engine,
            linker,
            cache,
            clock,
            in_use: Mutex::default(),
        })
    }

    /// Reads, checks and compiles a component, or takes its compiled code from the cache, or from another connection that uses the same
    /// component. Blocks: up to seconds.
    ///
    /// # Errors
    ///
    /// A load fault that names the file and what is wrong with it.
    pub fn load(&self, file: &Path) -> Result<Arc<Prepared>, Fault> {
        let source = read_component(file)?;
        let hash = blake3::hash(&source);
        if let Some(prepared) = self.in_use().get(&hash).and_then(Weak::upgrade) {
            return Ok(prepared);
        }
        let prepared = Arc::new(self.prepare(file, &source)?);
        let mut in_use = self.in_use();
        in_use.retain(|_, prepared| prepared.strong_count() > 0);
        in_use.insert(hash, Arc::downgrade(&prepared));
        Ok(prepared)
    }

    fn in_use(&self) -> MutexGuard<'_, HashMap<blake3::Hash, Weak<Prepared>>> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prepare(&self, file: &Path, source: &[u8]) -> Result<Prepared, Fault> {
        let description = describe::describe(source)
            .and_then(|description| description.check().map(|()| description))
            .map_err(|unsuitable| load(file, unsuitable.to_string()))?;
        let begun = Instant::now();
        let cached = self.cache.as_ref().and_then(|cache| cache.get(&self.engine, source));
        let (component, compiled) = match cached {
            Some(component) => (component, None),
            None => {
                let component = Component::new(&self.engine, source)
                    .map_err(|error| load(file, format!("cannot be compiled: {}", chain(&error))))?;
                if let Some(cache) = &self.cache {
                    cache.put(&component, source);
                }
                let time = begun.elapsed();
                tracing::info!("{} compiled in {} ms", file.display(), time.as_millis());
                (component, Some(time))
            }
        };
        let pre = self
            .linker
            .instantiate_pre(&component)
            .and_then(ProxyPre::new)
            .map_err(|error| {
                load(
                    file,
                    format!(
                        "does not fit the world consort:proxy@{}: {}",
                        describe::WORLD_VERSION,
                        chain(&error)
                    ),
                )
            })?;
        Ok(Prepared {
            compiled,
            manifest: description.manifest.as_deref().map(Manifest::read),
            sha256: sha256([source]),
            pre,
            clock: self.clock.clone(),
        })
    }
}

/// Reads a component's bytes.
///
/// # Errors
///
/// A load fault that names the file, also if it is no plain file or larger than a component may be.
pub fn read_component(file: &Path) -> Result<Vec<u8>, Fault> {
    let metadata = std::fs::metadata(file).map_err(|error| load(file, format!("cannot be read: {error}")))?;
    if !metadata.is_file() {
        return Err(load(file, "is not a file; name a .wasm component".into()));
    }
    if metadata.len() > MAX_COMPONENT {
        let limit = MAX_COMPONENT / 1024 / 1024;
        return Err(load(
            file,
            format!("is larger than {limit} MiB, the most that a component may have"),
        ));
    }
    std::fs::read(file).map_err(|error| load(file, format!("cannot be read: {error}")))
}

fn load(file: &Path, cause: String) -> Fault {
    Fault::new(Class::Load, Phase::Load, format!("{} {cause}", file.display()))
}

fn chain(error: &wasmtime::Error) -> String {
    error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Advances the engine's epoch while calls are being made, and sleeps otherwise.
pub(super) struct Clock {
    /// How often it has ticked.
    ticks: AtomicU64,
    asleep: AtomicBool,
    idle: AtomicU32,
    thread: Thread,
}

impl Clock {
    pub(super) fn start(engine: EngineWeak) -> anyhow::Result<Arc<Self>> {
        let (send, receive) = std::sync::mpsc::sync_channel::<Weak<Self>>(1);
        let handle = thread::Builder::new().name("consort-clock".into()).spawn(move || {
            if let Ok(clock) = receive.recv() {
                run(&engine, &clock);
            }
        })?;
        let clock = Arc::new(Self {
            ticks: AtomicU64::new(0),
            asleep: AtomicBool::new(false),
            idle: AtomicU32::new(0),
            thread: handle.thread().clone(),
        });
        // The thread waits for exactly this message.
        let _ = send.send(Arc::downgrade(&clock));
        Ok(clock)
    }

    /// How often it has ticked.
    pub(super) fn ticks(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// Makes sure that epochs advance for a while.
    pub(super) fn wake(&self) {
        self.idle.store(0, Ordering::Relaxed);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            self.thread.unpark();
        }
    }
}

fn run(engine: &EngineWeak, clock: &Weak<Clock>) {
    loop {
        thread::sleep(TICK);
        let Some(clock) = clock.upgrade() else { return };
        let Some(engine) = engine.upgrade() else { return };
        engine.increment_epoch();
        clock.ticks.fetch_add(1, Ordering::Relaxed);
        if clock.idle.fetch_add(1, Ordering::Relaxed) > IDLE_TICKS {
            clock.asleep.store(true, Ordering::Release);
            drop((clock, engine));
            thread::park_timeout(Duration::from_secs(1));
        }
    }
}
