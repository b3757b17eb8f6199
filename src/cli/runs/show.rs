//! `hermod runs show`: the details of one run.

use hermod_actors::model::Timestamp;

use super::{duration, state};
use crate::{
    cli::{CliError, format::dollars, print_as, waits},
    clock::{self, rfc3339},
    host::{Identifier, StoreClient},
    view::RunDetailView,
};

/// Shows the run.
pub(super) async fn execute(id: Identifier, json: bool, client: &StoreClient) -> Result<(), CliError> {
    let run = client.run_detail(id.into()).await?;
    print_as(json, &run, |run| format_run(run, clock::now()))
}

fn format_run(detail: &RunDetailView, now: Timestamp) -> String {
    let row = &detail.run;
    let (Some(spec), None) = (&detail.spec, &detail.unreadable) else { return unreadable(detail) };
    let chain: Vec<_> = spec.chain.iter().map(ToString::to_string).collect();
    let cause = row.ended.as_ref().map_or_else(|| state(row), ToString::to_string);
    let cost = match (detail.cost, detail.unpriced.as_slice()) {
        (Some(cost), _) => dollars(cost),
        (None, []) => "not known".to_owned(),
        (None, unpriced) => {
            let unpriced: Vec<_> = unpriced.iter().map(ToString::to_string).collect();
            format!("not known of {}", unpriced.join(", "))
        }
    };
    let legs = if row.legs > 1 { format!("legs        {}\n", row.legs) } else { String::new() };
    let waits: String = detail.waits.iter().map(|wait| waits::format_wait(wait, row.id, now)).collect();
    format!(
        "run         {}\nsession     {}\nagent       {}\nstate       {cause}\n{legs}{waits}accepted    {}\ntook        {}\n\
         iterations  {}\ntokens      {} read, {} written\ncost        {cost}\nmodel       {}\nworkspace   {}\n\ninput:\n{}\n\n\
         said last:\n{}\n",
        row.id,
        row.session,
        row.agent,
        rfc3339(row.accepted_at),
        duration(row),
        row.iterations,
        row.usage.input_tokens,
        row.usage.output_tokens,
        chain.join(", "),
        spec.workspace,
        detail.input,
        detail.last_text.as_deref().unwrap_or("-"),
    )
}

/// A run of which only the index row is readable.
fn unreadable(detail: &RunDetailView) -> String {
    let row = &detail.run;
    format!(
        "run         {}\nsession     {}\nstate       {}\naccepted    {}\ntook        {}\nunreadable  {}\n\
         remedy      `hermod stop {}` ends the run if it is unfinished, `hermod store repair {}` sets its session aside\n",
        row.id,
        row.session,
        row.ended.as_ref().map_or_else(|| state(row), ToString::to_string),
        rfc3339(row.accepted_at),
        duration(row),
        detail.unreadable.as_deref().unwrap_or("what it was given is not known"),
        row.id,
        row.session,
    )
}
