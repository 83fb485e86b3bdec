//! What a proxy would like to be allowed, in words for a person who has to decide.

use super::text::{Look, Paint};
use crate::grants::Grant;
use crate::limits::Limits;
use crate::manifest::Manifest;
use crate::message::OnFailure;

/// What a manifest says, as rows of a name and a value. `name` is what the proxy would be called in a chain, if it is to be one.
pub(super) fn rows(manifest: &Manifest, name_in_chain: Option<&str>, paint: Paint) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    let name = [&manifest.name, &manifest.version].into_iter().flatten();
    let name = name.map(String::as_str).collect::<Vec<_>>().join(" ");
    let described = match (&manifest.description, name.is_empty()) {
        (Some(description), true) => description.clone(),
        (Some(description), false) => format!("{name}: {description}"),
        (None, true) => "without a name".to_owned(),
        (None, false) => name,
    };
    rows.push(("manifest", described));
    let wishes = manifest.wishes.as_deref().unwrap_or_default();
    let (ordinary, dangerous): (Vec<_>, Vec<_>) = wishes.iter().partition(|(grant, _)| grant.is_ordinary());
    if wishes.is_empty() {
        let nothing = match manifest.wishes {
            Some(_) => "nothing: it sees no message but `initialize`",
            None => "not told: it may do nothing but what you grant it with --grant",
        };
        rows.push(("wishes", nothing.to_owned()));
    }
    let mut label = "wishes";
    for (grant, reason) in &ordinary {
        rows.push((std::mem::take(&mut label), wish(grant, reason)));
    }
    let mut label = "dangerous";
    for (grant, reason) in &dangerous {
        let text = paint.text(Look::Red, &wish(grant, reason));
        rows.push((std::mem::take(&mut label), text));
    }
    if let Some(hint) = hint(&dangerous, name_in_chain) {
        rows.push(("", hint));
    }
    let mut label = "limits";
    for (limit, value) in &manifest.limits {
        let given = Limits::agreed(&[(*limit, *value)], &[]).get(*limit);
        let cut = match given == *value {
            true => String::new(),
            false => format!("; it gets {} unless you set it", limit.shown(given)),
        };
        rows.push((
            std::mem::take(&mut label),
            format!("{limit} {}{cut}", limit.shown(*value)),
        ));
    }
    if manifest.on_failure == Some(OnFailure::Closed) {
        rows.push(("fails", "closed: when it fails, nothing goes past it".to_owned()));
    }
    rows
}

/// What a person is told of one wish.
fn wish(grant: &Grant, reason: &str) -> String {
    match reason.is_empty() {
        true => grant.sentence(),
        false => format!("{} (its author: {reason})", grant.sentence()),
    }
}

/// How what is dangerous would be granted, if anybody can say.
fn hint(dangerous: &[&(Grant, String)], name: Option<&str>) -> Option<String> {
    let mut grants = Vec::new();
    for (grant, _) in dangerous {
        grants.push(match grant {
            // Where it is, only the user knows.
            Grant::Directory { host, write, .. } => {
                let kind = if *write { "directory-write" } else { "directory" };
                format!("{kind}:PATH={}", host.display())
            }
            grant => grant.to_string(),
        });
    }
    (!grants.is_empty()).then(|| {
        let grants = grants.join(",");
        let option = quoted(&match name {
            Some(name) => format!("{name}={grants}"),
            None => grants,
        });
        format!("only if you allow it: --grant {option}, or less of that")
    })
}

/// A word for a shell, which takes nothing in it for anything else.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "_-./:=,@%+".contains(letter);
    match word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_runs_nothing_of_what_a_stranger_wishes_for() {
        assert_eq!(quoted("x=read-prompts,file:a.md"), "x=read-prompts,file:a.md");
        assert_eq!(quoted("x=observe:client:$(id)"), "'x=observe:client:$(id)'");
        assert_eq!(quoted("x='; id #"), r"'x='\''; id #'");
        assert_eq!(quoted("x=file:**"), "'x=file:**'");
    }

    #[test]
    fn what_is_dangerous_is_told_apart_with_the_option_that_grants_it() {
        let (manifest, _) = Manifest::read(
            br#"{"name":"x","version":"1","grants":{"read-prompts":"to count","editor-commands":"runs tests","directory:/notes":""},"on-failure":"closed"}"#,
        );
        let rows: Vec<String> = rows(&manifest, Some("x"), Paint(false))
            .into_iter()
            .map(|(label, text)| format!("{label}|{text}"))
            .collect();
        assert_eq!(
            rows,
            [
                "manifest|x 1",
                "wishes|reads your prompts (its author: to count)",
                "dangerous|runs commands through your editor (its author: runs tests)",
                "|reads the directory /notes",
                "|only if you allow it: --grant x=editor-commands,directory:PATH=/notes, or less of that",
                "fails|closed: when it fails, nothing goes past it",
            ]
        );
    }

    #[test]
    fn what_is_to_be_copied_runs_nothing() {
        let (manifest, _) = Manifest::read(br#"{"grants":{"environment:A=$(id)'; id #":"","file:**":""}}"#);
        let hint = rows(&manifest, Some("x"), Paint(false)).pop().unwrap().1;
        assert!(
            hint.contains(r"--grant 'x=environment:A=$(id)'\''; id #,file:**'"),
            "{hint}"
        );
    }
}
