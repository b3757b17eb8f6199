//! Cases of the journal contract: index rows of sessions, runs and models, and their keys.

use super::subject::{Subject, check, index_run, one, record, run, run_row, session, session_row};
use hermod_actors::{
    model::{
        Amounts, ListedLimits, ModelLimits, ModelRef, ModelRow, NewAccount, RunState, SessionId, Timestamp,
        TokenDensity,
    },
    port::{Append, IndexRow, WriteOp, WriteOutcome, WriteRefusal},
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
    let written = journal.batch(batch.map(|append| WriteOp::Append(Box::new(append))).into()).await;
    assert_eq!(written[1], WriteOutcome::Refused(WriteRefusal::Duplicate(run(1))), "also inside a batch");
    assert!(matches!(written[2], WriteOutcome::Appended(_)));
    journal.check_refused(keyed(3, "l", 4), WriteRefusal::Duplicate(run(3))).await;
    journal.reopen();
    let fence = journal.take_over(id).await.incarnation;
    journal.check_refused(Append { fence, ..keyed(3, "k", 5) }, WriteRefusal::Duplicate(run(1))).await;
    let of_key = |n| Some(run_row(n, id, RunState::Queued));
    check(journal.rows().run_of_key("k"), of_key(1)).await;
    check(journal.rows().run_of_key("l"), of_key(3)).await;
    check(journal.rows().run_of_key("m"), None).await;
    check(journal.rows().run(run(2)), None).await;
    journal.check_journal(id, &[record(1), record(2)]).await;
}

pub(super) async fn a_session_key_belongs_to_one_session(journal: Subject) {
    let mut fences = Vec::new();
    for n in 0..4 {
        fences.push(journal.take_over(session(n)).await.incarnation);
    }
    let naming = |n: u128, expected, keys: &[(u128, &str)]| Append {
        index: keys.iter().map(|(of, key)| IndexRow::Session(session_row(*of, key))).collect(),
        ..one(session(n), fences[n as usize], expected)
    };
    let of_key = |key: &str| journal.rows().session_of_key(key);
    let row = |n, key| Some(session_row(n, key));
    journal.append(naming(1, 1, &[(1, "cli:default")])).await;
    journal.append(naming(1, 2, &[(1, "cli:default")])).await;
    journal.check_refused(naming(2, 1, &[(2, "cli:default")]), WriteRefusal::KeyTaken(session(1))).await;
    journal.check_refused(naming(2, 1, &[(2, "x"), (3, "x")]), WriteRefusal::KeyTaken(session(3))).await;
    check(of_key("cli:default"), row(1, "cli:default")).await;
    check(of_key("x"), None).await;
    journal.append(naming(1, 3, &[(1, "moved")])).await;
    journal.append(naming(2, 1, &[(2, "cli:default")])).await;
    check(of_key("moved"), row(1, "moved")).await;
    check(journal.rows().session(session(1)), row(1, "moved")).await;
    check(of_key("cli:default"), row(2, "cli:default")).await;
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
        check(journal.rows().open_runs(), rows).await;
    }
    journal.reopen();
    check(journal.rows().open_runs(), vec![run_row(1, id, RunState::Running)]).await;
    check(journal.rows().run(run(3)), Some(run_row(3, id, RunState::Ended))).await;
}

pub(super) async fn lists_hold_the_youngest_in_order(journal: Subject) {
    let runs: [(u128, SessionId); 4] = [(5, session(1)), (2, session(2)), (9, session(1)), (7, session(2))];
    let fence = journal.take_over(session(4)).await.incarnation;
    let mut index: Vec<_> = runs.iter().map(|(n, of)| index_run(*n, *of, RunState::Queued)).collect();
    index.extend([3, 1, 2].map(|n| IndexRow::Session(session_row(n, &format!("key {n}")))));
    journal.append(Append { index, ..one(session(4), fence, 1) }).await;
    let sessions = |ns: &[u128]| ns.iter().map(|n| session_row(*n, &format!("key {n}"))).collect();
    let rows = |ns: &[u128]| {
        let of = |n: &u128| runs.iter().find(|(run, _)| run == n).expect("a run of this case").1;
        ns.iter().map(|n| run_row(*n, of(n), RunState::Queued)).collect()
    };
    check(journal.rows().sessions(2), sessions(&[2, 3])).await;
    check(journal.rows().sessions(usize::MAX), sessions(&[1, 2, 3])).await;
    check(journal.rows().sessions(0), sessions(&[])).await;
    check(journal.rows().runs(None, 3), rows(&[5, 7, 9])).await;
    check(journal.rows().runs(Some(session(2)), 1), rows(&[7])).await;
    check(journal.rows().runs(Some(session(2)), 5), rows(&[2, 7])).await;
    check(journal.rows().runs(Some(session(3)), 5), rows(&[])).await;
    check(journal.rows().sessions_before(session(3), 1), sessions(&[2])).await;
    check(journal.rows().sessions_before(session(1), 5), sessions(&[])).await;
    check(journal.rows().runs_before(run(9), 2), rows(&[5, 7])).await;
    check(journal.rows().runs_before(run(6), 5), rows(&[2, 5])).await;
    check(journal.rows().runs_before(run(2), 5), rows(&[])).await;
    check(journal.rows().open_runs(), rows(&[2, 5, 7, 9])).await;
}

pub(super) async fn what_is_known_of_models_is_kept(mut journal: Subject) {
    let id = session(1);
    let fence = journal.take_over(id).await.incarnation;
    let model = |name: &str| ModelRef::new("p", name).expect("a model's name");
    let row = |name, density: Option<u16>, window| ModelRow {
        model: model(name),
        density: density.map(TokenDensity::from),
        window,
        listed: window.map(|window| ListedLimits {
            at: Timestamp(1),
            limits: ModelLimits { window: Some(window), max_output: None },
        }),
    };
    let listing = |expected, rows: Vec<ModelRow>| Append {
        index: rows.into_iter().map(IndexRow::Model).collect(),
        ..one(id, fence, expected)
    };
    let all = || ["org/b", "nobody", "a"].map(model).into();
    check(journal.rows().models(all()), Vec::new()).await;
    journal.append(listing(1, vec![row("a", Some(300), None), row("org/b", Some(200), Some(9))])).await;
    // Fields that a row leaves out keep their values, within one append too. A refused append changes nothing.
    journal.append(listing(2, vec![row("a", None, Some(7)), row("a", Some(400), None)])).await;
    let wrong = WriteRefusal::WrongSeq { expected: 9, last: 2 };
    journal.check_refused(listing(9, vec![row("a", Some(500), Some(1))]), wrong).await;
    for _ in 0..2 {
        let rows = vec![row("org/b", Some(200), Some(9)), row("a", Some(400), Some(7))];
        check(journal.rows().models(all()), rows).await;
        check(journal.rows().models(Vec::new()), Vec::new()).await;
        let rows = vec![row("a", Some(400), Some(7)), row("org/b", Some(200), Some(9))];
        check(journal.rows().all_models(), rows).await;
        journal.reopen();
    }
}

pub(super) async fn everything_is_there_after_reopening(mut journal: Subject) {
    let id = session(1);
    let fence = journal.take_over(id).await.incarnation;
    let account = run(1).into();
    let limits = Amounts { iterations: Some(90), usd: Some(u64::MAX), ..Amounts::default() };
    let mut append = Append {
        index: vec![IndexRow::Session(session_row(1, "k")), index_run(1, id, RunState::Running)],
        key: Some(("again".into(), run(1))),
        deliver: vec![(session(2), "{\"said\":\"äöü\"}".into())],
        ..one(id, fence, 1)
    };
    append.ledger.new_accounts.push(NewAccount { id: account, parent: None, limits, owns_iterations: false });
    let accounts = journal.append(append).await.accounts;
    let [(opened, row)] = accounts[..] else { panic!("{accounts:?}") };
    assert_eq!((opened, row.limits), (account, limits));
    for _ in 0..2 {
        journal.reopen();
        let running = || run_row(1, id, RunState::Running);
        journal.check_journal(id, &[record(1)]).await;
        journal.check_account(account, Some(&row)).await;
        journal.check_inbox(session(2), &["{\"said\":\"äöü\"}"]).await;
        check(journal.rows().session_of_key("k"), Some(session_row(1, "k"))).await;
        check(journal.rows().run_of_key("again"), Some(running())).await;
        check(journal.rows().runs(Some(id), 9), vec![running()]).await;
        check(journal.rows().open_runs(), vec![running()]).await;
        assert_eq!(journal.take_over(id).await.last, 1);
    }
}
