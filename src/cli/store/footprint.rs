//! `hermod store footprint`: prints the disk usage by class, which `maintenance/footprint.rs` measures. Also bytes as
//! text for people.

use clap::Args;
use serde_json::json;

use crate::{
    cli::{
        exit::CliError,
        output::{print, print_json},
        table,
    },
    control::{ClassUsage, ControlRequest, ControlResponse, Footprint},
    discovery::Variables,
    host::{StoreClient, unexpected_response},
};

/// Show what takes up how much room in the state directory
#[derive(Debug, Args)]
pub(crate) struct FootprintArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn execute(args: &FootprintArgs, variables: &Variables) -> Result<(), CliError> {
    let ControlResponse::Footprint(footprint) =
        StoreClient::new(variables)?.request(&ControlRequest::StoreFootprint {}).await?
    else {
        return Err(unexpected_response().into());
    };
    let total: u64 = footprint.classes.iter().map(|usage| usage.bytes).sum();
    if args.json {
        let Footprint { state, classes, store } = footprint;
        return print_json(&json!({ "state": state, "bytes": total, "classes": classes, "store": store }));
    }
    print(&format_footprint(&footprint, total))
}

fn format_footprint(footprint: &Footprint, total: u64) -> String {
    let cells =
        |usage: &ClassUsage| [usage.class.clone(), format_bytes(usage.bytes), usage.files.to_string()];
    let mut rows: Vec<_> = footprint.classes.iter().map(cells).collect();
    let files: u64 = footprint.classes.iter().map(|usage| usage.files).sum();
    rows.push(["all".to_owned(), format_bytes(total), files.to_string()]);
    let store = &footprint.store;
    format!(
        "{}\n{}\n{} sessions, {} runs, {} of them unfinished\nthe store's file: {} records, {} other rows, about {} free\n",
        footprint.state,
        table::render(["CLASS", "BYTES", "FILES"], &rows),
        store.sessions,
        store.runs,
        store.unfinished,
        format_bytes(store.records),
        format_bytes(store.index),
        format_bytes(store.free),
    )
}

/// A number of bytes as text for people, such as `1.5 MiB`.
pub(crate) fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut tenths, mut unit) = (u128::from(bytes) * 10 / 1024, 0);
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        (tenths, unit) = (tenths / 1024, unit + 1);
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::format_bytes;

    #[test]
    fn bytes_have_a_unit() {
        let check = |n, expect: &str| assert_eq!(format_bytes(n), expect);
        check(0, "0 B");
        check(1023, "1023 B");
        check(1024, "1.0 KiB");
        check(1536 * 1024, "1.5 MiB");
        check(1 << 40, "1.0 TiB");
        check(u64::MAX, "16777215.9 TiB");
    }
}
