//! Runs `hermod chaos`: creates the test's folder, runs the test, checks its runs, and prints the report.

use std::{
    env, fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use hermod_actors::port::Clock;

use super::{
    args::ChaosArgs,
    findings::Findings,
    process::ProgramUnderTest,
    report::ChaosReport,
    schedule::Schedule,
    store_copy::unusable,
    test::ChaosTest,
    test_state::{TestFolder, TestState},
    workload::Workload,
};
use crate::{
    cli::{
        exit::{CliError, Exit},
        output::{StatusLine, print, print_json, print_note},
    },
    clock::{SystemClock, random_bytes},
    discovery::Variables,
    files::remove_tree,
};

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
    fs::write(folder.script(), script).map_err(|error| unusable(&folder.script(), &error))?;
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
    let (schedule, status) = (Schedule::new(seed), StatusLine::new(variables));
    let mut test = ChaosTest { folder, program, schedule, state, status };
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
