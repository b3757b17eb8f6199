//! A transcript as Markdown. Texts of models and persons are quoted, and outputs stand in fences that they cannot close.

use hermod_actors::model::RunId;
use hermod_chat::CommandEnd;

use super::{
    entry::{Content, Entry, ToolCall},
    for_each_entry, markdown_head,
    text::{Extent, describe_status, result_lines},
};
use crate::{
    cli::{
        CliError,
        format::{seconds, truncated_line},
    },
    clock,
    host::StoreClient,
};

/// Characters of a name in a heading.
const MAX_NAME_CHARS: usize = 80;

/// A run as Markdown, with all of its results.
pub(in crate::cli) async fn of_run(run: RunId, client: &StoreClient) -> Result<String, CliError> {
    let run = client.run_detail(run.to_string()).await?;
    let mut text = markdown_head(&run, clock::now());
    for_each_entry(&run, client, |entry| {
        text.push_str(&format(&entry, Extent::Full));
        Ok(())
    })
    .await?;
    Ok(text)
}

/// An entry as Markdown.
pub(super) fn format(entry: &Entry, extent: Extent) -> String {
    match &entry.content {
        Content::Task { text, images } => {
            let images = if *images > 0 { format!("\n\n{images} images") } else { String::new() };
            format!("\n## Task\n\n{}{images}\n", quote(text))
        }
        Content::Answer { text, reasoning, calls, flaw, line, .. } => {
            let heading = if *calls == 0 && flaw.is_none() { "Answer" } else { "Model" };
            let thought = match extent {
                Extent::Full if !reasoning.is_empty() => format!("\n{}\n", fence(reasoning, "text")),
                Extent::Full | Extent::Short => String::new(),
            };
            let text = if text.is_empty() { String::new() } else { format!("\n{}\n", quote(text)) };
            format!("\n## {heading}\n\n{}\n{thought}{text}", escape(line))
        }
        Content::Call(call) => format_call(call, extent),
        Content::Subagent { run, ended, iterations, usage } => format!(
            "- subagent `{run}` {}: iterations {iterations}, tokens {}\n",
            escape(&ended.to_string()),
            usage.total()
        ),
        Content::Message { text } => format!("\n## Message\n\n{}\n", quote(text)),
        Content::Question { text, .. } => format!("\n## Question\n\n{}\n", quote(text)),
        Content::Step { text, .. } => {
            text.lines().map(|line| format!("- {}\n", escape(line))).collect::<Vec<_>>().concat()
        }
        Content::End { ended } => format!("\n## End\n\n{}\n", escape(&ended.to_string())),
    }
}

fn format_call(call: &ToolCall, extent: Extent) -> String {
    let command = CommandEnd::parse(&call.tool, &call.result);
    let end = command.as_ref().and_then(CommandEnd::failure);
    let end = end.unwrap_or_else(|| describe_status(call.status).to_owned());
    let took = call.took_ms.map_or_else(String::new, |ms| format!(" in {}", seconds(ms)));
    let (tool, number) = (truncated_line(&call.tool, MAX_NAME_CHARS), call.call);
    let heading = format!("\n### Tool {}.{}: {} {end}{took}", number.iteration, number.n, escape(&tool));
    let subagents = call.subagents.iter().map(|run| format!("- subagent `{run}`\n"));
    let subagents = subagents.collect::<Vec<_>>().concat();
    let output = match &command {
        Some(command) => format!("{}\n{}", command.stdout.trim_end(), command.stderr.trim_end()),
        None => call.result.to_string(),
    };
    let output = result_lines(output.trim_matches('\n'), extent).join("\n");
    let output = if output.is_empty() { String::new() } else { format!("\n{}\n", fence(&output, "text")) };
    format!("{heading}\n\n{}\n{subagents}{output}", fence(&call.arguments, "json"))
}

/// The lines of a text as a quotation.
fn quote(text: &str) -> String {
    text.lines().map(|line| format!("> {line}")).collect::<Vec<_>>().join("\n")
}

/// A text in a fence that is longer than any run of backticks in it.
fn fence(text: &str, language: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}", text.trim_end_matches('\n'))
}

/// A text in a line, with the characters escaped that Markdown would read.
pub(in crate::cli) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' => escaped.push(' '),
            '\\' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '|' | '~' => escaped.extend(['\\', c]),
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cannot_leave_its_fence() {
        assert_eq!(fence("a", "text"), "```text\na\n```");
        assert_eq!(fence("```\n# heading\n````", "text"), "`````text\n```\n# heading\n````\n`````");
        assert_eq!(quote("a\n\n# b"), "> a\n> \n> # b");
        assert_eq!(escape("a*b\n# <i>"), "a\\*b \\# \\<i\\>");
    }
}
