//! The status line: model, context, money, tokens, agent and conversation. What matters least is left out first if the
//! terminal is narrow.

use ratatui_core::{
    style::Style,
    text::{Line, Span},
};

use crate::{
    event::Link,
    look::Look,
    state::ChatState,
    view::short_count,
    wrap::{clean_line, columns, cut},
};

/// Nano-dollars of a dollar.
const DOLLAR: u64 = 1_000_000_000;
/// Columns between two parts.
const SEPARATOR_COLUMNS: usize = 3;
/// From this share of the context on, in percent, it is shown as a warning.
const FULL_PERCENT: u64 = 80;

/// The line.
pub(crate) fn status_line(state: &ChatState, width: usize) -> Line<'static> {
    let look = state.look;
    let parts = fitting(parts(state), width);
    let separator = look.symbol(" · ", " | ");
    let mut spans = Vec::new();
    for (n, part) in parts.into_iter().enumerate() {
        if n > 0 {
            spans.push(Span::styled(separator, Look::dim()));
        }
        spans.push(Span::styled(cut(&part.text, width), part.style));
    }
    Line::from(spans)
}

/// The parts that have space, the one that matters most first chosen; in their order.
fn fitting(parts: Vec<Part>, width: usize) -> Vec<Part> {
    let mut ranks: Vec<u8> = parts.iter().map(|part| part.rank).collect();
    ranks.sort_unstable();
    let (mut left, mut shown) = (width, Vec::new());
    for part in ranks.iter().filter_map(|rank| parts.iter().find(|part| part.rank == *rank)) {
        let needed = columns(&part.text) + if shown.is_empty() { 0 } else { SEPARATOR_COLUMNS };
        if needed <= left || shown.is_empty() {
            left = left.saturating_sub(needed);
            shown.push(part.rank);
        }
    }
    parts.into_iter().filter(|part| shown.contains(&part.rank)).collect()
}

struct Part {
    text: String,
    style: Style,
    /// Those with the highest are left out first.
    rank: u8,
}

fn parts(state: &ChatState) -> Vec<Part> {
    let look = state.look;
    let part = |rank, text: String| Part { text, style: Look::dim(), rank };
    let mut parts = Vec::new();
    match &state.link {
        Some(Link::Up(_)) => {}
        Some(Link::Lost(_)) => parts.push(Part { text: "no service".to_owned(), style: look.bad(), rank: 0 }),
        Some(Link::Connecting) | None => {
            parts.push(Part { text: "connecting".to_owned(), style: look.action(), rank: 0 });
        }
    }
    parts.extend(state.model.as_ref().map(|model| part(2, clean_line(model, 40))));
    if let Some((share, style)) = context_share(state) {
        parts.push(Part { text: format!("context {share} %"), style, rank: 1 });
    }
    let used = state.totals();
    if used.input > 0 || used.output > 0 {
        let tokens = format!("{} in, {} out", short_count(used.input), short_count(used.output));
        parts.push(part(4, tokens));
    }
    if used.nano_usd > 0 {
        parts.push(part(3, dollars(used.nano_usd)));
    }
    parts.extend(
        state.agent.as_ref().filter(|agent| *agent != "default").map(|agent| part(5, clean_line(agent, 20))),
    );
    let name = state.title.as_ref().map(|title| clean_line(title, 40));
    let name = name.or_else(|| {
        let id = state.session?.to_string();
        Some(format!("session {}", id.get(id.len().saturating_sub(8)..)?))
    });
    parts.push(part(6, name.unwrap_or_else(|| "new conversation".to_owned())));
    parts.push(part(7, "/help".to_owned()));
    parts
}

/// How much of the model's context is used, in percent.
fn context_share(state: &ChatState) -> Option<(u64, Style)> {
    let window = state.windows.get(state.model.as_ref()?).filter(|window| **window > 0)?;
    let share = state.context?.saturating_mul(100) / window;
    let style = if share >= FULL_PERCENT { state.look.action() } else { Look::dim() };
    Some((share, style))
}

/// Money with as many digits as tell something.
pub fn dollars(nano_usd: u64) -> String {
    let (whole, rest) = (nano_usd / DOLLAR, nano_usd % DOLLAR);
    if whole > 0 { format!("${whole}.{:02}", rest / 10_000_000) } else { format!("$0.{:04}", rest / 100_000) }
}
