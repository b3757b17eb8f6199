//! Tables of Markdown: in columns where they fit, else each row as a list.

use ratatui_core::text::{Line, Span};

use crate::{
    look::Look,
    wrap::{Breaks, Margin, wrap},
};

type Cell = Vec<Span<'static>>;

/// The rows of a table, the first one is its head.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
    row: Vec<Cell>,
}

impl Table {
    /// Adds a cell to the row.
    pub(crate) fn push(&mut self, cell: Cell) {
        self.row.push(cell);
    }

    /// Ends the row.
    pub(crate) fn end_row(&mut self) {
        self.rows.push(std::mem::take(&mut self.row));
    }

    /// The lines of the table.
    pub(crate) fn lines(self, width: usize, look: Look) -> Vec<Vec<Span<'static>>> {
        let count = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widest = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(columns).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..count).map(widest).collect();
        let total = widths.iter().sum::<usize>() + 3 * count.saturating_sub(1);
        if total <= width { aligned(&self.rows, &widths, look) } else { listed(&self.rows, width) }
    }
}

fn columns(cell: &Cell) -> usize {
    cell.iter().map(Span::width).sum()
}

fn aligned(rows: &[Vec<Cell>], widths: &[usize], look: Look) -> Vec<Vec<Span<'static>>> {
    let mut lines = Vec::new();
    for (n, row) in rows.iter().enumerate() {
        let mut line = Vec::new();
        for (column, width) in widths.iter().enumerate() {
            if column > 0 {
                line.push(Span::styled(look.symbol(" │ ", " | "), Look::dim()));
            }
            let cell = row.get(column).cloned().unwrap_or_default();
            let space = width.saturating_sub(columns(&cell));
            line.extend(
                cell.into_iter().map(|span| if n == 0 { span.patch_style(Look::bold()) } else { span }),
            );
            line.push(Span::raw(" ".repeat(space)));
        }
        lines.push(line);
        if n == 0 {
            let rules: Vec<String> =
                widths.iter().map(|width| look.symbol("─", "-").repeat(*width)).collect();
            lines.push(vec![Span::styled(rules.join(look.symbol("─┼─", "-+-")), Look::dim())]);
        }
    }
    lines
}

/// Each cell as a line behind the head of its column.
fn listed(rows: &[Vec<Cell>], width: usize) -> Vec<Vec<Span<'static>>> {
    let mut lines: Vec<Line<'static>> = Vec::new();
    let Some((head, rows)) = rows.split_first() else { return Vec::new() };
    for (n, row) in rows.iter().enumerate() {
        if n > 0 {
            lines.push(Line::default());
        }
        for (name, cell) in head.iter().zip(row) {
            let mut spans: Cell = name.iter().cloned().map(|span| span.patch_style(Look::bold())).collect();
            spans.push(Span::raw(": "));
            spans.extend(cell.iter().cloned());
            let margin = Margin { first: Vec::new(), rest: vec![Span::raw("  ")] };
            wrap(&spans, (width, Breaks::Words), &margin, &mut lines);
        }
    }
    lines.into_iter().map(|line| line.spans).collect()
}
