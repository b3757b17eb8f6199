//! What matters of the whole installation, beside the conversation: the line at the start of the chat, and the pages of
//! `/runs`, `/approvals`, `/report` and `/usage`. The pages have the texts of the commands of these names.

use hermod_actors::model::{RunId, StoreLimits, Timestamp};
use hermod_chat::{ChatEvent, PageKind, Verdict};

use super::requests::{answer, decision, unexpected};
use crate::{
    cli::{
        approvals,
        format::{self, age, words_line},
        report, runs,
        shared_owner::SharedOwner,
        table, tree, usage,
    },
    clock,
    control::{ControlRequest, ControlResponse},
    discovery::Variables,
    view::{NodeView, RunStateView, RunSummaryView, RunView},
};

/// Runs of `/runs`.
const MAX_RUNS: usize = 20;
/// Questions of `/approvals`.
const MAX_APPROVALS: usize = 20;
/// Characters of a task.
const MAX_TASK_CHARS: usize = 60;
/// Milliseconds of a day.
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// Counts of the whole installation.
#[derive(Debug, Clone, Copy, Default)]
struct Overview {
    waiting: usize,
    running: usize,
    /// In the last 24 hours.
    failed: u64,
    /// Nano-dollars of the present day in UTC.
    spent: u64,
}

impl Overview {
    /// Counts that are not zero, each with the command that tells more; `None` if all are zero.
    fn line(self) -> Option<String> {
        let Self { waiting, running, failed, spent } = self;
        let wait = if waiting == 1 { "waits" } else { "wait" };
        let parts = [
            (waiting > 0).then(|| format!("{waiting} {wait} for you (/approvals)")),
            (running > 0).then(|| format!("{running} running (/runs)")),
            (failed > 0).then(|| format!("{failed} failed in the last 24 h (/report)")),
            (spent > 0).then(|| format!("{} today (/usage)", hermod_chat::dollars(spent))),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(" · "))
    }
}

/// The line at the start of the chat; `None` if there is nothing to say.
pub(super) async fn overview(owner: &SharedOwner) -> Result<Option<ChatEvent>, String> {
    let ControlResponse::Approvals(waiting) = answer(owner, &ControlRequest::ApprovalsList {}).await? else {
        return Err(unexpected());
    };
    let ControlResponse::Tree(roots) = answer(owner, &ControlRequest::Tree { run: None }).await? else {
        return Err(unexpected());
    };
    let now = clock::now();
    let running = |root: &&NodeView| root.run.state != RunStateView::Parked;
    let overview = Overview {
        waiting: waiting.len(),
        running: roots.iter().filter(running).count(),
        failed: failed(owner, now).await?,
        spent: spent_today(owner).await?,
    };
    Ok(overview.line().map(ChatEvent::Overview))
}

/// Failed runs of the last 24 hours.
async fn failed(owner: &SharedOwner, now: Timestamp) -> Result<u64, String> {
    let (since, until) = (day_before(now), now.plus_ms(1));
    let request = ControlRequest::Report { since, until, limits: StoreLimits::default() };
    let ControlResponse::Report(report) = answer(owner, &request).await? else { return Err(unexpected()) };
    Ok(report.failed_runs())
}

/// Nano-dollars of the present day in UTC.
async fn spent_today(owner: &SharedOwner) -> Result<u64, String> {
    let request = ControlRequest::UsageDays { days: 1 };
    let ControlResponse::Days(days) = answer(owner, &request).await? else { return Err(unexpected()) };
    Ok(days.days.last().map_or(0, |day| day.spent_usd))
}

fn day_before(now: Timestamp) -> Timestamp {
    Timestamp(now.0.saturating_sub_unsigned(DAY_MS))
}

fn page(title: impl Into<String>, text: String, kind: PageKind) -> ChatEvent {
    ChatEvent::Page { title: title.into(), text, kind }
}

/// The newest runs, those of subagents too.
pub(super) async fn run_list(owner: &SharedOwner) -> Result<ChatEvent, String> {
    let request = ControlRequest::newest_runs(MAX_RUNS, Vec::new());
    let ControlResponse::Runs(runs) = answer(owner, &request).await? else { return Err(unexpected()) };
    if runs.is_empty() {
        return Ok(super::files::notice("there is no run yet"));
    }
    let more = if runs.len() < MAX_RUNS { "" } else { "; hermod runs list has all" };
    Ok(page(
        format!("The newest runs, subagents included; /resume ID opens the conversation of one{more}"),
        run_table(&runs, clock::now()),
        PageKind::Table,
    ))
}

fn run_table(runs: &[RunSummaryView], now: Timestamp) -> String {
    let row = |summary: &RunSummaryView| {
        let run = &summary.run;
        let age = age(now.ms_since(run.accepted_at));
        let spent = table::or_dash(summary.spent_usd.filter(|spent| *spent > 0).map(format::dollars));
        [tree::id_suffix(run.id), state_in_chat(run), age, spent, task_line(&summary.input)]
    };
    table::render(["RUN", "STATE", "AGE", "SPENT", "TASK"], &runs.iter().rev().map(row).collect::<Vec<_>>())
}

/// The state or the outcome of a run, in the words of the chat.
pub(super) fn state_in_chat(run: &RunView) -> String {
    if run.state == RunStateView::Parked { "waits for you".to_owned() } else { runs::state(run) }
}

fn task_line(task: &str) -> String {
    words_line(task, MAX_TASK_CHARS)
}

/// All that waits for a person, with how it is answered from the chat.
pub(super) async fn waiting(owner: &SharedOwner) -> Result<ChatEvent, String> {
    let ControlResponse::Approvals(open) = answer(owner, &ControlRequest::ApprovalsList {}).await? else {
        return Err(unexpected());
    };
    if open.is_empty() {
        return Ok(super::files::notice("nothing waits for you"));
    }
    let (mut texts, now) = (Vec::new(), clock::now());
    for approval in open.iter().take(MAX_APPROVALS) {
        let task = task_line(&task_of(owner, approval.run).await?);
        texts.push(approvals::format_in_chat(approval, &task, now));
    }
    let title = match open.len().saturating_sub(MAX_APPROVALS) {
        0 => format!("Waits for you: {}", open.len()),
        more => format!("Waits for you: {}, of which {more} are not shown", open.len()),
    };
    Ok(page(title, texts.join("\n\n"), PageKind::Plain))
}

async fn task_of(owner: &SharedOwner, run: RunId) -> Result<String, String> {
    let request = ControlRequest::RunsShow { run: run.to_string() };
    let ControlResponse::Run(detail) = answer(owner, &request).await? else { return Err(unexpected()) };
    Ok(detail.input)
}

/// Answers a question of any conversation.
pub(super) async fn decide(owner: &SharedOwner, call: String, verdict: Verdict) -> Result<ChatEvent, String> {
    let is_text = matches!(verdict, Verdict::Text(_));
    let request = decision(call, verdict);
    let ControlResponse::Decided(decided) = answer(owner, &request).await? else { return Err(unexpected()) };
    Ok(super::files::notice(approvals::decided_text(&decided, is_text)))
}

/// The text of `hermod report --since 24h`, with commands of the chat as far as there are such.
pub(super) async fn report(variables: &Variables) -> Result<ChatEvent, String> {
    let since = day_before(clock::now());
    let text = report::text_since(since, variables, in_chat).await.map_err(|error| error.text)?;
    Ok(page("The last 24 hours", text, PageKind::Plain))
}

/// The command of the chat that does what a command of a shell does; the latter if there is none.
fn in_chat(command: &str) -> String {
    let words: Vec<&str> = command.split([' ', ',']).collect();
    match *words {
        ["hermod", "run", "--resume", run, ..] | ["hermod", "runs", "resume", run] => {
            format!("/resume {run}")
        }
        ["hermod", "budget", "add", run, ..] => format!("/resume {run}, then /budget"),
        ["hermod", "approvals", "allow", call] => format!("/approve {call}"),
        ["hermod", "approvals", "answer", call, ..] => format!("/approve {call} ANSWER"),
        ["hermod", "approvals", "list", ..] => "/approvals".to_owned(),
        ["hermod", "runs", "list", ..] => "/runs".to_owned(),
        _ => command.to_owned(),
    }
}

/// The text of `hermod usage`.
pub(super) async fn usage(variables: &Variables) -> Result<ChatEvent, String> {
    let text = usage::text(variables).await.map_err(|error| error.text)?;
    Ok(page("What runs cost by day, in UTC, and what is left of the limits", text, PageKind::Table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_the_chat() {
        let check = |command, expect| assert_eq!(in_chat(command), expect);
        check("hermod run --resume 01M TEXT", "/resume 01M");
        check("hermod runs resume 01M", "/resume 01M");
        check("hermod budget add 01M --usd 1 --wait", "/resume 01M, then /budget");
        check("hermod approvals allow 01M.1.1", "/approve 01M.1.1");
        check("hermod approvals answer 01M.1.1 TEXT", "/approve 01M.1.1 ANSWER");
        check("hermod approvals list, hermod runs list --outcome unfinished", "/approvals");
        check("hermod runs list --since 24h", "/runs");
        check("hermod deliveries retry 7", "hermod deliveries retry 7");
    }

    #[test]
    fn what_is_zero_is_left_out() {
        let check = |waiting, running, failed, spent, expect: Option<&str>| {
            let overview = Overview { waiting, running, failed, spent };
            assert_eq!(overview.line().as_deref(), expect);
        };
        check(0, 0, 0, 0, None);
        check(1, 0, 0, 0, Some("1 waits for you (/approvals)"));
        check(0, 1, 0, 0, Some("1 running (/runs)"));
        let all = "2 wait for you (/approvals) · 1 running (/runs) · 3 failed in the last 24 h (/report) · $0.4100 today (/usage)";
        check(2, 1, 3, 410_000_000, Some(all));
    }
}
