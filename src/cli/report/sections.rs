//! The sections of a report. Another section is a function here and its line in `SECTIONS`. Texts of models and persons
//! are shortened to one line each.

use hermod_actors::model::{BreakerState, Timestamp};
use hermod_chat::counted;

use crate::{
    cli::{
        budgets,
        format::{age, dollars, words_line},
        terminal::Tone,
    },
    view::{
        ChannelStateView, HookStateView, ReportCostView, ReportList, ReportRunView, ReportSchedulesView,
        ReportView, ReportWaitKind, ReportWaitView, ServiceStatusView,
    },
};

/// Failures that are shown.
const MAX_FAILURES: usize = 10;
/// Characters of a task, a question or an error.
const MAX_CHARS: usize = 120;

/// A part of the page.
#[derive(Debug, Default)]
pub(super) struct Section {
    pub(super) title: String,
    /// The tone of the title.
    pub(super) tone: Option<Tone>,
    pub(super) items: Vec<SectionItem>,
    /// Number of items that are left out, and the command that lists them.
    pub(super) more: Option<(u64, String)>,
}

/// A line of a section.
#[derive(Debug)]
pub(super) struct SectionItem {
    pub(super) text: String,
    /// The command that does something about it.
    pub(super) command: Option<String>,
}

impl From<String> for SectionItem {
    fn from(text: String) -> Self {
        Self { text, command: None }
    }
}

/// What matters most of the report, in one line.
pub(super) fn summary(report: &ReportView) -> (Option<Tone>, String) {
    let (failed, waiting) = (report.failed_runs(), report.waiting.count());
    let (dead, missed) = (report.dead_letters.count(), report.schedules.missed);
    let part = |count: u64, words: &str| (count > 0).then(|| format!("{count} {words}"));
    let verb = if waiting == 1 { "waits for you" } else { "wait for you" };
    let completed = report.runs.outcomes.get("completed").copied().unwrap_or(0);
    let parts = [
        part(failed, "failed"),
        part(waiting, verb),
        part(missed, "missed by schedules"),
        part(dead, "not delivered"),
        part(completed, "completed"),
        part(report.runs.outcomes.get("unfinished").copied().unwrap_or(0), "unfinished"),
        (report.cost.spent_usd > 0).then(|| dollars(report.cost.spent_usd)),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let tone =
        if failed + missed + dead > 0 { Some(Tone::Bad) } else { (waiting > 0).then_some(Tone::Action) };
    (tone, if parts.is_empty() { "nothing happened".to_owned() } else { parts.join(", ") })
}

type SectionFn = fn(&ReportView, Timestamp) -> Option<Section>;

/// All sections, in the order of the page. `None` is left out.
const SECTIONS: &[SectionFn] = &[ran, failed, waiting, dead_letters, schedules, service, cost, limits];

/// The sections of the page.
pub(super) fn sections(report: &ReportView, now: Timestamp) -> Vec<Section> {
    SECTIONS.iter().filter_map(|section| section(report, now)).collect()
}

#[expect(clippy::unnecessary_wraps, reason = "the signature of all sections")]
fn ran(report: &ReportView, _: Timestamp) -> Option<Section> {
    let runs = &report.runs;
    if runs.total == 0 {
        return Some(Section { title: "nothing ran".to_owned(), ..Section::default() });
    }
    let outcomes: Vec<_> = runs.outcomes.iter().map(|(name, count)| format!("{name} {count}")).collect();
    let mut items = vec![outcomes.join(", ").into()];
    items.extend(runs.agents.iter().map(|agent| {
        let (runs, completed, spent) = (agent.runs, agent.completed, dollars(agent.spent_usd));
        format!("agent {}: runs {runs}, completed {completed}, spent {spent}", agent.agent).into()
    }));
    if runs.resumed > 0 {
        items.push(format!("{} went on after their process had ended", runs.resumed).into());
    }
    let subagents = match runs.subagents {
        0 => String::new(),
        subagents => format!(", {subagents} of them subagents"),
    };
    Some(Section { title: format!("ran: {}{subagents}", runs.total), items, ..Section::default() })
}

fn failed(report: &ReportView, _: Timestamp) -> Option<Section> {
    let count = report.failed_runs();
    if count == 0 {
        return (report.runs.total > 0)
            .then(|| Section { title: "failed: none".to_owned(), ..Section::default() });
    }
    let item = |run: &ReportRunView| {
        let ended = run.ended.as_ref().map(ToString::to_string).unwrap_or_default();
        let error = run.last_error.as_ref().map(|error| format!("; last error: {}", line(error)));
        let times = if run.times > 1 { format!("{} times, last ", run.times) } else { String::new() };
        let (input, error) = (quoted(&run.input), error.unwrap_or_default());
        let text = format!("{times}{} {input}: {}{error}", run.run, line(&ended));
        SectionItem { text, command: Some(run.next.clone()) }
    };
    let outcomes = "failed,timed_out,loop_detected,refused";
    let shown = report.failed.items.get(..MAX_FAILURES).unwrap_or(&report.failed.items);
    let shown_runs: u64 = shown.iter().map(|run| run.times).sum();
    Some(Section {
        title: format!("failed: {count}"),
        tone: Some(Tone::Bad),
        items: shown.iter().map(item).collect(),
        more: (count > shown_runs).then(|| {
            let command = format!("hermod runs list --since {} --outcome {outcomes}", report.since);
            (count - shown_runs, command)
        }),
    })
}

fn waiting(report: &ReportView, now: Timestamp) -> Option<Section> {
    let count = report.waiting.count();
    let item = |wait: &ReportWaitView| {
        let since = age(now.ms_since(wait.since));
        let until = wait.until.map_or_else(String::new, |until| {
            format!(", denied without an answer in {}", age(until.ms_since(now)))
        });
        let text = match wait.what {
            ReportWaitKind::Approval => {
                format!("asks about a call since {since}{until}: {}", line(&wait.text))
            }
            ReportWaitKind::Question => format!("asks you since {since}{until}: {}", line(&wait.text)),
            ReportWaitKind::Budget => format!("{} ended {since} ago: {}", wait.run, line(&wait.text)),
            ReportWaitKind::Process => {
                format!("{} has no process since {since}: {}", wait.run, quoted(&wait.text))
            }
        };
        SectionItem { text, command: Some(wait.next.clone()) }
    };
    (count > 0).then(|| Section {
        title: format!("waits for you: {count}"),
        tone: Some(Tone::Action),
        items: report.waiting.items.iter().map(item).collect(),
        more: more(&report.waiting, || "hermod approvals list, hermod runs list --outcome unfinished".into()),
    })
}

fn dead_letters(report: &ReportView, _: Timestamp) -> Option<Section> {
    let count = report.dead_letters.count();
    let items = report.dead_letters.items.iter().map(|letter| {
        let error = letter.error.as_deref().unwrap_or("no error is known");
        let text = format!("{} to {} of run {}: {}", letter.kind, letter.target, letter.run, line(error));
        SectionItem { text, command: Some(format!("hermod deliveries retry {}", letter.id)) }
    });
    (count > 0).then(|| Section {
        title: format!("not delivered: {count}"),
        tone: Some(Tone::Bad),
        items: items.collect(),
        more: more(&report.dead_letters, || "hermod deliveries list --state dead".into()),
    })
}

/// What schedules have missed, and which are paused.
fn schedules(report: &ReportView, now: Timestamp) -> Option<Section> {
    let ReportSchedulesView { ran, missed, skipped, left_out, paused } = &report.schedules;
    let is_wrong = *missed > 0 || paused.count() > 0;
    let missed_items = left_out.items.iter().map(|occurrence| {
        let count = match occurrence.count() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let reason = line(occurrence.reason.as_deref().unwrap_or("no reason is known"));
        let text = format!("{} missed {}{count}: {reason}", occurrence.schedule, occurrence.at);
        let command = Some(format!("hermod schedules history {}", occurrence.schedule));
        SectionItem { text, command }
    });
    let paused_items = paused.items.iter().map(|pause| {
        let since = age(now.ms_since(pause.since));
        let text = format!("{} is paused since {since}: {}", pause.schedule, line(&pause.reason));
        SectionItem { text, command: Some(format!("hermod schedules resume {}", pause.schedule)) }
    });
    (is_wrong || ran + skipped > 0).then(|| Section {
        title: format!("schedules: ran {ran}, missed {missed}, skipped {skipped}"),
        tone: is_wrong.then_some(Tone::Bad),
        items: missed_items.chain(paused_items).collect(),
        more: more(left_out, || format!("hermod schedules history --since {}", report.since)),
    })
}

/// What is wrong with the service.
fn service(report: &ReportView, _: Timestamp) -> Option<Section> {
    let status = report.service.as_deref()?;
    let items = problems(status);
    let title = format!("service: {}", counted(items.len(), "problem"));
    (!items.is_empty()).then_some(Section { title, tone: Some(Tone::Bad), items, more: None })
}

fn problems(status: &ServiceStatusView) -> Vec<SectionItem> {
    let reasons = status.reasons.iter().map(|reason| line(reason).into());
    let breakers = status.breakers.iter().filter_map(|view| {
        let BreakerState::Open { until } = view.breaker else { return None };
        let model = view.model.as_ref().map(|model| format!("/{model}")).unwrap_or_default();
        let text = format!("{}{model} is not called until {until}", view.provider);
        Some(SectionItem { text, command: Some(format!("hermod providers reset {}", view.provider)) })
    });
    let hooks = status.hooks.iter().filter(|hook| hook.state == Some(HookStateView::Disabled)).map(|hook| {
        let error = hook.last_error.as_deref().unwrap_or("no error is known");
        let text = format!("hook {} is disabled: {}", hook.name, line(error));
        SectionItem { text, command: Some(format!("hermod hooks enable {}", hook.name)) }
    });
    let channels = status.channels.iter().filter_map(|channel| {
        let is_bad = matches!(channel.state, ChannelStateView::Failing | ChannelStateView::Unusable);
        let error = channel.error.as_deref().unwrap_or("no error is known");
        is_bad.then(|| format!("channel {} fails: {}", channel.name, line(error)).into())
    });
    let targets = status.gone_targets.iter().map(|name| format!("target {name} is gone").into());
    reasons.chain(breakers).chain(hooks).chain(channels).chain(targets).collect()
}

fn cost(report: &ReportView, _: Timestamp) -> Option<Section> {
    let ReportCostView { spent_usd, unattributed_usd, requests, failed_requests, unpriced_requests, models } =
        &report.cost;
    let mut items: Vec<SectionItem> = models
        .iter()
        .map(|model| {
            let failed = match model.failed_requests {
                0 => String::new(),
                failed => format!(" ({failed} failed)"),
            };
            let (read, written) = (model.input_tokens, model.output_tokens);
            let (requests, spent) = (model.requests, dollars(model.spent_usd));
            format!(
                "{}: {spent}, requests {requests}{failed}, tokens {read} read, {written} written",
                model.model
            )
            .into()
        })
        .collect();
    if *unattributed_usd > 0 {
        items.push(format!("{} was reserved by runs that were ended", dollars(*unattributed_usd)).into());
    }
    if *unpriced_requests > 0 {
        let requests = counted(*unpriced_requests, "request");
        items.push(format!("not in this: {requests} without a known price").into());
    }
    let failed = if *failed_requests > 0 { format!(", {failed_requests} failed") } else { String::new() };
    let title = format!("cost: {} for {}{failed}", dollars(*spent_usd), counted(*requests, "request"));
    (*requests > 0 || *spent_usd > 0).then(|| Section { title, items, ..Section::default() })
}

fn limits(report: &ReportView, _: Timestamp) -> Option<Section> {
    let items: Vec<SectionItem> = report
        .limits
        .iter()
        .flat_map(|period| {
            let dimensions = period.account.dimensions.iter();
            dimensions.filter(|(_, usage)| usage.limit.is_some()).map(move |(dimension, usage)| {
                let [name, limit, spent, _, left] = budgets::cells(*dimension, usage);
                let (unit, end) = (period.period.name(), period.ends_at);
                format!("{name} of this {unit}: {spent} of {limit}, {left} left until {end}").into()
            })
        })
        .collect();
    (!items.is_empty()).then(|| Section { title: "limits".to_owned(), items, ..Section::default() })
}

fn more<T>(list: &ReportList<T>, command: impl FnOnce() -> String) -> Option<(u64, String)> {
    (list.more > 0).then(|| (list.more, command()))
}

fn line(text: &str) -> String {
    words_line(text, MAX_CHARS)
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", line(text))
}
