//! Tables of aligned columns for people, and the dash of a cell without a value.

use hermod_actors::SanitizedText;

use super::terminal::{stdout_columns, truncate, width};

/// A cell; a dash without a value.
pub(crate) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Lines of cells, each column as wide as its widest cell, with two spaces between columns. On a terminal the lines
/// are truncated to its width.
pub(crate) fn render<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let lines = aligned(head, rows);
    match stdout_columns() {
        None => lines,
        Some(columns) => lines.lines().map(|line| truncate(line, columns) + "\n").collect(),
    }
}

fn aligned<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let rows: Vec<[String; N]> =
        rows.iter().map(|row| row.each_ref().map(|cell| SanitizedText::name(cell.as_bytes()))).collect();
    let mut widths = head.map(width);
    for row in &rows {
        for (max, cell) in widths.iter_mut().zip(row) {
            *max = (*max).max(width(cell));
        }
    }
    let line = |cells: [&str; N]| {
        let padded = |(cell, max): (&&str, usize)| format!("{cell}{}", " ".repeat(max - width(cell)));
        let cells = cells.iter().zip(widths).map(padded);
        let mut line = cells.collect::<Vec<_>>().join("  ");
        line.truncate(line.trim_end().len());
        line + "\n"
    };
    let rows = rows.iter().map(|row| row.each_ref().map(String::as_str));
    std::iter::once(head).chain(rows).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::aligned;

    #[test]
    fn columns_are_aligned() {
        let rows = [["a".into(), "10".into()], ["äöü".into(), String::new()]];
        assert_eq!(aligned(["ID", "N"], &rows), "ID   N\na    10\näöü\n");
        let wide = [["漢字".into(), "1".into()]];
        assert_eq!(aligned(["ID", "N"], &wide), "ID    N\n漢字  1\n");
        let hidden = [["a\u{200b}\nb".into(), "1".into()]];
        assert_eq!(aligned(["ID", "N"], &hidden), "ID           N\na<U+200B>␊b  1\n");
    }
}
