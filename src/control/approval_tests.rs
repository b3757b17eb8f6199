//! Tests of approvals for always: which rules stay after an answer that is refused.

use std::{path::Path, sync::Arc, time::Duration};

use hermod_actors::{
    RunRequest, Runtime,
    model::{ApprovalScope, EffectClass, PersonAnswer, RunState, StopReason},
    port::Journal,
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, ScriptedTool, calls, says, world};
use serde_json::json;

use super::{approvals::ApprovalWriter, error::RequestErrorKind, reader::StoreReader};
use crate::{
    policy::{ApprovedRules, Policy, PolicySettings, Rule},
    view::ApprovalView,
};

const RULE: &str = "shell(chmod -R 777 a)";
const OTHER_RULE: &str = "shell(ls)";
const ALWAYS: PersonAnswer = PersonAnswer::Allow(ApprovalScope::Always);

/// A run that is parked before a dangerous command.
struct Parked {
    runtime: Runtime,
    reader: StoreReader,
    writer: ApprovalWriter,
    approval: ApprovalView,
    state: tempfile::TempDir,
}

impl Parked {
    async fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::default());
        let provider = ScriptedProvider::new(Duration::ZERO, |messages| {
            let has_result = messages.len() > 3;
            Ok(if has_result {
                says("done")
            } else {
                calls(&[("shell", json!({ "command": "chmod -R 777 a" }))])
            })
        });
        let tool = ScriptedTool::fixed("shell", EffectClass::Once, "ran");
        let mut world = world(Arc::clone(&journal), provider, vec![Arc::new(tool)]);
        let settings = PolicySettings { has_approver: true, ..PolicySettings::default() };
        world.policy = Arc::new(Policy::new(settings, state.path()));
        let runtime = Runtime::start(world).await.unwrap();
        let run = runtime.submit(RunRequest::new("go")).await.unwrap().run;
        assert_eq!(runtime.wait_until_ended_or_parked(run).await.unwrap().state, RunState::Parked);
        let reader = StoreReader::new(journal);
        let [approval] = &reader.approvals().await.unwrap()[..] else { panic!("one question") };
        assert_eq!(approval.allow_rules, [RULE.into()]);
        let writer = ApprovalWriter::new(ApprovedRules::new(state.path()));
        Self { approval: approval.clone(), runtime, reader, writer, state }
    }

    async fn answer(&self, answer: PersonAnswer) -> Result<(), (RequestErrorKind, String)> {
        let answered = self.writer.answer(&self.runtime, &self.reader, &self.approval, &answer).await;
        answered.map(drop).map_err(|error| (error.kind, error.text))
    }

    /// Answers for always too late, and checks which rules are left of those that were approved before.
    async fn check_refused(&self, before: &[&str], left: &[&str]) {
        approved(self.state.path()).add(&rules(before)).unwrap();
        let (kind, text) = self.answer(ALWAYS).await.unwrap_err();
        assert!(kind == RequestErrorKind::Usage && text.contains("has no pending approval"), "{text}");
        assert_eq!(*approved(self.state.path()).list().unwrap(), rules(left)[..]);
    }
}

fn approved(state: &Path) -> ApprovedRules {
    ApprovedRules::new(state)
}

fn rules(texts: &[&str]) -> Vec<Rule> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_refused_approval_leaves_no_rule_that_was_not_there_before() {
    // Another person has denied the call.
    let parked = Parked::new().await;
    parked.answer(PersonAnswer::Deny).await.unwrap();
    parked.check_refused(&[], &[]).await;
    parked.check_refused(&[OTHER_RULE], &[OTHER_RULE]).await;
    parked.check_refused(&[RULE], &[OTHER_RULE, RULE]).await;
    // Another person has allowed it once.
    let parked = Parked::new().await;
    parked.answer(PersonAnswer::Allow(ApprovalScope::Once)).await.unwrap();
    parked.check_refused(&[], &[]).await;
    // The run was stopped.
    let parked = Parked::new().await;
    parked.runtime.stop_without_resume(parked.approval.run, StopReason::Command).await.unwrap();
    parked.check_refused(&[], &[]).await;
    // The question has expired.
    let parked = Parked::new().await;
    parked.runtime.wait(parked.approval.run, None).await.unwrap();
    parked.check_refused(&[], &[]).await;
}

#[tokio::test(start_paused = true)]
async fn the_rules_of_a_recorded_approval_stay_when_it_is_given_again() {
    let parked = Parked::new().await;
    parked.answer(ALWAYS).await.unwrap();
    assert_eq!(*approved(parked.state.path()).list().unwrap(), rules(&[RULE])[..]);
    parked.check_refused(&[], &[RULE]).await;
    // It is recorded although its rule is gone: the second person has the same right to it.
    approved(parked.state.path()).remove(&rules(&[RULE])).unwrap();
    parked.check_refused(&[], &[RULE]).await;
}

#[tokio::test(start_paused = true)]
async fn an_approval_whose_rules_cannot_be_written_is_not_recorded() {
    let parked = Parked::new().await;
    let path = parked.state.path().join("approved-rules.json");
    std::fs::write(&path, "{\"allow\"").unwrap();
    let (kind, text) = parked.answer(ALWAYS).await.unwrap_err();
    assert!(kind == RequestErrorKind::Store && text.contains("approved-rules.json: it is damaged"), "{text}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"allow\"", "it is not overwritten");
    let open = parked.reader.approvals().await.unwrap();
    assert_eq!(open, std::slice::from_ref(&parked.approval), "the question is open");
    parked.answer(PersonAnswer::Allow(ApprovalScope::Once)).await.unwrap();
}
