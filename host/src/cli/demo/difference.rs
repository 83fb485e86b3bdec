//! What differs between two texts, line by line.

/// How many lines beside a change are shown.
const CONTEXT: usize = 2;

/// A line of the one text, the other, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Same(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

/// The lines of two texts, with the longest common subsequence as what is the same; where there are several, the one that begins
/// last, so that what was put in front of something is shown as a whole. Meant for texts of a screen's size: it takes memory for
/// all pairs of lines.
pub(super) fn lines<'a>(before: &'a str, after: &'a str) -> Vec<Line<'a>> {
    let before: Vec<&str> = before.lines().collect();
    let after: Vec<&str> = after.lines().collect();
    // common[i][j]: the length of the longest common subsequence of before[..i] and after[..j].
    let mut common = vec![vec![0_usize; after.len() + 1]; before.len() + 1];
    for i in 1..=before.len() {
        for j in 1..=after.len() {
            common[i][j] = if before[i - 1] == after[j - 1] {
                common[i - 1][j - 1] + 1
            } else {
                common[i - 1][j].max(common[i][j - 1])
            };
        }
    }
    let (mut i, mut j) = (before.len(), after.len());
    let mut lines = Vec::new();
    while i > 0 || j > 0 {
        if i > 0 && j > 0 && before[i - 1] == after[j - 1] {
            i -= 1;
            j -= 1;
            lines.push(Line::Same(before[i]));
        } else if j > 0 && (i == 0 || common[i][j - 1] >= common[i - 1][j]) {
            j -= 1;
            lines.push(Line::Added(after[j]));
        } else {
            i -= 1;
            lines.push(Line::Removed(before[i]));
        }
    }
    lines.reverse();
    lines
}

/// The same with what is far from a change left out: none stands for any number of lines.
pub(super) fn shortened<'a>(lines: &[Line<'a>]) -> Vec<Option<Line<'a>>> {
    let is_change = |line: Option<&Line<'_>>| line.is_some_and(|line| !matches!(line, Line::Same(_)));
    let mut shown = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let beside = |distance: usize| {
            is_change(lines.get(index + distance)) || is_change(index.checked_sub(distance).and_then(|i| lines.get(i)))
        };
        if is_change(Some(line)) || (1..=CONTEXT).any(beside) {
            shown.push(Some(*line));
        } else if shown.last() != Some(&None) {
            shown.push(None);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::{Line::*, lines, shortened};

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

    #[test]
    fn what_was_put_in_front_is_shown_as_a_whole() {
        assert_eq!(
            lines("[text]\na", "[text]\nb\n[text]\na"),
            [Added("[text]"), Added("b"), Same("[text]"), Same("a")]
        );
    }

    #[test]
    fn what_is_far_from_a_change_is_left_out() {
        let lines = lines("a\nb\nc\nd\ne\nf\ng", "a\nb\nc\nx\ne\nf\ng");
        let shown: Vec<_> = shortened(&lines);
        assert_eq!(shown.first(), Some(&None));
        assert_eq!(shown.last(), Some(&None));
        let around = [Same("b"), Same("c"), Removed("d"), Added("x"), Same("e"), Same("f")];
        assert_eq!(shown[1..7], around.map(Some));
    }
}
