//! The providers: what a model says is a function of the view, but for what goes wrong before, which happens once.

use std::{
    future::pending,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{
    answers::{place, said},
    outside::{Asked, How, Outside},
    plan::{Kind, Mishap, Plan, Step},
    squeeze::summarises,
    views,
};
use crate::{
    model::{Answer, Failure, Message, ModelTraits, ToolSpec, Usage},
    port::{Deltas, Encoder, Head, ModelRequest, Provider, Segments},
    testkit::PlainEncoder,
};
use futures::{FutureExt, future::BoxFuture};

/// So often a model that has nothing left to do goes wrong anew because of calls that it should not have made; one that
/// never stopped would keep a run without limits for ever.
const STUBBORN: usize = 8;
/// No plan needs so many answers: who asks for more goes round in circles.
const ENDLESS: usize = 1_000;

/// One provider of the plan's world.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) plan: Arc<Plan>,
    pub(super) outside: Arc<Outside>,
    encoder: Arc<OddEncoder>,
}

impl Endpoint {
    pub(super) fn new(plan: Arc<Plan>, outside: Arc<Outside>) -> Self {
        let encoder = Arc::new(OddEncoder { plan: Arc::clone(&plan), outside: Arc::clone(&outside) });
        Self { plan, outside, encoder }
    }

    /// Whether more was asked than any plan needs. No answer comes then, so that the time goes on and the life ends.
    pub(super) fn is_endless(&self) -> bool {
        let asked = self.outside.lock().asked.len();
        if asked == ENDLESS {
            self.outside
                .accuse("there is progress when faults stop", format!("models were asked {asked} times"));
        }
        asked >= ENDLESS
    }

    async fn answer(&self, request: ModelRequest) -> Result<Answer, Failure> {
        let messages = PlainEncoder::decode(&request);
        if request.call.is_summary() {
            return summarises(self, request, &messages).await;
        }
        let shown = views::check(&self.outside, request.session, &messages);
        let call = Call::begin(&self.outside, &request, shown);
        if self.is_endless() {
            return pending().await;
        }
        if let Some(refused) = self.plan.squeeze.as_ref().and_then(|squeeze| squeeze.refuses(&messages)) {
            self.outside.goes_wrong("model: too long a request");
            call.ends(None);
            return Err(refused);
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
pub(super) struct Call {
    outside: Arc<Outside>,
    n: usize,
    ended: Mutex<Option<How>>,
}

impl Call {
    pub(super) fn begin(outside: &Arc<Outside>, request: &ModelRequest, shown: Vec<usize>) -> Self {
        let mut inner = outside.lock();
        let call = request.call;
        // A request does not say which attempt it is of.
        let attempt = inner.book.last_started(call);
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

    pub(super) fn ends(&self, told: Option<Usage>) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(How::Finished);
        let mut inner = self.outside.lock();
        let now = inner.now();
        let asked = &mut inner.asked[self.n];
        (asked.told, asked.told_at) = (told, now);
    }
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
