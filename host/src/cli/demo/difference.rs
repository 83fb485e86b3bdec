//! What differs between two texts, line by line.

/// A line of the one text, the other, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Same(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

/// The lines of two texts, with the longest common subsequence as what is the same. Meant for texts of a screen's size: it
/// takes memory for all pairs of lines.
pub(super) fn lines<'a>(before: &'a str, after: &'a str) -> Vec<Line<'a>> {
    let before: Vec<&str> = before.lines().collect();
    let after: Vec<&str> = after.lines().collect();
    // common[i][j]: the length of the longest common subsequence of before[i..] and after[j..].
    let mut common = vec![vec![0_usize; after.len() + 1]; before.len() + 1];
    for i in (0..before.len()).rev() {
        for j in (0..after.len()).rev() {
            common[i][j] = if before[i] == after[j] {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut lines = Vec::new();
    while i < before.len() || j < after.len() {
        if i < before.len() && j < after.len() && before[i] == after[j] {
            lines.push(Line::Same(before[i]));
            i += 1;
            j += 1;
        } else if i < before.len() && (j == after.len() || common[i + 1][j] >= common[i][j + 1]) {
            lines.push(Line::Removed(before[i]));
            i += 1;
        } else {
            lines.push(Line::Added(after[j]));
            j += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{Line::*, lines};

    #[test]
    fn added_removed_and_changed_lines_are_told_apart() {
        assert_eq!(lines("a\nb", "a\nb"), [Same("a"), Same("b")]);
        assert_eq!(lines("b", "a\nb"), [Added("a"), Same("b")]);
        assert_eq!(
            lines("a\nx\nc", "a\ny\nc"),
            [Same("a"), Removed("x"), Added("y"), Same("c")]
        );
        assert_eq!(lines("a", ""), [Removed("a")]);
        assert_eq!(lines("", ""), []);
    }
}
