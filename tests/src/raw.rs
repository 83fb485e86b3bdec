//! Members of a line as text: what a test compares byte for byte must not go through a JSON library.

/// The text of the last member of a line's outermost object, which has to have this name.
pub fn last(line: &str, member: &str) -> String {
    let (_, rest) = line
        .split_once(&format!("\"{member}\":"))
        .unwrap_or_else(|| panic!("no {member} in {line:.1000}"));
    rest.strip_suffix('}').expect("an object ends").to_owned()
}

/// The id in a line as text, without commas, which no id of Consort's has. The rest of the line need not be what serde_json
/// reads.
pub fn id(line: &str) -> &str {
    let (_, rest) = line
        .split_once("\"id\":")
        .unwrap_or_else(|| panic!("no id in {line:.1000}"));
    rest.split([',', '}']).next().expect("splitting gives something")
}
