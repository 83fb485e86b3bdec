//! What a component has too much of. The compiler's time and memory, and the memory of what is not a memory or a table, are in no
//! proportion to a file's size, so what drives them up is bounded here, well above what an interpreter that is compiled to
//! WebAssembly has. Knows nothing of what the parts are for.

use super::Unsuitable;
use wasmparser::{
    ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind, ComponentTypeRef, Encoding,
    FunctionBody, Payload,
};

/// Components and modules in each other. The compiler's memory grows with the square of that: 1.2 MB that nest 100,000 deep take
/// more than 6 GiB. What is composed of others needs two or three.
const MAX_NESTING: usize = 16;

/// Functions, globals, types and the like in one module, each. Instances of a module have up to 48 bytes for each of them beyond their
/// limit of memory, and there may be 64 instances. Python has 11,000 functions.
const MAX_ITEMS: usize = 50_000;

/// Bytes of one function. The compiler takes 600 times as much memory. Python's largest has 427,000.
const MAX_BODY: usize = 1 << 20;

/// Bytes of one function times its locals: what the compiler's time grows with. Python has 3,500,000 at most.
const MAX_BODY_BY_LOCALS: usize = 100_000_000;

/// Instances that come of a component in all, those of inner components included: ten of ten of ten of … are many. One with an
/// interpreter inside has 50.
const MAX_INSTANCES: usize = 10_000;

/// What was seen so far.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// The components and modules that the next part is in.
    levels: Vec<Level>,
    /// The most instances that come of any component so far.
    largest: usize,
}

/// A component, as far as it was seen. Of a module, nothing is kept here.
#[derive(Debug, Default)]
struct Level {
    is_module: bool,
    /// Instances that come of each component that it knows, by index.
    components: Vec<usize>,
    /// Instances that come of itself.
    instances: usize,
}

impl Parts {
    /// Looks at the next part.
    pub(super) fn add(&mut self, payload: &Payload<'_>) -> Result<(), Unsuitable> {
        let (count, what) = match payload {
            Payload::Version { encoding, .. } => {
                let is_module = *encoding == Encoding::Module;
                self.levels.push(Level {
                    is_module,
                    ..Level::default()
                });
                return check(self.levels.len() - 1, MAX_NESTING, "levels of components in each other");
            }
            Payload::End(_) => {
                self.end();
                return Ok(());
            }
            Payload::CodeSectionEntry(body) => return self::body(body),
            Payload::TypeSection(section) => (section.count(), "types in a module"),
            Payload::ImportSection(section) => (section.count(), "imports in a module"),
            Payload::FunctionSection(section) => (section.count(), "functions in a module"),
            Payload::GlobalSection(section) => (section.count(), "globals in a module"),
            Payload::TagSection(section) => (section.count(), "tags in a module"),
            Payload::ElementSection(section) => (section.count(), "element segments in a module"),
            Payload::DataSection(section) => (section.count(), "data segments in a module"),
            _ => return self.components(payload),
        };
        check(count as usize, MAX_ITEMS, what)
    }

    /// The same for what makes components and instances.
    fn components(&mut self, payload: &Payload<'_>) -> Result<(), Unsuitable> {
        let unknown = self.largest;
        match payload {
            Payload::InstanceSection(section) => self.instances(section.count() as usize)?,
            Payload::ComponentInstanceSection(section) => {
                for instance in section.clone() {
                    let more = match instance? {
                        ComponentInstance::Instantiate { component_index, .. } => self.of(0, component_index),
                        ComponentInstance::FromExports(_) => 0,
                    };
                    self.instances(more.saturating_add(1))?;
                }
            }
            Payload::ComponentImportSection(section) => {
                for import in section.clone() {
                    if let ComponentTypeRef::Component(_) = import?.ty {
                        self.knows(unknown);
                    }
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section.clone() {
                    let export = export?;
                    if export.kind == ComponentExternalKind::Component {
                        self.knows(self.of(0, export.index));
                    }
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section.clone() {
                    match alias? {
                        ComponentAlias::Outer {
                            kind: ComponentOuterAliasKind::Component,
                            count,
                            index,
                        } => self.knows(self.of(count as usize, index)),
                        ComponentAlias::InstanceExport {
                            kind: ComponentExternalKind::Component,
                            ..
                        } => self.knows(unknown),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self) {
        if let Some(level) = self.levels.pop()
            && !level.is_module
        {
            self.largest = self.largest.max(level.instances);
            self.knows(level.instances);
        }
    }

    /// The component at hand has one more component in it.
    fn knows(&mut self, instances: usize) {
        if let Some(level) = self.levels.last_mut() {
            level.components.push(instances);
        }
    }

    /// Instances that come of a component that is known so many levels further out.
    fn of(&self, levels: usize, index: u32) -> usize {
        let level = self.levels.iter().rev().nth(levels);
        let known = level.and_then(|level| level.components.get(index as usize));
        known.copied().unwrap_or(self.largest)
    }

    fn instances(&mut self, more: usize) -> Result<(), Unsuitable> {
        let Some(level) = self.levels.last_mut() else {
            return Ok(());
        };
        level.instances = level.instances.saturating_add(more);
        check(level.instances, MAX_INSTANCES, "instances")
    }
}

fn body(body: &FunctionBody<'_>) -> Result<(), Unsuitable> {
    let bytes = body.range().len();
    check(bytes, MAX_BODY, "bytes in a function")?;
    let mut locals = 0_usize;
    for group in body.get_locals_reader()? {
        let (count, _) = group?;
        locals = locals.saturating_add(count as usize);
    }
    match bytes.saturating_mul(locals) <= MAX_BODY_BY_LOCALS {
        true => Ok(()),
        false => Err(Unsuitable::Excessive(format!(
            "{locals} locals in a function of {bytes} bytes"
        ))),
    }
}

fn check(count: usize, most: usize, what: &str) -> Result<(), Unsuitable> {
    match count <= most {
        true => Ok(()),
        false => Err(Unsuitable::Excessive(format!("{count} {what} ({most} is the most)"))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::describe;
    use super::*;

    fn number(mut number: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while number >= 0x80 {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    }

    fn section(id: u8, content: &[u8]) -> Vec<u8> {
        [&[id], &number(content.len())[..], content].concat()
    }

    fn component(sections: &[Vec<u8>]) -> Vec<u8> {
        [b"\0asm\x0d\0\x01\0", &sections.concat()[..]].concat()
    }

    fn module(sections: &[Vec<u8>]) -> Vec<u8> {
        component(&[section(1, &[b"\0asm\x01\0\0\0", &sections.concat()[..]].concat())])
    }

    fn excess(component: &[u8]) -> String {
        match describe(component) {
            Err(Unsuitable::Excessive(what)) => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |levels| (0..levels).fold(component(&[]), |inner, _| component(&[section(4, &inner)]));
        assert!(describe(&nested(MAX_NESTING)).is_ok());
        assert!(excess(&nested(MAX_NESTING + 1)).contains("levels"));
    }

    #[test]
    fn instances_of_instances_are_counted() {
        // A component with one inside, instantiated so many times.
        let of = |inner: &[u8], times: usize| {
            let instances = [number(times), b"\0\0\0".repeat(times)].concat();
            component(&[section(4, inner), section(5, &instances)])
        };
        let tens = |levels| (0..levels).fold(component(&[]), |inner, _| of(&inner, 10));
        assert!(describe(&tens(3)).is_ok());
        assert!(excess(&tens(4)).contains("instances"));
        // Side by side, each of the one before it: the second one sees the first through an alias.
        let alias = |index: u8| section(6, &[1, 4, 2, 1, index]);
        let ten_of = |index| component(&[alias(index), section(5, &[&[10], &b"\0\0\0".repeat(10)[..]].concat())]);
        let chain = |length: u8| {
            let mut sections = vec![section(4, &component(&[]))];
            sections.extend((0..length).map(|index| section(4, &ten_of(index))));
            component(&sections)
        };
        assert!(describe(&chain(3)).is_ok());
        assert!(excess(&chain(4)).contains("instances"));
        // Many small ones are none too many.
        let small = vec![section(4, &of(&component(&[]), 5)); 100];
        assert!(describe(&component(&small)).is_ok());
    }

    #[test]
    fn what_drives_up_the_cost_of_a_module_is_bounded() {
        let globals = |count| module(&[section(6, &[number(count), b"\x7e\0\x42\0\x0b".repeat(count)].concat())]);
        assert!(describe(&globals(MAX_ITEMS)).is_ok());
        assert!(excess(&globals(MAX_ITEMS + 1)).contains("globals"));
        let function = |locals: usize, size: usize| {
            let body = [&[1], &number(locals)[..], b"\x7e", &vec![1; size], b"\x0b"].concat();
            let bodies = [&[1], &number(body.len())[..], &body].concat();
            module(&[section(3, &[1, 0]), section(10, &bodies)])
        };
        assert!(describe(&function(90, MAX_BODY - 10)).is_ok());
        assert!(excess(&function(0, MAX_BODY)).contains("bytes in a function"));
        assert!(excess(&function(10_000, 10_000)).contains("locals"));
    }
}
