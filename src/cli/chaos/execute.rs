//! Runs `hermod chaos`: its arguments, whose doc comments are the help text. Creates the test's folder, runs the test,
//! checks its runs, and prints the report.

use std::{
    env, fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use clap::{Args, value_parser};
use hermod_actors::port::Clock;

use super::{
    findings::Findings,
    kill_times::KillTimes,
    process::ProgramUnderTest,
    report::ChaosReport,
    test::ChaosTest,
    test_state::{TestFolder, TestState},
    workload::Workload,
};
use crate::{
    cli::{CliError, Exit, output::StatusLine, print, print_json, print_note, run::DurabilityArg},
    clock::{SystemClock, random_bytes},
    discovery::Variables,
    files::{IoResult as _, remove_tree},
};

/// Test this installation: kill it at random instants while it works, and count what was lost or done twice
///
/// In a fresh folder with a store of its own, this program runs scripted tasks whose commands append lines to files. It
/// is killed (SIGKILL) and started again, until in the end all runs go on to their outcome.
#[derive(Debug, Args)]
pub(crate) struct ChaosArgs {
    /// How often it is killed
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = value_parser!(u32).range(1..))]
    kills: u32,
    /// Unfinished runs at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// Commands of each run
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = value_parser!(u32).range(1..=10_000))]
    commands: u32,
    /// Chance for the instants, which are shares of the time that a start takes here [default: any]
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
    /// What an acknowledged write survives; `relaxed` may lose what it has acknowledged, and that is no failure then
    #[arg(long, value_enum, default_value = "strict")]
    durability: DurabilityArg,
    /// Where the fresh folder is made [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Leave the folder there also if all is well
    #[arg(long)]
    keep: bool,
    /// Kill nothing: judge the folder that an earlier test has left once more
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["kills", "runs", "commands", "seed", "durability", "dir", "keep"])]
    again: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs a test, or checks an earlier one again, and prints the findings.
pub(crate) async fn execute(args: ChaosArgs, variables: &Variables) -> Result<Exit, CliError> {
    let (folder, mut state) = match &args.again {
        Some(folder) => {
            let folder = TestFolder(folder.clone());
            let state = TestState::read(&folder)?;
            (folder, state)
        }
        None => run_test(&args, variables).await?,
    };
    let counts = state.check_runs(&folder).await.map_err(|failure| with_folder(failure, &folder))?;
    let mut report = ChaosReport { state, counts, folder: None };
    if args.keep || args.again.is_some() || !report.is_ok() {
        report.folder = Some(folder.0.display().to_string());
    } else if let Err(error) = remove_tree(&folder.0) {
        print_note(format!("{}: {error}; remove it yourself", folder.0.display()));
    }
    if args.json {
        print_json(&report.json())?;
    } else {
        print(&report.text())?;
    }
    Ok(if report.is_ok() { Exit::Ok } else { Exit::Failed })
}

async fn run_test(args: &ChaosArgs, variables: &Variables) -> Result<(TestFolder, TestState), CliError> {
    let exe = env::current_exe()
        .map_err(|error| CliError::internal(format!("the file of this program is not known: {error}")))?;
    let seed = args.seed.unwrap_or_else(|| u32::from_le_bytes(random_bytes::<4>()));
    let folder = make_folder(args.dir.as_deref().unwrap_or(&env::temp_dir()), seed)?;
    let script = Workload::new(args.commands).script().to_string();
    fs::write(folder.script(), script).at(folder.script())?;
    let state = TestState {
        seed,
        commands: args.commands,
        durability: args.durability,
        kills: 0,
        starts: 0,
        abnormal_ends: Vec::new(),
        progress_ms: Vec::new(),
        took_ms: 0,
        counts: Findings::default(),
        journals: Vec::new(),
    };
    let program = ProgramUnderTest { exe, state: folder.state(), durability: args.durability.name() };
    let (kill_times, status) = (KillTimes::new(seed), StatusLine::new(variables));
    let mut test = ChaosTest { folder, program, kill_times, state, status };
    let clock = SystemClock::default();
    let run = test.run(args.kills, args.runs).await;
    test.state.took_ms = clock.monotonic_ms();
    let ChaosTest { folder, state, .. } = test;
    run.and_then(|()| state.write(&folder)).map_err(|failure| with_folder(failure, &folder))?;
    Ok((folder, state))
}

/// Creates a new folder that only this user may enter.
fn make_folder(parent: &Path, seed: u32) -> Result<TestFolder, CliError> {
    let name = format!("hermod-chaos-{}-{seed}", std::process::id());
    let creation = parent.canonicalize().and_then(|parent| {
        let folder: PathBuf = parent.join(name);
        fs::DirBuilder::new().mode(0o700).create(&folder).map(|()| TestFolder(folder))
    });
    creation.map_err(|error| {
        CliError::usage(format!("--dir {}: {error}; give a folder to write in", parent.display()))
    })
}

/// Adds the test's folder, which is kept, to the error.
fn with_folder(failure: CliError, folder: &TestFolder) -> CliError {
    CliError { text: format!("{failure}; all is left in {}", folder.0.display()), ..failure }
}
