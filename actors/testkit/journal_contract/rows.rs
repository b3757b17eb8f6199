use super::subject::{Subject, index_run, one, record, run, run_row, session, session_row};
use crate::{
    model::{
        Amounts, Density, ListedLimits, ModelLimits, ModelRef, ModelRow, NewAccount, RunState, SessionId,
        Timestamp,
    },
    port::{Append, Index, Read, Refusal, Rows, Write, Written},
};

pub(super) async fn a_key_stands_for_one_run(mut journal: Subject) {
    let id = session(1);
    let fence = journal.take_over(id).await.incarnation;
    let keyed = |expected, key: &str, n| Append {
        key: Some((key.into(), run(n))),
        index: vec![index_run(n, id, RunState::Queued)],
        ..one(id, fence, expected)
    };
    let batch = [keyed(1, "k", 1), keyed(2, "k", 2), keyed(2, "l", 3)];
    let written = journal.batch(batch.map(|append| Write::Append(Box::new(append))).into()).await;
    assert_eq!(written[1], Written::Refused(Refusal::Duplicate(run(1))), "also inside a batch");
    assert!(matches!(written[2], Written::Appended(_)));
    journal.check_refused(keyed(3, "l", 4), Refusal::Duplicate(run(3))).await;
    journal.reopen();
    let fence = journal.take_over(id).await.incarnation;
    journal.check_refused(Append { fence, ..keyed(3, "k", 5) }, Refusal::Duplicate(run(1))).await;
    let of_key = |n| Rows::Runs(vec![run_row(n, id, RunState::Queued)]);
    journal.check(Read::RunOfKey("k".into()), of_key(1)).await;
    journal.check(Read::RunOfKey("l".into()), of_key(3)).await;
    journal.check(Read::RunOfKey("m".into()), Rows::Runs(Vec::new())).await;
    journal.check(Read::Run(run(2)), Rows::Runs(Vec::new())).await;
    journal.check_journal(id, &[record(1), record(2)]).await;
}

pub(super) async fn a_session_key_belongs_to_one_session(journal: Subject) {
    let mut fences = Vec::new();
    for n in 0..4 {
        fences.push(journal.take_over(session(n)).await.incarnation);
    }
    let naming = |n: u128, expected, keys: &[(u128, &str)]| Append {
        index: keys.iter().map(|(of, key)| Index::Session(session_row(*of, key))).collect(),
        ..one(session(n), fences[n as usize], expected)
    };
    let of_key = |key: &str| Read::SessionOfKey(key.into());
    let rows = |n, key| Rows::Sessions(vec![session_row(n, key)]);
    journal.append(naming(1, 1, &[(1, "cli:default")])).await;
    journal.append(naming(1, 2, &[(1, "cli:default")])).await;
    journal.check_refused(naming(2, 1, &[(2, "cli:default")]), Refusal::KeyTaken(session(1))).await;
    journal.check_refused(naming(2, 1, &[(2, "x"), (3, "x")]), Refusal::KeyTaken(session(3))).await;
    journal.check(of_key("cli:default"), rows(1, "cli:default")).await;
    journal.check(of_key("x"), Rows::Sessions(Vec::new())).await;
    journal.append(naming(1, 3, &[(1, "moved")])).await;
    journal.append(naming(2, 1, &[(2, "cli:default")])).await;
    journal.check(of_key("moved"), rows(1, "moved")).await;
    journal.check(Read::Session(session(1)), rows(1, "moved")).await;
    journal.check(of_key("cli:default"), rows(2, "cli:default")).await;
}

pub(super) async fn open_runs_follow_their_state(mut journal: Subject) {
    let id = session(1);
    let fence = journal.take_over(id).await.incarnation;
    let states = [
        (1, RunState::Queued),
        (2, RunState::Queued),
        (1, RunState::Running),
        (3, RunState::Ended),
        (2, RunState::Parked),
        (1, RunState::Ended),
        (1, RunState::Running),
        (2, RunState::Ended),
    ];
    let mut open = std::collections::BTreeMap::new();
    for (expected, (n, state)) in (1..).zip(states) {
        let index = vec![index_run(n, id, state)];
        journal.append(Append { index, ..one(id, fence, expected) }).await;
        open.insert(n, state);
        open.retain(|_, state| *state != RunState::Ended);
        let rows = open.iter().map(|(n, state)| run_row(*n, id, *state)).collect();
        journal.check(Read::OpenRuns, Rows::Runs(rows)).await;
    }
    journal.reopen();
    journal.check(Read::OpenRuns, Rows::Runs(vec![run_row(1, id, RunState::Running)])).await;
    journal.check(Read::Run(run(3)), Rows::Runs(vec![run_row(3, id, RunState::Ended)])).await;
}

pub(super) async fn lists_hold_the_youngest_in_order(journal: Subject) {
    let runs: [(u128, SessionId); 4] = [(5, session(1)), (2, session(2)), (9, session(1)), (7, session(2))];
    let fence = journal.take_over(session(4)).await.incarnation;
    let mut index: Vec<_> = runs.iter().map(|(n, of)| index_run(*n, *of, RunState::Queued)).collect();
    index.extend([3, 1, 2].map(|n| Index::Session(session_row(n, &format!("key {n}")))));
    journal.append(Append { index, ..one(session(4), fence, 1) }).await;
    let sessions =
        |ns: &[u128]| Rows::Sessions(ns.iter().map(|n| session_row(*n, &format!("key {n}"))).collect());
    let rows = |ns: &[u128]| {
        let of = |n: &u128| runs.iter().find(|(run, _)| run == n).expect("a run of this case").1;
        Rows::Runs(ns.iter().map(|n| run_row(*n, of(n), RunState::Queued)).collect())
    };
    journal.check(Read::Sessions { max: 2 }, sessions(&[2, 3])).await;
    journal.check(Read::Sessions { max: usize::MAX }, sessions(&[1, 2, 3])).await;
    journal.check(Read::Sessions { max: 0 }, sessions(&[])).await;
    journal.check(Read::Runs { session: None, max: 3 }, rows(&[5, 7, 9])).await;
    journal.check(Read::Runs { session: Some(session(2)), max: 1 }, rows(&[7])).await;
    journal.check(Read::Runs { session: Some(session(2)), max: 5 }, rows(&[2, 7])).await;
    journal.check(Read::Runs { session: Some(session(3)), max: 5 }, rows(&[])).await;
    journal.check(Read::OpenRuns, rows(&[2, 5, 7, 9])).await;
}

pub(super) async fn what_is_known_of_models_is_kept(mut journal: Subject) {
    let id = session(1);
    let fence = journal.take_over(id).await.incarnation;
    let model = |name: &str| ModelRef::new("p", name).expect("a model's name");
    let row = |name, density: Option<u16>, window| ModelRow {
        model: model(name),
        density: density.map(Density::from),
        window,
        listed: window.map(|window| ListedLimits {
            at: Timestamp(1),
            limits: ModelLimits { window: Some(window), max_output: None },
        }),
    };
    let listing = |expected, rows: Vec<ModelRow>| Append {
        index: rows.into_iter().map(Index::Model).collect(),
        ..one(id, fence, expected)
    };
    let all = || Read::Models(["org/b", "nobody", "a"].map(model).into());
    journal.check(all(), Rows::Models(Vec::new())).await;
    journal.append(listing(1, vec![row("a", Some(300), None), row("org/b", Some(200), Some(9))])).await;
    // What a row does not say stays, within one append too; what is refused changes nothing.
    journal.append(listing(2, vec![row("a", None, Some(7)), row("a", Some(400), None)])).await;
    let wrong = Refusal::WrongSeq { expected: 9, last: 2 };
    journal.check_refused(listing(9, vec![row("a", Some(500), Some(1))]), wrong).await;
    for _ in 0..2 {
        let rows = vec![row("org/b", Some(200), Some(9)), row("a", Some(400), Some(7))];
        journal.check(all(), Rows::Models(rows)).await;
        journal.check(Read::Models(Vec::new()), Rows::Models(Vec::new())).await;
        let rows = vec![row("a", Some(400), Some(7)), row("org/b", Some(200), Some(9))];
        journal.check(Read::AllModels, Rows::Models(rows)).await;
        journal.reopen();
    }
}

pub(super) async fn everything_is_there_after_reopening(mut journal: Subject) {
    let id = session(1);
    let fence = journal.take_over(id).await.incarnation;
    let account = run(1).into();
    let limits = Amounts { iterations: Some(90), usd: Some(u64::MAX), ..Amounts::default() };
    let mut append = Append {
        index: vec![Index::Session(session_row(1, "k")), index_run(1, id, RunState::Running)],
        key: Some(("again".into(), run(1))),
        send: vec![(session(2), "{\"said\":\"äöü\"}".into())],
        ..one(id, fence, 1)
    };
    append.ledger.open.push(NewAccount { id: account, parent: None, limits, apart: false });
    let accounts = journal.append(append).await.accounts;
    let [(opened, row)] = accounts[..] else { panic!("{accounts:?}") };
    assert_eq!((opened, row.limits), (account, limits));
    for _ in 0..2 {
        journal.reopen();
        let running = || Rows::Runs(vec![run_row(1, id, RunState::Running)]);
        journal.check_journal(id, &[record(1)]).await;
        journal.check_account(account, Some(&row)).await;
        journal.check_inbox(session(2), &["{\"said\":\"äöü\"}"]).await;
        journal.check(Read::SessionOfKey("k".into()), Rows::Sessions(vec![session_row(1, "k")])).await;
        journal.check(Read::RunOfKey("again".into()), running()).await;
        journal.check(Read::Runs { session: Some(id), max: 9 }, running()).await;
        journal.check(Read::OpenRuns, running()).await;
        assert_eq!(journal.take_over(id).await.last, 1);
    }
}
