//! The front matter of a SKILL.md: its name and description. Owns as much of YAML as people write there; what is beyond that is told, and
//! does no harm.

/// What stands in it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FrontMatter {
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    /// What could not be read.
    pub(crate) complaint: Option<String>,
}

/// Reads the beginning of a file. Without a description there, it is the first line of the text that is no heading.
pub(crate) fn read(text: &str) -> FrontMatter {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut found = FrontMatter::default();
    let Some(rest) = after_mark(text) else {
        found.complaint = Some("it does not begin with a line `---`".into());
        found.description = first_line(text);
        return found;
    };
    let mut lines = rest.lines().enumerate().peekable();
    let mut body = None;
    while let Some((number, line)) = lines.next() {
        if line.trim_end() == "---" {
            body = Some(number + 1);
            break;
        }
        if is_nested(line) || line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((key, value)) = line.split_once(':') else {
            // Behind the first line, which is cut off here.
            found.complaint = Some(format!("line {} is not of the form `key: value`", number + 2));
            continue;
        };
        let mut below = Vec::new();
        while let Some((_, next)) = lines.next_if(|(_, next)| is_nested(next) || next.trim().is_empty()) {
            below.push(next);
        }
        let place = match key.trim() {
            "name" => &mut found.name,
            "description" => &mut found.description,
            _ => continue,
        };
        match scalar(value.trim(), &below) {
            Ok(value) => *place = Some(value).filter(|value| !value.is_empty()),
            Err(reason) => found.complaint = Some(format!("line {}: {reason}", number + 2)),
        }
    }
    match body {
        None => found.complaint = Some("its front matter has no end: a second line `---`".into()),
        Some(begin) if found.description.is_none() => {
            let body: Vec<&str> = rest.lines().skip(begin).collect();
            found.description = first_line(&body.join("\n"));
        }
        Some(_) => {}
    }
    found
}

/// What comes behind the line `---` that a file begins with.
fn after_mark(text: &str) -> Option<&str> {
    let (first, rest) = text.split_once('\n')?;
    (first.trim_end() == "---").then_some(rest)
}

fn is_nested(line: &str) -> bool {
    line.starts_with([' ', '\t'])
}

fn first_line(body: &str) -> Option<String> {
    let line = body
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#'));
    line.map(str::to_owned)
}

/// A text, from what stands behind the colon and the indented lines below.
fn scalar(value: &str, below: &[&str]) -> Result<String, String> {
    if let Some(style) = value.chars().next().filter(|first| "|>".contains(*first)) {
        let keep = style == '|';
        return Ok(block(below, keep));
    }
    let mut joined = value.to_owned();
    for line in below.iter().map(|line| line.trim()).filter(|line| !line.is_empty()) {
        if !joined.is_empty() {
            joined.push(' ');
        }
        joined.push_str(line);
    }
    match joined.chars().next() {
        Some(quote @ ('"' | '\'')) => quoted(&joined[1..], quote),
        Some('[' | '{' | '&' | '*' | '!') => Err("it is no text".into()),
        _ => Ok(without_comment(&joined).trim_end().to_owned()),
    }
}

/// A block: lines that are kept, or folded into paragraphs.
fn block(below: &[&str], keep: bool) -> String {
    let indent = |line: &&str| line.len() - line.trim_start().len();
    let common = below.iter().filter(|line| !line.trim().is_empty()).map(indent).min();
    let lines = below
        .iter()
        .map(|line| line.get(common.unwrap_or(0)..).unwrap_or_default().trim_end());
    let mut text = String::new();
    for line in lines {
        match (keep, line.is_empty()) {
            (true, _) | (false, true) => text.push('\n'),
            (false, false) if text.is_empty() || text.ends_with('\n') => {}
            (false, false) => text.push(' '),
        }
        text.push_str(line);
    }
    text.trim().to_owned()
}

/// A text in quotes, of which the first is gone.
fn quoted(rest: &str, quote: char) -> Result<String, String> {
    let mut text = String::new();
    let mut characters = rest.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\'' if quote == '\'' && characters.next_if_eq(&'\'').is_some() => text.push('\''),
            end if end == quote => return Ok(text),
            '\\' if quote == '"' => match characters.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some(other) => text.push(other),
                None => break,
            },
            other => text.push(other),
        }
    }
    Err("its quote is never closed".into())
}

fn without_comment(text: &str) -> &str {
    text.split_once(" #").map_or(text, |(before, _)| before)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(text: &str, name: Option<&str>, description: Option<&str>, complaint: &str) {
        let found = read(text);
        assert_eq!(
            (found.name.as_deref(), found.description.as_deref()),
            (name, description),
            "{text}"
        );
        let said = found.complaint.unwrap_or_default();
        assert!(
            said.contains(complaint) && said.is_empty() == complaint.is_empty(),
            "{text}: {said}"
        );
    }

    #[test]
    fn what_people_write_is_read() {
        is(
            "---\nname: pdf\ndescription: Reads PDFs # and more\n---\n",
            Some("pdf"),
            Some("Reads PDFs"),
            "",
        );
        is(
            "\u{feff}---\r\nname: pdf\r\ndescription: \"a: \\\"b\\\"\"\r\n---\r\n",
            Some("pdf"),
            Some("a: \"b\""),
            "",
        );
        is(
            "---\ndescription: 'it''s'\nmetadata:\n  name: other\n---\n",
            None,
            Some("it's"),
            "",
        );
        is(
            "---\ndescription: >-\n  one\n  two\n\n  three\n---\n",
            None,
            Some("one two\nthree"),
            "",
        );
        is(
            "---\ndescription: |\n  one\n    two\n---\n",
            None,
            Some("one\n  two"),
            "",
        );
        is(
            "---\ndescription: one\n  two\n  three\nname: a\n---\n",
            Some("a"),
            Some("one two three"),
            "",
        );
        is(
            "---\n# comment\n\nname: a\nlicense: x\nallowed-tools:\n  - a\n---\n# T\n\nBody.\n",
            Some("a"),
            Some("Body."),
            "",
        );
    }

    #[test]
    fn what_is_wrong_is_told_and_the_rest_is_read() {
        is("# T\nBody", None, Some("Body"), "does not begin");
        is("", None, None, "does not begin");
        is(
            "---\nname: a\nnonsense\ndescription: b\n---\n",
            Some("a"),
            Some("b"),
            "line 3",
        );
        is(
            "---\nname: a\ndescription: \"b\n---\n",
            Some("a"),
            None,
            "line 3: its quote",
        );
        is("---\nname: [a]\ndescription: b\n---\n", None, Some("b"), "no text");
        is("---\nname: a\ndescription: b\n", Some("a"), Some("b"), "no end");
        is("---\ndescription: \"a\\", None, None, "no end");
        is("---\nname:\n---\n", None, None, "");
        is(
            "---\ndescription: >\n \u{e9}\n\u{a0}x\n---\n",
            None,
            Some("\u{e9}"),
            "line 4",
        );
    }
}
