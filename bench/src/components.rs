//! A component of its own for each proxy of a chain: copies of a guest with different content, so that each is compiled, cached and
//! mapped for itself, as those of different authors are.

use anyhow::Context;
use std::fs;
use std::path::{Path, PathBuf};

/// The custom section in which copies differ. Nothing reads it.
const SECTION: &str = "copy";

/// A proxy's component, counted from 1.
pub(crate) fn file(folder: &Path, guest: &str, number: usize) -> PathBuf {
    folder.join(format!("{guest}-{number}.wasm"))
}

/// Writes the components of so many proxies beside the guest.
pub(crate) fn copy(folder: &Path, guest: &str, count: usize) -> anyhow::Result<()> {
    let source = folder.join(guest).with_extension("wasm");
    let component = fs::read(&source).with_context(|| format!("cannot read {}", source.display()))?;
    for number in 1..=count {
        let file = file(folder, guest, number);
        fs::write(&file, numbered(&component, number)).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// A component with its number in a custom section at its end.
fn numbered(component: &[u8], number: usize) -> Vec<u8> {
    let number = number.to_string();
    // Lengths below 128 are one byte each in LEB128, and a number in text has at most 20 digits.
    let name = SECTION.len() as u8;
    let size = 1 + name + number.len() as u8;
    [component, &[0, size, name], SECTION.as_bytes(), number.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_copy_is_the_component_with_a_section_of_its_own() {
        let component = b"\0asm\x0d\0\x01\0";
        for (number, section) in [(1, &b"\0\x06\x04copy1"[..]), (16, b"\0\x07\x04copy16")] {
            assert_eq!(numbered(component, number), [component, section].concat());
        }
    }
}
