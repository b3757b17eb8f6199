//! The providers: what a model says is a function of the view, but for what goes wrong before, which happens once.

use std::{
    future::pending,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use serde_json::{Value, json};

use super::{
    outside::{Asked, How, Outside},
    plan::{Kind, Mishap, Plan, RunPlan, Step},
    todo, views,
};
use crate::{
    model::{
        Answer, AssistantMessage, Dimension, Failure, FailureClass, Finish, Message, ModelTraits, ToolCall,
        ToolSpec, Usage,
    },
    policy::delegation::DELEGATE_TASK,
    port::{Deltas, Encoder, Head, ModelRequest, Provider, Segments},
    testkit::PlainEncoder,
};

/// Tokens that an answer says it has read; less than any request is estimated at.
const READ: u64 = 2;
/// So often a model that has nothing left to do goes wrong anew because of calls that it should not have made; one that
/// never stopped would keep a run without limits for ever.
const STUBBORN: usize = 8;
/// No plan needs so many answers: who asks for more goes round in circles.
const ENDLESS: usize = 1_000;

/// One provider of the plan's world.
#[derive(Debug)]
pub(super) struct Endpoint {
    plan: Arc<Plan>,
    outside: Arc<Outside>,
    encoder: Arc<OddEncoder>,
}

impl Endpoint {
    pub(super) fn new(plan: Arc<Plan>, outside: Arc<Outside>) -> Self {
        let encoder = Arc::new(OddEncoder { plan: Arc::clone(&plan), outside: Arc::clone(&outside) });
        Self { plan, outside, encoder }
    }

    /// Whether more was asked than any plan needs. No answer comes then, so that the time goes on and the life ends.
    fn is_endless(&self) -> bool {
        let asked = self.outside.lock().asked.len();
        if asked == ENDLESS {
            self.outside
                .accuse("there is progress when faults stop", format!("models were asked {asked} times"));
        }
        asked >= ENDLESS
    }

    async fn answer(&self, request: ModelRequest) -> Result<Answer, Failure> {
        let messages = PlainEncoder::decode(&request);
        let shown = views::check(&self.outside, request.session, &messages);
        let call = Call::begin(&self.outside, &request, shown);
        if self.is_endless() {
            return pending().await;
        }
        let (run, at) = place(&messages);
        let nothing = Step::default();
        let run = run.and_then(|run| self.plan.run(run));
        let step = run.map_or(&nothing, |run| run.steps.get(at).unwrap_or(&run.last));
        let asked = self.outside.count(format!("{:?}.{at}", run.map(|run| run.n)));
        let is_over = run.is_some_and(|run| at >= run.steps.len() + STUBBORN);
        let mishap = step.mishaps.get(asked).copied().filter(|_| !is_over);
        if let Some(mishap) = mishap {
            self.outside.goes_wrong(mishap.name());
        }
        tokio::time::sleep(Duration::from_millis(step.ms)).await;
        let answered = said((&self.plan, run), (at, step, mishap), request.max_tokens);
        let answered = match answered {
            Some(answered) => answered,
            None if mishap == Some(Mishap::Panic) => panic!("planned: the provider panics"),
            None => pending().await,
        };
        call.ends(answered.as_ref().ok().and_then(|answer| answer.usage));
        answered
    }
}

impl Provider for Endpoint {
    fn encoder(&self, _: &str, _: &ModelTraits) -> Arc<dyn Encoder> {
        Arc::<OddEncoder>::clone(&self.encoder)
    }

    fn call<'a>(
        &'a self,
        request: ModelRequest,
        deltas: &'a dyn Deltas,
    ) -> BoxFuture<'a, Result<Answer, Failure>> {
        async move {
            let answer = self.answer(request).await?;
            if !answer.message.text.is_empty() {
                deltas.text(&answer.message.text);
            }
            Ok(answer)
        }
        .boxed()
    }
}

/// Which run of the plan the view is of, and how many steps it has made.
fn place(messages: &[Value]) -> (Option<usize>, usize) {
    let text = |message: &Value| message["text"].as_str().unwrap_or_default().to_owned();
    let is_task = |message: &&Value| {
        message["role"] == "user"
            && (text(message).starts_with("run-") || text(message).starts_with("steer-"))
    };
    let Some(begin) = messages.iter().rposition(|message| is_task(&message)) else { return (None, 0) };
    let task = text(&messages[begin]);
    let digits = |task: &str| task.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    let run = task.strip_prefix("run-").and_then(digits);
    let acts = |message: &&Value| message["calls"].as_array().is_some_and(|calls| !calls.is_empty());
    (run, messages[begin..].iter().filter(acts).count())
}

/// What comes of one attempt; nothing, if it never ends or panics.
fn said(
    (plan, run): (&Plan, Option<&RunPlan>),
    (at, step, mishap): (usize, &Step, Option<Mishap>),
    max_tokens: u64,
) -> Option<Result<Answer, Failure>> {
    let fails = |class| Some(Err(Failure::new(class, "planned")));
    let plain = |text: &str, calls: Vec<ToolCall>, finish| Answer {
        message: AssistantMessage { text: text.into(), calls, ..AssistantMessage::default() },
        finish,
        usage: Some(Usage { input_tokens: READ, output_tokens: max_tokens.min(40), ..Usage::default() }),
    };
    let odd = |name: &str, arguments: &str| {
        vec![ToolCall { id: "odd".into(), name: name.into(), arguments: arguments.into() }]
    };
    let whole = || {
        let name = run.map_or_else(|| "a message".to_owned(), |run| format!("run {}", run.n));
        let calls = run.map_or_else(Vec::new, |run| calls((plan, run.n), at, step));
        match calls.is_empty() {
            true => plain(&format!("{name} is done"), calls, Finish::Stop),
            false => plain("", calls, Finish::ToolCalls),
        }
    };
    let answer = match mishap {
        Some(Mishap::RateLimited(retry_after_ms)) => {
            return fails(FailureClass::RateLimited { retry_after_ms, reset_at: None });
        }
        Some(Mishap::Overloaded) => return fails(FailureClass::Overloaded),
        Some(Mishap::Server) => return fails(FailureClass::Server),
        Some(Mishap::Network) => return fails(FailureClass::Network),
        Some(Mishap::Cut) => return fails(FailureClass::Cut),
        Some(Mishap::Auth) => return fails(FailureClass::Auth),
        Some(Mishap::Hang | Mishap::Panic) => return None,
        Some(Mishap::Empty) => plain("", Vec::new(), Finish::Stop),
        Some(Mishap::OnlyThought) => {
            let mut answer = plain("", Vec::new(), Finish::Stop);
            answer.message.reasoning = "hm".into();
            answer
        }
        Some(Mishap::Part) => plain("a part ", Vec::new(), Finish::Length),
        Some(Mishap::CutCalls) => plain("", odd("look", "{\"of\":"), Finish::Length),
        Some(Mishap::UnknownTool) => plain("", odd("abracadabra", "{}"), Finish::ToolCalls),
        Some(Mishap::Malformed) => plain("", odd("look", "no json"), Finish::ToolCalls),
        Some(Mishap::Refused) => plain("no", Vec::new(), Finish::Refused),
        Some(Mishap::NoUsage) => Answer { usage: None, ..whole() },
        None => whole(),
    };
    Some(Ok(answer))
}

fn calls((plan, run): (&Plan, usize), at: usize, step: &Step) -> Vec<ToolCall> {
    let mut calls: Vec<ToolCall> = Vec::new();
    for (n, call) in step.calls.iter().enumerate() {
        let id = format!("c{n}");
        let twin = calls.last().filter(|_| call.is_twin).cloned();
        calls.push(if let Some(twin) = twin {
            ToolCall { id, ..twin }
        } else {
            let of = format!("{run}.{at}.{n}");
            let arguments = json!({"of": of, "ms": call.ms, "does": call.does}).to_string();
            ToolCall { id, name: call.tool.name().into(), arguments }
        });
    }
    for (n, give) in step.gives.iter().enumerate() {
        let tasks: Vec<Value> =
            give.tasks.iter().filter_map(|task| Some(task_of(plan.run(*task)?))).collect();
        let mut arguments = match &tasks[..] {
            [task] => task.clone(),
            tasks => json!({"tasks": tasks}),
        };
        arguments["background"] = give.background.into();
        let (id, name) = (format!("g{n}"), DELEGATE_TASK.into());
        calls.push(ToolCall { id, name, arguments: arguments.to_string() });
    }
    calls.extend(todo::call((run, at)).filter(|_| !calls.is_empty()));
    calls
}

/// A task as a model gives it away: what it is to do is told by its number, like a run's.
fn task_of(task: &RunPlan) -> Value {
    let mut budget = json!({});
    for dimension in Dimension::ALL {
        if let Some(amount) = task.limits.budget.get(dimension) {
            budget[dimension.name()] = amount.into();
        }
    }
    if let Some(ms) = task.limits.wall_ms {
        budget["wall_s"] = ms.div_ceil(1_000).into();
    }
    json!({"goal": format!("run-{}", task.n), "budget": budget})
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Look, Self::Put, Self::Send, Self::Build];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Put => "put",
            Self::Send => "send",
            Self::Build => "build",
        }
    }
}

/// An attempt that a provider serves; dropped, it is known to be gone.
struct Call {
    outside: Arc<Outside>,
    n: usize,
    ended: Mutex<Option<How>>,
}

impl Call {
    fn begin(outside: &Arc<Outside>, request: &ModelRequest, shown: Vec<usize>) -> Self {
        let mut inner = outside.lock();
        let (call, attempt) = (request.call, attempt_of(&inner.book, request));
        if attempt == 0 {
            inner.book.accuse(
                "an effect follows its record",
                format!("{call} was asked before its start was stored"),
            );
        }
        if let Some(asked) = inner.asked.iter().find(|asked| asked.call == call && asked.ended.is_none()) {
            let what = format!("{call} attempt {attempt} was asked while attempt {} was", asked.attempt);
            inner.book.accuse("attempts do not overlap", what);
        }
        inner.asked.push(Asked { call, attempt, ended: None, told: None, told_at: 0, shown });
        let n = inner.asked.len() - 1;
        drop(inner);
        Self { outside: Arc::clone(outside), n, ended: Mutex::default() }
    }

    fn ends(&self, told: Option<Usage>) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(How::Finished);
        let mut inner = self.outside.lock();
        let now = inner.now();
        let asked = &mut inner.asked[self.n];
        (asked.told, asked.told_at) = (told, now);
    }
}

/// The last attempt of the call that was started; 0 if none was. A request does not say which one it is of.
fn attempt_of(book: &super::book::Book, request: &ModelRequest) -> u32 {
    let mut attempt = 0;
    while book.has_started(request.call, attempt + 1) {
        attempt += 1;
    }
    attempt
}

impl Drop for Call {
    fn drop(&mut self) {
        let how = self.ended.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(How::Dropped);
        self.outside.lock().asked[self.n].ended.get_or_insert(how);
    }
}

/// Panics at some tasks, once.
#[derive(Debug)]
struct OddEncoder {
    plan: Arc<Plan>,
    outside: Arc<Outside>,
}

impl Encoder for OddEncoder {
    fn head(&self, system: &str, tools: &[ToolSpec]) -> Head {
        PlainEncoder.head(system, tools)
    }

    fn messages(&self, messages: &[Message], to: &mut Segments) {
        for message in messages {
            let Message::User(content) = message else { continue };
            for run in self.plan.runs.iter().chain(&self.plan.tasks).filter(|run| run.encoder_panics) {
                let is_its = *content.text == *format!("run-{}", run.n);
                let panics = is_its && self.outside.first(format!("encoder {}", run.n));
                if panics {
                    self.outside.goes_wrong("encoder: panics");
                }
                assert!(!panics, "planned: the encoder panics");
            }
        }
        PlainEncoder.messages(messages, to);
    }
}
