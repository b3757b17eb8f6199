//! Aligned columns for people.

/// Lines of cells, each column as wide as its widest cell; two spaces between them.
pub(crate) fn render<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = head.map(|cell| cell.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; N]| {
        let cells = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        let mut line = cells.collect::<Vec<_>>().join("  ");
        line.truncate(line.trim_end().len());
        line + "\n"
    };
    let rows = rows.iter().map(|row| row.each_ref().map(String::as_str));
    std::iter::once(head).chain(rows).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::render;

    #[test]
    fn columns_are_aligned() {
        let rows = [["a".into(), "10".into()], ["äöü".into(), String::new()]];
        assert_eq!(render(["ID", "N"], &rows), "ID   N\na    10\näöü\n");
    }
}
