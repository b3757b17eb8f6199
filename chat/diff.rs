//! The lines that two texts differ in, as an edit of a file has them.

/// Lines around a difference that are shown.
const CONTEXT: usize = 2;
/// Products of two lengths that are compared line by line; above it all lines count as changed.
const MAX_COMPARED: usize = 250_000;

/// A line of a diff: with `+`, `-` or a space in front.
pub(crate) type DiffLine<'a> = (char, &'a str);

/// The lines that lead from one text to another, with a little around them.
pub(crate) fn diff<'a>(old: &'a str, new: &'a str) -> Vec<DiffLine<'a>> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let before = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let ends = old[before..].iter().rev().zip(new[before..].iter().rev());
    let after = ends.take_while(|(a, b)| a == b).count();
    let (old_end, new_end) = (old.len() - after, new.len() - after);
    let mut lines: Vec<DiffLine<'a>> =
        old[before.saturating_sub(CONTEXT)..before].iter().map(|line| (' ', *line)).collect();
    changed(&old[before..old_end], &new[before..new_end], &mut lines);
    lines.extend(old[old_end..].iter().take(CONTEXT).map(|line| (' ', *line)));
    lines
}

fn changed<'a>(old: &[&'a str], new: &[&'a str], lines: &mut Vec<DiffLine<'a>>) {
    let width = new.len() + 1;
    if old.len().saturating_mul(width) > MAX_COMPARED {
        lines.extend(old.iter().map(|line| ('-', *line)));
        lines.extend(new.iter().map(|line| ('+', *line)));
        return;
    }
    // The length of the longest common sequence of what follows each pair of places.
    let mut common = vec![0_u32; (old.len() + 1) * width];
    for (i, removed) in old.iter().enumerate().rev() {
        for (j, added) in new.iter().enumerate().rev() {
            common[i * width + j] = if removed == added {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            lines.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len()
            || (i < old.len() && common[(i + 1) * width + j] >= common[i * width + j + 1])
        {
            lines.push(('-', old[i]));
            i += 1;
        } else {
            lines.push(('+', new[j]));
            j += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(old: &str, new: &str, expect: &[&str]) {
        let lines: Vec<String> = diff(old, new).iter().map(|(sign, line)| format!("{sign}{line}")).collect();
        assert_eq!(lines, expect);
    }

    #[test]
    fn changed_lines_are_found() {
        check("a\nb\nc", "a\nx\nc", &[" a", "-b", "+x", " c"]);
        check("", "a\nb", &["+a", "+b"]);
        check("a", "", &["-a"]);
        check("1\n2\n3\n4\nx", "1\n2\n3\n4\ny", &[" 3", " 4", "-x", "+y"]);
        check("a\nb\nc\nd", "a\nc\nd\ne", &[" a", "-b", " c", " d", "+e"]);
        check("same", "same", &[" same"]);
    }

    #[test]
    fn long_texts_are_not_compared_line_by_line() {
        let (old, new): (String, String) = (0..1_000).map(|n| (format!("{n}\n"), format!("x{n}\n"))).unzip();
        assert_eq!(diff(&old, &new).len(), 2_000);
    }
}
