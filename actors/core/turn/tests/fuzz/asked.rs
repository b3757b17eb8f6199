//! Random tool calls that a model asks for, and the verdicts of the ToolExecutor on them.

use std::sync::Arc;

use serde_json::json;

use super::chance::Chance;
use crate::{
    model::{Access, ApprovalNeed, CallEnd, CallStatus, EffectClass, Hash, Intent, ToolCall},
    policy::{clarify::CLARIFY, delegation::DELEGATE_TASK, message::MESSAGE, todo::TODO},
    turn::{CallAdmission, CallRejection},
};

const TOOLS: [&str; 3] = ["tool", "shell", "memory"];
/// Arguments of calls of `message`; the last one is invalid.
const MESSAGES: [&str; 3] =
    [r#"{"target":"ops","text":"a"}"#, r#"{"target":"dev","text":"b"}"#, r#"{"target":"ops"}"#];
/// Arguments of calls of `todo`; the last of these fits only some lists.
const LISTS: [&str; 4] = [
    "{}",
    r#"{"todos":[{"id":"a","content":"look","status":"in_progress"},{"id":"b","content":"write"}]}"#,
    r#"{"todos":[{"id":"c","content":"end"}],"merge":true}"#,
    r#"{"todos":[{"id":"a","status":"completed"}],"merge":true}"#,
];

/// A call; its id has the number `n`.
pub(super) fn asked(chance: &mut Chance, n: u64) -> ToolCall {
    let (name, arguments) = match chance.below(9) {
        0 | 1 => (DELEGATE_TASK, order(chance)),
        2 => (TODO, chance.pick(&LISTS).into()),
        3 => (CLARIFY, r#"{"question":"Which one?"}"#.into()),
        4 => (MESSAGE, chance.pick(&MESSAGES).into()),
        _ => (chance.pick(&TOOLS), r#"{"a":1}"#.into()),
    };
    ToolCall { id: format!("v{n}"), name: name.into(), arguments }
}

/// Arguments of a call of `delegate_task`; one of eight is invalid.
fn order(chance: &mut Chance) -> String {
    let bad = [r#"{"goal":""}"#, "{}", r#"{"goal":"look","tools":["none"]}"#, r#"{"tasks":[]}"#];
    if chance.one_in(8) {
        return chance.pick(&bad).into();
    }
    let tasks = chance.pick(&[1, 1, 2, 3, 4]);
    let tasks: Vec<_> =
        (0..tasks).map(|_| json!({"goal": chance.pick(&["look", "read", "write"])})).collect();
    let in_background = chance.one_in(2);
    match tasks.len() {
        1 => json!({"goal": "look", "background": in_background}).to_string(),
        _ => json!({"tasks": tasks, "background": in_background}).to_string(),
    }
}

/// Why the policy asks about a call of this tool.
fn need(tool: &str) -> Arc<ApprovalNeed> {
    let (rules, allow_rules) = (vec!["ask".into()], vec![tool.into()]);
    Arc::new(ApprovalNeed { rules, allow_rules, question: "May it start?".into() })
}

/// The verdicts of the ToolExecutor on calls; often all of them are alike.
pub(super) fn plans(chance: &mut Chance, calls: &[ToolCall]) -> Vec<CallAdmission> {
    let all = chance.below(16);
    let mut plan = |call: &ToolCall| match if chance.one_in(4) { chance.below(16) } else { all } {
        0 => refuse(CallRejection::UnknownTool),
        _ if call.name == DELEGATE_TASK => CallAdmission::Admit {
            tool: call.name.as_str().into(),
            intent: EffectClass::Once.into(),
            arguments: Hash::of(call.arguments.as_bytes()),
            approval: None,
            hooks: None,
        },
        _ if call.name == TODO => CallAdmission::Admit {
            tool: TODO.into(),
            intent: EffectClass::Idempotent.into(),
            arguments: Hash::of(call.arguments.as_bytes()),
            approval: None,
            hooks: None,
        },
        n if call.name == MESSAGE => CallAdmission::Admit {
            tool: MESSAGE.into(),
            intent: EffectClass::Once.into(),
            arguments: Hash::of(call.arguments.as_bytes()),
            approval: (n % 4 == 1).then(|| need(MESSAGE)),
            hooks: None,
        },
        _ if call.name == CLARIFY => CallAdmission::Admit {
            tool: CLARIFY.into(),
            intent: Intent { access: Access::Exclusive, ..EffectClass::Pure.into() },
            arguments: Hash::of(call.arguments.as_bytes()),
            approval: None,
            hooks: None,
        },
        1 => refuse(CallRejection::Malformed),
        2 => refuse(CallRejection::Unacceptable),
        n => {
            let effect = match n {
                3..=5 => EffectClass::Pure,
                6..=8 => EffectClass::Idempotent,
                _ => EffectClass::Once,
            };
            let paths = [Access::reads("/w/a"), Access::writes("/w/a"), Access::writes("/w")];
            let access = match chance.below(8) {
                0..=2 => Access::default(),
                3..=5 => paths[usize::try_from(n % 3).unwrap_or(0)].clone(),
                6 => Access::Exclusive,
                _ => Access::Anything,
            };
            let detached = effect == EffectClass::Once && chance.one_in(2);
            let arguments = Hash::of(&[u8::from(chance.one_in(3))]);
            CallAdmission::Admit {
                tool: call.name.as_str().into(),
                intent: Intent { effect, access, detached, polls: chance.one_in(8) },
                arguments,
                approval: chance.one_in(6).then(|| need(&call.name)),
                hooks: None,
            }
        }
    };
    calls.iter().map(&mut plan).collect()
}

fn refuse(fault: CallRejection) -> CallAdmission {
    CallAdmission::Reject { rejection: fault, end: CallEnd::new(CallStatus::Error, "no") }
}
