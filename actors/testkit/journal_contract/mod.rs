//! The contract test of every [`Journal`], as one table of cases, and the contract of a journal that fails
//! (`faults.rs`).

mod accounts;
mod appends;
mod faults;
mod feed;
mod inboxes;
mod outbox;
mod rows;
mod schedules;
mod spawned;
mod subject;

use futures::future::LocalBoxFuture;

pub use faults::{FAULTS, fault_contract};
use hermod_actors::port::Journal;
use subject::Subject;

/// Opens one store. The first call finds it empty; each later call finds what was written before. The journal of one
/// call is dropped before the next call.
pub type StoreOpener = Box<dyn FnMut() -> Box<dyn Journal>>;

/// A case, which runs on a store of its own. Panics where the contract is broken.
pub type ContractCase = fn(StoreOpener) -> LocalBoxFuture<'static, ()>;

macro_rules! cases {
    ($($module:ident::$case:ident,)*) => {
        /// All cases, by name.
        pub const CASES: &[(&str, ContractCase)] =
            &[$((stringify!($case), |open| Box::pin($module::$case(Subject::new(open)))),)*];
    };
}

cases! {
    appends::records_come_back_in_a_dense_sequence,
    appends::a_wrong_sequence_is_refused,
    appends::an_older_incarnation_is_fenced,
    appends::a_session_that_is_let_go_is_fenced_until_it_is_opened,
    appends::reopening_fences_the_process_before,
    appends::a_refusal_leaves_no_trace_and_disturbs_nobody,
    appends::an_append_of_nothing_is_malformed,
    appends::what_cannot_be_read_back_is_not_written,
    appends::large_records_come_back,
    appends::reads_never_show_half_an_append,
    accounts::a_ledger_counts_on_all_ancestors,
    accounts::what_does_not_fit_is_refused_with_its_numbers,
    accounts::what_exceeds_is_booked_and_refunded,
    accounts::a_raise_makes_room_on_one_account,
    accounts::an_account_of_a_period_is_opened_once_and_limited_anew,
    accounts::iterations_that_are_apart_go_no_further_up,
    accounts::an_unknown_account_is_malformed,
    spawned::sessions_that_another_one_begins_are_there,
    spawned::a_session_that_is_only_open_can_be_begun,
    spawned::what_cannot_begin_leaves_no_trace,
    feed::all_sessions_are_in_one_order,
    inboxes::items_wait_until_they_are_taken,
    inboxes::only_rows_that_wait_can_be_taken,
    inboxes::rows_can_be_taken_without_a_record,
    inboxes::a_session_with_something_in_its_inbox_is_not_let_go,
    inboxes::numbers_are_never_used_again,
    outbox::messages_wait_in_their_order,
    outbox::a_refused_append_sends_nothing,
    outbox::a_delivery_ends_once_and_a_dead_one_can_be_retried,
    rows::a_key_stands_for_one_run,
    rows::a_session_key_belongs_to_one_session,
    rows::open_runs_follow_their_state,
    rows::lists_hold_the_youngest_in_order,
    rows::what_is_known_of_models_is_kept,
    rows::everything_is_there_after_reopening,
    schedules::a_schedule_is_replaced_by_its_revision,
    schedules::schedules_are_bounded,
    schedules::an_occurrence_has_one_row,
    schedules::occurrences_are_listed_from_the_newest_on,
    schedules::the_newest_occurrences_are_kept,
    schedules::the_notice_of_a_pause_waits_in_the_outbox,
}

/// Runs all cases, each on a new store from `make`. Panics where the contract is broken.
pub async fn journal_contract(mut make: impl FnMut() -> StoreOpener) {
    for (name, case) in CASES {
        tracing::info!(name, "journal contract");
        case(make()).await;
    }
}
