//! What a component is, read from its bytes without running or compiling anything: its imports and exports, and whether this
//! host can run it as a proxy. Knows the names of the world, not what they mean.

mod excess;

use crate::manifest;
use excess::Parts;
use std::fmt;
use wasmparser::{ComponentExternalKind, ComponentTypeRef, Parser, Payload, TypeBounds};

/// The package of the proxy world.
const PACKAGE: &str = "consort:proxy";
/// The version of the world that this host offers.
pub const WORLD_VERSION: &str = "0.1.0";
/// The interfaces of the world's package.
const INTERFACES: [&str; 2] = ["json", "channel"];
/// The functions that a proxy exports.
const EXPORTS: [&str; 2] = ["start", "receive"];
/// The packages of WASI that this host links.
const WASI_PACKAGES: [&str; 5] = ["cli", "clocks", "filesystem", "io", "random"];
/// The packages of WASI that reach for the network, which no proxy gets.
const NETWORK_PACKAGES: [&str; 2] = ["http", "sockets"];
/// The versions of WASI that this host links, as the beginning of the version.
const WASI_VERSION: &str = "0.2.";
/// How many names an error lists at most.
const LISTED: usize = 5;
/// Bytes of a name in an error.
const LONGEST: usize = 200;

/// What kind of thing is imported or exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A function.
    Function,
    /// An instance of an interface.
    Interface,
    /// A type.
    Type,
    /// A module, component or value.
    Other,
}

/// Something that a component imports or exports at its outermost level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its name, such as `consort:proxy/json@0.1.0` or `start`.
    pub name: String,
    /// What it is.
    pub kind: Kind,
}

/// What a component is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// What it wants from its host, in the order of the file.
    pub imports: Vec<Item>,
    /// What it offers.
    pub exports: Vec<Item>,
    /// How many core modules it is made of, those of inner components included.
    pub modules: usize,
    /// What its custom section with a manifest holds: the first one, if there are several.
    pub manifest: Option<Vec<u8>>,
}

/// Why a file cannot be a proxy of this host. Reads like the end of a sentence that begins with the file's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsuitable {
    /// It has no content.
    Empty,
    /// It is text.
    Text,
    /// It is something else than WebAssembly.
    Foreign,
    /// It is a core module.
    Module,
    /// It is WebAssembly, but cut off or damaged; why, and at which byte.
    Broken(String),
    /// It is so made that compiling or instantiating it would cost far more than its size; what is too much.
    Excessive(String),
    /// It is a component of another world; what it exports.
    World(Vec<String>),
    /// It is a proxy for another version of the world; the interface that it wants.
    Version(String),
    /// It wants another version of WASI; the interface that it wants.
    Wasi(String),
    /// It wants the network; the interfaces.
    Network(Vec<String>),
    /// It wants what this host does not have.
    Imports(Vec<String>),
    /// It lacks an export of the world.
    Export(&'static str),
}

impl fmt::Display for Unsuitable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(formatter, "is empty; a proxy is a WebAssembly component"),
            Self::Text => write!(
                formatter,
                "is text; a proxy is a binary WebAssembly component, such as `consort build` makes"
            ),
            Self::Foreign => write!(formatter, "is not WebAssembly; a proxy is a WebAssembly component"),
            Self::Module => write!(
                formatter,
                "is a core WebAssembly module; a proxy is a component, such as `consort build` makes"
            ),
            Self::Broken(reason) => {
                write!(formatter, "is a damaged or incomplete component: {reason}")
            }
            Self::Excessive(what) => write!(formatter, "has {what}, more than any sensible proxy"),
            Self::World(exports) => write!(
                formatter,
                "is a component of another world: it exports {}; a proxy exports {} of {PACKAGE}@{WORLD_VERSION}",
                listed(exports),
                EXPORTS.join(" and "),
            ),
            Self::Version(wanted) => {
                let interface = wanted.split('@').next().unwrap_or(wanted);
                write!(
                    formatter,
                    "was built for another version of the proxy world: it wants {wanted}, this Consort offers {interface}@{WORLD_VERSION}"
                )
            }
            Self::Wasi(wanted) => write!(
                formatter,
                "was built for another version of WASI: it wants {wanted}, this Consort offers {WASI_VERSION}x"
            ),
            Self::Network(names) => write!(formatter, "wants the network ({}), which no proxy gets", listed(names)),
            Self::Imports(names) => write!(
                formatter,
                "wants {}, which this Consort does not offer; it offers {PACKAGE}/{{{}}}@{WORLD_VERSION} and wasi:{{{}}} {WASI_VERSION}x",
                listed(names),
                INTERFACES.join(","),
                WASI_PACKAGES.join(","),
            ),
            Self::Export(name) => write!(
                formatter,
                "does not export the function {name} of {PACKAGE}@{WORLD_VERSION}"
            ),
        }
    }
}

impl std::error::Error for Unsuitable {}

impl From<wasmparser::BinaryReaderError> for Unsuitable {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        Self::Broken(error.to_string())
    }
}

fn listed(names: &[String]) -> String {
    let cut = |name: &String| name[..name.floor_char_boundary(LONGEST)].to_owned();
    let shown: Vec<_> = names.iter().take(LISTED).map(cut).collect();
    let shown = shown.join(", ");
    match names.len() {
        0 => "nothing".to_owned(),
        count if count > LISTED => format!("{shown} and {} more", count - LISTED),
        _ => shown,
    }
}

/// Reads what a component is. Nothing is validated beyond its outer structure.
///
/// # Errors
///
/// When the bytes are no component.
pub fn describe(bytes: &[u8]) -> Result<Description, Unsuitable> {
    if bytes.is_empty() {
        return Err(Unsuitable::Empty);
    }
    if Parser::is_core_wasm(bytes) {
        return Err(Unsuitable::Module);
    }
    if !Parser::is_component(bytes) {
        if bytes.starts_with(b"\0asm") {
            return Err(Unsuitable::Broken(
                "it ends within its header, or is of an unknown version of WebAssembly".into(),
            ));
        }
        // A text file may be large: its beginning tells enough.
        let head = &bytes[..bytes.len().min(1024)];
        let text = head.iter().all(|&byte| byte >= b' ' || byte.is_ascii_whitespace());
        return Err(if text { Unsuitable::Text } else { Unsuitable::Foreign });
    }
    read(bytes)
}

fn read(bytes: &[u8]) -> Result<Description, Unsuitable> {
    let mut description = Description::default();
    let mut depth = 0_usize;
    let mut parts = Parts::default();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload?;
        parts.add(&payload)?;
        match payload {
            Payload::ModuleSection { .. } => {
                description.modules += 1;
                depth += 1;
            }
            Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    let import = import?;
                    description.imports.push(Item {
                        name: import.name.name.to_owned(),
                        kind: match import.ty {
                            ComponentTypeRef::Func(_) => Kind::Function,
                            ComponentTypeRef::Instance(_) => Kind::Interface,
                            ComponentTypeRef::Type(TypeBounds::Eq(_)) => Kind::Type,
                            _ => Kind::Other,
                        },
                    });
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    let export = export?;
                    description.exports.push(Item {
                        name: export.name.name.to_owned(),
                        kind: match export.kind {
                            ComponentExternalKind::Func => Kind::Function,
                            ComponentExternalKind::Instance => Kind::Interface,
                            ComponentExternalKind::Type => Kind::Type,
                            _ => Kind::Other,
                        },
                    });
                }
            }
            Payload::CustomSection(section)
                if depth == 0 && section.name() == manifest::SECTION && description.manifest.is_none() =>
            {
                // One byte more tells that it is too large.
                let most = section.data().len().min(manifest::MAX_SIZE + 1);
                description.manifest = Some(section.data()[..most].to_vec());
            }
            _ => {}
        }
    }
    Ok(description)
}

impl Description {
    /// The version of the proxy world that the component was built for, if it is a proxy at all.
    pub fn world_version(&self) -> Option<&str> {
        self.imports.iter().find_map(|item| {
            let (package, _, version) = parts(&item.name)?;
            (package == PACKAGE).then_some(version)
        })
    }

    /// Whether this host can run the component as a proxy.
    ///
    /// # Errors
    ///
    /// When it cannot: another version is named before what is missing altogether.
    pub fn check(&self) -> Result<(), Unsuitable> {
        let exports = |name: &str| {
            self.exports
                .iter()
                .any(|item| item.name == name && item.kind == Kind::Function)
        };
        if self.world_version().is_none() && !EXPORTS.iter().all(|name| exports(name)) {
            return Err(Unsuitable::World(
                self.exports.iter().map(|item| item.name.clone()).collect(),
            ));
        }
        let mut unknown = Vec::new();
        let mut network = Vec::new();
        for item in &self.imports {
            match offer(item) {
                Offer::Ours => {}
                Offer::OtherWorld => return Err(Unsuitable::Version(item.name.clone())),
                Offer::OtherWasi => return Err(Unsuitable::Wasi(item.name.clone())),
                Offer::Network => network.push(item.name.clone()),
                Offer::Unknown => unknown.push(item.name.clone()),
            }
        }
        if !network.is_empty() {
            return Err(Unsuitable::Network(network));
        }
        if !unknown.is_empty() {
            return Err(Unsuitable::Imports(unknown));
        }
        match EXPORTS.into_iter().find(|name| !exports(name)) {
            Some(name) => Err(Unsuitable::Export(name)),
            None => Ok(()),
        }
    }
}

impl Item {
    /// Whether this host offers what is imported here.
    pub fn is_offered(&self) -> bool {
        offer(self) == Offer::Ours
    }

    /// Whether it is an interface of WASI.
    pub fn is_wasi(&self) -> bool {
        self.kind == Kind::Interface && self.name.starts_with("wasi:")
    }
}

#[derive(PartialEq)]
enum Offer {
    Ours,
    OtherWorld,
    OtherWasi,
    Network,
    Unknown,
}

fn offer(import: &Item) -> Offer {
    match import.kind {
        // A type is only another name for one of an interface that is imported as well.
        Kind::Type => return Offer::Ours,
        Kind::Interface => {}
        Kind::Function | Kind::Other => return Offer::Unknown,
    }
    let Some((package, interface, version)) = parts(&import.name) else {
        return Offer::Unknown;
    };
    if package == PACKAGE {
        return match (version == WORLD_VERSION, INTERFACES.contains(&interface)) {
            (true, true) => Offer::Ours,
            (true, false) => Offer::Unknown,
            (false, _) => Offer::OtherWorld,
        };
    }
    match package.strip_prefix("wasi:") {
        Some(name) if WASI_PACKAGES.contains(&name) => {
            if version.starts_with(WASI_VERSION) {
                Offer::Ours
            } else {
                Offer::OtherWasi
            }
        }
        Some(name) if NETWORK_PACKAGES.contains(&name) => Offer::Network,
        _ => Offer::Unknown,
    }
}

/// Package, interface and version of a name like `wasi:io/poll@0.2.6`.
fn parts(name: &str) -> Option<(&str, &str, &str)> {
    let (package, rest) = name.split_once('/')?;
    let (interface, version) = rest.split_once('@').unwrap_or((rest, "no version"));
    Some((package, interface, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(imports: &[&str], exports: &[&str]) -> Description {
        Description {
            imports: imports
                .iter()
                .map(|name| Item {
                    name: (*name).into(),
                    kind: Kind::Interface,
                })
                .collect(),
            exports: exports
                .iter()
                .map(|name| Item {
                    name: (*name).into(),
                    kind: Kind::Function,
                })
                .collect(),
            modules: 1,
            manifest: None,
        }
    }

    const OURS: [&str; 3] = [
        "consort:proxy/json@0.1.0",
        "consort:proxy/channel@0.1.0",
        "wasi:io/poll@0.2.6",
    ];

    #[test]
    fn what_is_no_component_is_named() {
        assert_eq!(describe(b""), Err(Unsuitable::Empty));
        assert_eq!(describe(b"(component)"), Err(Unsuitable::Text));
        assert_eq!(describe(b"\x7fELF\x02"), Err(Unsuitable::Foreign));
        assert_eq!(describe(b"\0asm\x01\0\0\0"), Err(Unsuitable::Module));
        assert!(matches!(describe(b"\0asm\x0d"), Err(Unsuitable::Broken(_))));
        assert!(matches!(
            describe(b"\0asm\x0d\0\x01\0\x0a\x20"),
            Err(Unsuitable::Broken(_))
        ));
    }

    #[test]
    fn an_empty_component_is_of_another_world() {
        let description = describe(b"\0asm\x0d\0\x01\0").unwrap();
        assert_eq!(description.check(), Err(Unsuitable::World(Vec::new())));
    }

    #[test]
    fn a_proxy_of_this_version_is_accepted() {
        let proxy = component(&OURS, &["start", "receive"]);
        assert_eq!(proxy.check(), Ok(()));
        assert_eq!(proxy.world_version(), Some("0.1.0"));
    }

    #[test]
    fn wanted_and_offered_versions_are_named() {
        let proxy = component(&["consort:proxy/channel@0.2.0"], &["start", "receive"]);
        let error = proxy.check().unwrap_err();
        assert_eq!(error, Unsuitable::Version("consort:proxy/channel@0.2.0".into()));
        let sentence = error.to_string();
        assert!(sentence.contains("wants consort:proxy/channel@0.2.0"), "{sentence}");
        assert!(sentence.contains("offers consort:proxy/channel@0.1.0"), "{sentence}");

        let proxy = component(&[OURS[0], "wasi:cli/stdout@0.3.0"], &["start", "receive"]);
        assert_eq!(proxy.check(), Err(Unsuitable::Wasi("wasi:cli/stdout@0.3.0".into())));
    }

    #[test]
    fn unknown_imports_are_named() {
        for name in ["consort:proxy/files@0.1.0", "evil:thing/do", "plain"] {
            let proxy = component(&[OURS[0], name], &["start", "receive"]);
            assert_eq!(proxy.check(), Err(Unsuitable::Imports(vec![name.into()])));
        }
        let mut proxy = component(&OURS, &["start", "receive"]);
        proxy.imports.push(Item {
            name: "wasi:io/poll@0.2.6".into(),
            kind: Kind::Function,
        });
        assert!(proxy.check().is_err(), "a function is no interface");
    }

    #[test]
    fn who_wants_the_network_is_refused() {
        for name in ["wasi:http/types@0.2.0", "wasi:sockets/tcp@0.2.6"] {
            let error = component(&[OURS[0], name], &["start", "receive"]).check().unwrap_err();
            assert_eq!(error, Unsuitable::Network(vec![name.into()]));
            assert!(error.to_string().contains("the network"), "{error}");
        }
    }

    #[test]
    fn missing_exports_are_named() {
        let proxy = component(&OURS, &["start"]);
        assert_eq!(proxy.check(), Err(Unsuitable::Export("receive")));
    }
}
