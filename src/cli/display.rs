//! Progress display at standard error: lines, and on a terminal a live region below them. If the answer goes to the
//! same terminal, its text is streamed. Also the options that say how much is shown. The texts come from `progress.rs`,
//! `live.rs` and `answer_stream.rs`.

use std::io::{self, IsTerminal};

use clap::{Args, ValueEnum};
use hermod_actors::{
    SanitizedText,
    model::{Body, CallId, EventBody, ModelAnswered, Record, RunId},
};
use serde_json::Value;
use tokio::time::Instant;
use tracing::level_filters::LevelFilter;

use super::{
    CliError,
    answer_stream::{AnswerStream, DeltaText},
    live::{FRAME_INTERVAL, LiveView},
    output::{is_json, print_in_tone, print_json, set_quiet, strict, unix_lines, write_stderr},
    terminal::{Palette, Tone, is_one_terminal, stderr_columns, truncate},
};
use crate::discovery::Variables;

/// Prefix of each line of the model's reasoning.
const THOUGHT_PREFIX: &str = "> ";
/// Prefix of each line that a tool has printed.
const OUTPUT_PREFIX: &str = "  | ";

/// How much of what tools print is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Verbosity {
    /// None of it
    Off,
    /// The last lines of each command
    On,
    /// All results of tools, and what the model thinks
    Full,
}

/// What is shown of a run.
#[derive(Debug, Default, Clone, Args)]
pub(crate) struct DisplayArgs {
    /// Show nothing but the answer, errors, and what a person has to do
    #[arg(short, long, conflicts_with_all = ["verbose", "show_reasoning"])]
    pub(crate) quiet: bool,
    /// How much of what tools print is shown [default: on at a terminal, else off]
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) verbose: Option<Verbosity>,
    /// Show what the model thinks, if the provider tells it
    #[arg(long)]
    pub(crate) show_reasoning: bool,
}

/// What a command prints to standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputForm {
    /// The answer as text.
    Text,
    /// One JSON object at the end.
    Json,
    /// Each event as a JSON line, then the object of the end.
    JsonEvents,
}

/// Shows the progress of runs at standard error.
#[derive(Debug)]
pub(crate) struct ProgressDisplay {
    /// Whether events are printed to standard output, until that cannot be written.
    prints_events: bool,
    is_quiet: bool,
    verbosity: Verbosity,
    shows_reasoning: bool,
    palette: Palette,
    region: Option<LiveRegion>,
    answer: Option<AnswerStream>,
    thought: DeltaText,
    /// Bytes of the current reasoning that came as deltas.
    thought_bytes: usize,
    /// The run whose texts are streamed.
    run: Option<RunId>,
    cursor: CursorPosition,
}

/// The position of the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CursorPosition {
    /// At the beginning of a line, or after the live region.
    LineStart,
    /// After the answer's text so far.
    InAnswer,
    /// After a part of the reasoning.
    InThought,
}

/// Lines below all others, redrawn in place.
#[derive(Debug)]
struct LiveRegion {
    live: LiveView,
    started_at: Instant,
    /// Number of drawn lines that the next drawing replaces.
    drawn: usize,
    /// Time of the last drawing.
    drawn_at: Instant,
}

impl ProgressDisplay {
    /// With [`OutputForm::Text`] the answer itself is streamed, if standard output and standard error are the same
    /// terminal.
    pub(crate) fn new(args: &DisplayArgs, form: OutputForm, variables: &Variables) -> Self {
        set_quiet(args.quiet);
        let prints_events = form == OutputForm::JsonEvents;
        // Logs and events would break the redrawn lines.
        let is_disturbed = LevelFilter::current() != LevelFilter::OFF || (prints_events && is_one_terminal());
        let is_free = !is_disturbed && !is_json() && !args.quiet;
        let palette = Palette::at_stderr(variables).filter(|_| is_free);
        let now = Instant::now();
        let region = palette.map(|_| LiveRegion {
            live: LiveView::default(),
            started_at: now,
            drawn: 0,
            drawn_at: now,
        });
        let at_terminal = io::stderr().is_terminal() && is_free;
        let verbosity = args.verbose.unwrap_or(if at_terminal { Verbosity::On } else { Verbosity::Off });
        Self {
            prints_events,
            is_quiet: args.quiet,
            verbosity,
            shows_reasoning: args.show_reasoning || verbosity == Verbosity::Full,
            palette: palette.unwrap_or(Palette::Plain),
            region,
            answer: (form == OutputForm::Text && is_free && is_one_terminal()).then(AnswerStream::default),
            thought: DeltaText::default(),
            thought_bytes: 0,
            run: None,
            cursor: CursorPosition::LineStart,
        }
    }

    /// Prints an event of the shown run or of its session to standard output, if events are wanted there. When that fails no
    /// more are printed, and the run goes on: the object of the end meets the same error.
    pub(crate) fn print_event(
        &mut self,
        run: Option<RunId>,
        event: impl FnOnce() -> serde_json::Result<Value>,
    ) {
        if !self.prints_events || (run.is_some() && run != self.run) {
            return;
        }
        let printed = match event() {
            Ok(event) => print_json(&event),
            Err(error) => Err(CliError::internal(format!("an event is no JSON: {error}"))),
        };
        if let Err(error) = printed {
            self.prints_events = false;
            self.line(Tone::Bad, &format!("output    no more events are printed: {}", error.text));
        }
    }

    /// Streams the texts of this run from now on.
    pub(crate) fn show_run(&mut self, run: RunId) {
        self.run = Some(run);
    }

    /// How much of the tools' output is shown.
    pub(crate) fn verbosity(&self) -> Verbosity {
        self.verbosity
    }

    /// True if the live region is drawn.
    pub(crate) const fn is_live(&self) -> bool {
        self.region.is_some()
    }

    /// Resolves when the live region is due to be redrawn; never without one.
    pub(crate) async fn frame(&self) {
        match &self.region {
            Some(region) => tokio::time::sleep_until(region.drawn_at + FRAME_INTERVAL).await,
            None => std::future::pending().await,
        }
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, tone: Tone, line: &str) {
        if self.is_quiet && tone != Tone::Action {
            return;
        }
        self.end_text();
        if self.region.is_none() {
            return print_in_tone(tone, line);
        }
        let line = self.palette.paint(tone, &strict(line));
        self.write(&format!("{line}\n"));
    }

    /// Writes lines that a tool has printed.
    pub(crate) fn output(&mut self, lines: &[String]) {
        if self.is_quiet {
            return;
        }
        self.end_text();
        for line in lines {
            let line = format!("{OUTPUT_PREFIX}{}", SanitizedText::sanitize(&unix_lines(line)));
            if self.region.is_none() {
                print_in_tone(Tone::Quiet, &line);
                continue;
            }
            let line =
                if self.verbosity == Verbosity::On { truncate(&line, stderr_columns() - 1) } else { line };
            self.write(&format!("{}\n", self.palette.paint(Tone::Quiet, &line)));
        }
    }

    /// Updates the display with an event that is no record.
    pub(crate) fn take(&mut self, body: &EventBody) {
        self.stream(body);
        // A text that is streamed need not also appear beside its call.
        let is_shown = self.answer.is_some() && matches!(body, EventBody::TextDelta { .. });
        if let Some(region) = self.region.as_mut().filter(|_| !is_shown) {
            region.live.take(body, region.started_at.elapsed());
            if region.drawn_at.elapsed() >= FRAME_INTERVAL {
                self.draw();
            }
        }
    }

    /// Updates the display with a record.
    pub(crate) fn take_record(&mut self, record: &Record) {
        if let Body::ModelAnswered(answered) = &record.body {
            self.answered(answered);
        }
    }

    /// Sets the lines of the subagents, one each.
    pub(crate) fn show_subagents(&mut self, lines: Vec<String>) {
        if let Some(region) = &mut self.region {
            region.live.show_subagents(lines);
        }
    }

    /// Redraws the live region, unless a text is being streamed.
    pub(crate) fn draw(&mut self) {
        let Some(region) = &mut self.region else { return };
        match self.cursor {
            CursorPosition::LineStart => region.draw(""),
            CursorPosition::InAnswer | CursorPosition::InThought => region.drawn_at = Instant::now(),
        }
    }

    /// True if the terminal of standard output already shows this text.
    pub(crate) fn has_shown(&self, answer: &str) -> bool {
        self.answer.as_ref().is_some_and(|stream| stream.has_shown(answer))
    }

    /// Removes the live region; other code may write lines after this.
    pub(crate) fn close(&mut self) {
        self.end_text();
        if let Some(region) = self.region.take() {
            write_stderr(&region.erased());
        }
    }

    /// True if texts are streamed.
    const fn streams(&self) -> bool {
        self.region.is_some() || self.answer.is_some()
    }

    fn stream(&mut self, body: &EventBody) {
        let is_of_run = |call: &CallId| Some(call.run) == self.run;
        if let EventBody::TextDelta { call, delta, .. } = body
            && is_of_run(call)
        {
            let text = self.answer.as_mut().map(|stream| stream.delta(*call, delta));
            self.show_text(text.as_deref().unwrap_or_default());
        } else if let EventBody::ReasoningDelta { call, delta, .. } = body
            && is_of_run(call)
            && self.shows_reasoning
            && self.streams()
        {
            self.thought_bytes += delta.len();
            let text = self.thought.push(delta);
            self.show_thought(&text);
        } else if let EventBody::Retry { call, .. } = body
            && is_of_run(call)
        {
            self.end_thought();
            if self.answer.as_mut().is_some_and(|stream| stream.void(*call)) {
                self.line(Tone::Bad, "void      the text above does not count: the model is asked again");
            }
        } else if let EventBody::ToolCallParsed { call, .. } = body
            && is_of_run(call)
            && let Some(stream) = &mut self.answer
        {
            stream.tool_call();
        }
    }

    /// Shows the part of a complete answer that did not come as deltas.
    fn answered(&mut self, answered: &ModelAnswered) {
        if Some(answered.call.run) != self.run {
            return;
        }
        if self.shows_reasoning && self.streams() {
            // A watcher that starts late misses earlier deltas; the record has the complete text.
            let rest = answered.message.reasoning.get(self.thought_bytes..).unwrap_or_default();
            if !rest.is_empty() {
                let text = self.thought.push(rest);
                self.show_thought(&text);
            }
        } else if self.shows_reasoning && !self.is_quiet {
            for line in answered.message.reasoning.lines() {
                print_in_tone(Tone::Quiet, &format!("{THOUGHT_PREFIX}{line}"));
            }
        }
        self.end_thought();
        if answered.is_discarded() {
            return;
        }
        let calls_tools = !answered.message.calls.is_empty();
        if let Some(stream) = self.answer.as_mut().filter(|_| !calls_tools) {
            let rest = stream.complete(answered.call, &answered.message.text);
            self.show_text(&rest);
        }
    }

    fn show_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.cursor == CursorPosition::InThought {
            self.end_text();
        }
        self.erase();
        write_stderr(text);
        self.cursor = if text.ends_with('\n') { CursorPosition::LineStart } else { CursorPosition::InAnswer };
    }

    fn show_thought(&mut self, text: &str) {
        if self.cursor == CursorPosition::InAnswer {
            self.end_text();
        }
        self.erase();
        for piece in text.split_inclusive('\n') {
            let prefix = if self.cursor == CursorPosition::LineStart { THOUGHT_PREFIX } else { "" };
            let (line, end) = piece.strip_suffix('\n').map_or((piece, ""), |line| (line, "\n"));
            write_stderr(&(self.palette.paint(Tone::Quiet, &format!("{prefix}{line}")) + end));
            self.cursor = if end.is_empty() { CursorPosition::InThought } else { CursorPosition::LineStart };
        }
    }

    /// Resets the state of the reasoning, which the next call begins anew.
    fn end_thought(&mut self) {
        (self.thought, self.thought_bytes) = (DeltaText::default(), 0);
    }

    /// Ends the line of a text that is being streamed.
    fn end_text(&mut self) {
        if self.cursor != CursorPosition::LineStart {
            write_stderr("\n");
            self.cursor = CursorPosition::LineStart;
        }
    }

    fn erase(&mut self) {
        if let Some(region) = &mut self.region {
            write_stderr(&region.erased());
            region.drawn = 0;
        }
    }

    /// Writes `above`, and redraws the live region below it.
    fn write(&mut self, above: &str) {
        if let Some(region) = &mut self.region {
            region.draw(above);
        }
    }
}

impl LiveRegion {
    fn draw(&mut self, above: &str) {
        let lines = self.live.lines(self.started_at.elapsed(), stderr_columns());
        let frame = format!("{}{above}{}", self.erased(), lines.join("\n"));
        (self.drawn, self.drawn_at) = (lines.len(), Instant::now());
        if !frame.is_empty() {
            write_stderr(&frame);
        }
    }

    /// The control sequences that erase the drawn lines; the cursor is at the end of the last one.
    fn erased(&self) -> String {
        match self.drawn {
            0 => String::new(),
            1 => "\r\x1b[J".into(),
            n => format!("\r\x1b[{}A\x1b[J", n - 1),
        }
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        self.close();
    }
}
