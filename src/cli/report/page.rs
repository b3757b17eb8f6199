//! The page of a report as text or as Markdown.

use clap::ValueEnum;
use hermod_actors::model::Timestamp;

use super::sections::{Section, SectionItem, summary};
use crate::{
    cli::{format::age, show::escape_markdown, terminal::Tone},
    view::ReportView,
};

/// The form of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum PageFormat {
    /// Lines for a terminal
    #[default]
    Text,
    /// Markdown
    Markdown,
}

/// The time of the report in words.
fn time(report: &ReportView) -> String {
    let ReportView { since, until, .. } = report;
    // The end is exclusive; the second in which it lies is shown.
    let until = Timestamp(until.0.saturating_sub(1));
    format!("{since} to {until} ({})", age(report.until.ms_since(*since)))
}

/// The lines of the page.
pub(super) fn text(report: &ReportView, sections: &[Section]) -> Vec<(Option<Tone>, String)> {
    let mut lines = vec![(None, format!("report    {}", time(report))), summary(report)];
    for section in sections {
        lines.push((None, String::new()));
        lines.push((section.tone, section.title.clone()));
        for SectionItem { text, command } in &section.items {
            lines.push((None, format!("  {text}")));
            lines.extend(command.iter().map(|command| (Some(Tone::Quiet), format!("    {command}"))));
        }
        if let Some((more, command)) = &section.more {
            lines.push((Some(Tone::Quiet), format!("  and {more} more: {command}")));
        }
    }
    lines
}

/// The page as Markdown.
pub(super) fn markdown(report: &ReportView, sections: &[Section]) -> String {
    let mut page = vec![format!("# Report {}\n\n{}\n", time(report), escape_markdown(&summary(report).1))];
    for section in sections {
        page.push(format!("\n## {}\n\n", escape_markdown(&section.title)));
        for SectionItem { text, command } in &section.items {
            let command = command.as_ref().map(|command| format!(": `{command}`")).unwrap_or_default();
            page.push(format!("- {}{command}\n", escape_markdown(text)));
        }
        if let Some((more, command)) = &section.more {
            page.push(format!("- and {more} more: `{command}`\n"));
        }
    }
    page.concat()
}
