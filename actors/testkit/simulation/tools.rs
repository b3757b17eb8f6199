//! The tools, whose effects the world outside knows.

use std::{future::pending, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    outside::{How, Outside},
    plan::{Does, Kind},
};
use crate::{
    model::{Access, Attempt, CallEnd, CallId, CallStatus, EffectClass, ToolSpec},
    port::{BadArguments, Boot, Found, Intent, Invocation, Tool},
};

/// What a call is told to do.
#[derive(Debug, Deserialize)]
struct Arguments {
    of: String,
    ms: u64,
    does: Does,
    /// The bytes of its result beyond what it says.
    #[serde(default)]
    pad: usize,
}

/// One of the tools.
#[derive(Debug)]
pub(super) struct OddTool {
    kind: Kind,
    spec: ToolSpec,
    outside: Arc<Outside>,
}

impl OddTool {
    pub(super) fn new(kind: Kind, outside: Arc<Outside>) -> Self {
        let spec = ToolSpec {
            name: kind.name().into(),
            description: String::new(),
            parameters: json!({"type": "object"}),
        };
        Self { kind, spec, outside }
    }
}

impl Tool for OddTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn plans_at_once(&self) -> bool {
        true
    }

    fn plan(&self, arguments: &Value, _: &str) -> Result<Intent, BadArguments> {
        let arguments = read(arguments)?;
        let panics =
            arguments.does == Does::PlanPanics && self.outside.first(format!("plan {}", arguments.of));
        let is_due = panics || arguments.does != Does::PlanPanics;
        if let Some(wrong) = arguments.does.name().filter(|_| is_due) {
            self.outside.goes_wrong(wrong);
        }
        assert!(!panics, "planned: the tool panics when it looks at its arguments");
        let intent = |effect: EffectClass| Intent::from(effect);
        Ok(match self.kind {
            Kind::Look => intent(EffectClass::Pure),
            Kind::Put => Intent { access: Access::writes("/workspace/a"), ..intent(EffectClass::Idempotent) },
            Kind::Send => intent(EffectClass::Once),
            Kind::Build => Intent { access: Access::Anything, detached: true, ..intent(EffectClass::Once) },
        })
    }

    fn run(&self, invocation: Invocation) -> BoxFuture<'static, CallEnd> {
        let (kind, outside) = (self.kind, Arc::clone(&self.outside));
        async move {
            let Ok(arguments) = read(&invocation.arguments) else {
                return CallEnd::error(CallStatus::Error, "unreadable", None, "none");
            };
            let end = match kind {
                Kind::Look | Kind::Put | Kind::Send => here(outside, kind, &invocation, &arguments).await,
                Kind::Build => {
                    let (id, ms) = ((invocation.call, invocation.attempt), arguments.ms);
                    let ms = (arguments.does != Does::Hang).then_some(ms);
                    outside.lock().launch(id, arguments.does, ms);
                    panic_if(&arguments, id.1);
                    follow(outside, id, &invocation.cancel)
                        .await
                        .unwrap_or_else(|| CallEnd::error(CallStatus::InDoubt, "it was killed", None, "look"))
                }
            };
            padded(end, arguments.pad)
        }
        .boxed()
    }

    fn attach(&self, invocation: Invocation, _: Boot) -> BoxFuture<'static, Found> {
        let (kind, outside) = (self.kind, Arc::clone(&self.outside));
        let id = (invocation.call, invocation.attempt);
        async move {
            if kind != Kind::Build {
                return Found::Unknown;
            }
            let is_known = outside.lock().command(id).is_some();
            if !is_known {
                outside.lock().fenced.insert(id);
                return Found::NeverBegun;
            }
            let pad = read(&invocation.arguments).map_or(0, |arguments| arguments.pad);
            let end = follow(outside, id, &invocation.cancel).await;
            end.map_or(Found::Unknown, |end| Found::Ended(padded(end, pad)))
        }
        .boxed()
    }
}

fn read(arguments: &Value) -> Result<Arguments, BadArguments> {
    serde_json::from_value(arguments.clone()).map_err(|error| BadArguments {
        field: None,
        error: error.to_string(),
        hint: "none".into(),
    })
}

/// A result that says more than it has to.
fn padded(mut end: CallEnd, bytes: usize) -> CallEnd {
    end.content = format!("{}{}", end.content, ".".repeat(bytes)).into();
    end
}

fn panic_if(arguments: &Arguments, attempt: Attempt) {
    let panics = match arguments.does {
        Does::PanicOnce => attempt == 1,
        Does::PanicAlways => true,
        Does::Well | Does::Fail | Does::Hang | Does::IgnoreStop | Does::PlanPanics => false,
    };
    assert!(!panics, "planned: the tool panics");
}

/// What the process does itself.
async fn here(outside: Arc<Outside>, kind: Kind, invocation: &Invocation, arguments: &Arguments) -> CallEnd {
    let id = (invocation.call, invocation.attempt);
    let deed = outside.lock().begin(id, kind);
    let begun = Begun { outside, deed };
    let half = Duration::from_millis(arguments.ms / 2);
    let work = async {
        tokio::time::sleep(half).await;
        panic_if(arguments, id.1);
        if arguments.does == Does::Hang {
            pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_millis(arguments.ms.div_ceil(2))).await;
    };
    let cancelled = async {
        invocation.cancel.cancelled().await;
        if arguments.does == Does::IgnoreStop {
            pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        () = work => begun.ends(How::Finished, said(arguments.does)),
        () = cancelled => begun.ends(How::Stopped, CallEnd::new(CallStatus::Stopped, "stopped")),
    }
}

fn said(does: Does) -> CallEnd {
    match does {
        Does::Fail => CallEnd::error(CallStatus::Error, "planned", None, "none"),
        Does::Well
        | Does::PanicOnce
        | Does::PanicAlways
        | Does::Hang
        | Does::IgnoreStop
        | Does::PlanPanics => CallEnd::ok("done"),
    }
}

/// Waits for a command's end, which may have come long ago; `None` if nobody knows it.
async fn follow(outside: Arc<Outside>, id: (CallId, Attempt), cancel: &CancellationToken) -> Option<CallEnd> {
    loop {
        let (command, came_to) = outside.lock().command(id)?;
        match came_to {
            Ok(How::Finished) => return Some(said(command.does)),
            Ok(How::Stopped) => return Some(CallEnd::new(CallStatus::Stopped, "stopped")),
            Ok(How::Dropped) => return None,
            Err(left) => {
                let cancelled = async {
                    cancel.cancelled().await;
                    if command.does == Does::IgnoreStop {
                        pending::<()>().await;
                    }
                };
                // Longer than anything waits.
                let left = Duration::from_millis(left.min(100_000_000_000));
                tokio::select! {
                    biased;
                    () = tokio::time::sleep(left) => {}
                    () = cancelled => outside.lock().stop(id),
                }
            }
        }
    }
}

/// An effect that is under way; dropped, it is known to be gone.
struct Begun {
    outside: Arc<Outside>,
    deed: usize,
}

impl Begun {
    fn ends(self, how: How, end: CallEnd) -> CallEnd {
        self.outside.lock().end(self.deed, how);
        end
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.outside.lock().end(self.deed, How::Dropped);
    }
}
