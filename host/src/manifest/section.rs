//! Attaching a manifest to a component: a custom section at its end, and no other of that name.

use super::SECTION;

/// The bytes of the header of a component or module.
const HEADER: usize = 8;

/// The component with this manifest, and without any that it had.
///
/// # Errors
///
/// When the bytes are no sections at all.
pub fn attach(component: &[u8], manifest: &[u8]) -> Result<Vec<u8>, &'static str> {
    let broken = "is a damaged component: its sections do not add up";
    let mut attached = component.get(..HEADER).ok_or(broken)?.to_vec();
    let mut rest = &component[HEADER..];
    while let Some((&id, after)) = rest.split_first() {
        let (size, content) = number(after).ok_or(broken)?;
        let end = rest.len() - content.len() + size;
        let section = rest.get(..end).ok_or(broken)?;
        if id != 0 || name(&content[..size]) != Some(SECTION.as_bytes()) {
            attached.extend_from_slice(section);
        }
        rest = &rest[end..];
    }
    let mut content = Vec::new();
    put_number(&mut content, SECTION.len());
    content.extend_from_slice(SECTION.as_bytes());
    content.extend_from_slice(manifest);
    attached.push(0);
    put_number(&mut attached, content.len());
    attached.extend_from_slice(&content);
    Ok(attached)
}

/// The name of a custom section with this content.
fn name(content: &[u8]) -> Option<&[u8]> {
    let (length, rest) = number(content)?;
    rest.get(..length)
}

/// A number as WebAssembly writes it, and what comes behind it.
fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut number = 0_u64;
    for (place, byte) in bytes.iter().take(5).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            let number = usize::try_from(number).ok()?;
            return Some((number, &bytes[place + 1..]));
        }
    }
    None
}

fn put_number(bytes: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::describe;
    use proptest::prelude::*;

    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    #[test]
    fn a_manifest_takes_the_place_of_another_one() {
        let other = [EMPTY, b"\x00\x07\x04nameab".as_slice()].concat();
        let first = attach(&other, b"first").unwrap();
        let second = attach(&first, &[b'x'; 300]).unwrap();
        assert_eq!(attach(&second, b"first").unwrap(), first);
        assert!(second.starts_with(&other));
        let description = describe::describe(&second).unwrap();
        assert_eq!(description.manifest, Some(vec![b'x'; 300]));
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        let whole = attach(EMPTY, b"manifest").unwrap();
        for length in (0..whole.len()).filter(|length| *length != EMPTY.len()) {
            assert!(attach(&whole[..length], b"").is_err(), "{length}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(attached) = attach(&bytes, b"x") {
                prop_assert_eq!(attach(&attached, b"x"), Ok(attached));
            }
        }
    }
}
