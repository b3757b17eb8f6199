//! Scripted faults: their compiled form, and its checks. `stream.rs` and `server.rs` carry them out, `fault_counter.rs`
//! counts them.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::{
    ScriptError,
    spec::{Cut, FaultSpec, Span, Times},
};

/// A fault, and the number of attempts that it affects.
#[derive(Debug, Clone)]
pub struct FaultRule {
    /// The fault.
    pub fault: ScriptFault,
    /// The number of affected attempts of one request; `None` affects all.
    pub times: Option<u64>,
}

/// A scripted fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptFault {
    /// An error response in place of the answer.
    Status {
        /// From 400 to 599.
        status: StatusCode,
        /// Headers added to the response.
        headers: HeaderMap,
        /// `None` sends an error object of the wire format.
        body: Option<String>,
    },
    /// The stream breaks.
    Cut {
        /// The number of events before the break.
        after: usize,
        /// The kind of break.
        how: Cut,
    },
    /// The stream pauses.
    Stall {
        /// The number of events before the pause.
        after: usize,
        /// The length of the pause.
        time: Duration,
    },
}

pub(super) fn compile(place: &str, spec: FaultSpec) -> Result<FaultRule, ScriptError> {
    let times = spec.times.map_or(Some(1), |Times(n)| n);
    let kinds = [
        ("status", spec.status.is_some()),
        ("cut_after", spec.cut_after.is_some()),
        ("stall", spec.stall.is_some()),
    ];
    let given: Vec<_> = kinds.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
    let [kind] = given[..] else {
        let problem = format!("a fault is exactly one of `status`, `cut_after` and `stall`, not {given:?}");
        return Err(ScriptError::new(place, problem, "give one, a second one in a step of its own"));
    };
    let dependent_fields = [
        ("headers", !spec.headers.is_empty(), "status"),
        ("body", spec.body.is_some(), "status"),
        ("cut", spec.cut.is_some(), "cut_after"),
        ("stall_after", spec.stall_after.is_some(), "stall"),
    ];
    if let Some((field, _, owner)) =
        dependent_fields.iter().find(|(_, given, owner)| *given && *owner != kind)
    {
        let problem = format!("`{field}` has no meaning beside `{kind}`");
        return Err(ScriptError::new(
            format!("{place}.{field}"),
            problem,
            format!("remove it, or use `{owner}`"),
        ));
    }
    let fault = match (spec.status, spec.cut_after, spec.stall) {
        (Some(code), ..) => ScriptFault::Status {
            status: status(place, code)?,
            headers: headers(place, &spec)?,
            body: spec.body,
        },
        (_, Some(after), _) => ScriptFault::Cut { after, how: spec.cut.unwrap_or_default() },
        (.., stall) => ScriptFault::Stall {
            after: spec.stall_after.unwrap_or(0),
            time: stall.map_or(Duration::ZERO, |Span(time)| time),
        },
    };
    Ok(FaultRule { fault, times })
}

fn status(place: &str, code: u16) -> Result<StatusCode, ScriptError> {
    let status =
        StatusCode::from_u16(code).ok().filter(|status| status.is_client_error() || status.is_server_error());
    status.ok_or_else(|| {
        ScriptError::new(
            format!("{place}.status"),
            format!("{code} is no error"),
            "give a status from 400 to 599",
        )
    })
}

fn headers(place: &str, spec: &FaultSpec) -> Result<HeaderMap, ScriptError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &spec.headers {
        let refused = |problem: String, remedy: &str| {
            ScriptError::new(format!("{place}.headers.{name}"), problem, remedy)
        };
        let key = HeaderName::try_from(name).map_err(|_| {
            refused(format!("`{name}` is no name of a header"), "use letters, digits and `-`")
        })?;
        let value = HeaderValue::try_from(value).map_err(|_| {
            refused(format!("`{value}` is no value of a header"), "use one line of visible characters")
        })?;
        headers.insert(key, value);
    }
    Ok(headers)
}
