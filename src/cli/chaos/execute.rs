use std::{
    env, fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use hermod_actors::port::Clock;

use super::{
    args::ChaosArgs,
    judge::Counts,
    life::Program,
    look::unusable,
    notes::{Folder, Notes},
    plan::Plan,
    report::Report,
    schedule::Schedule,
    trial::Trial,
};
use crate::{
    cli::{
        exit::{Exit, Failure},
        output::{Status, print, print_json, say},
    },
    clock::{SystemClock, chance},
    environment::Variables,
    files::remove_tree,
};

/// Tests, and says what was found.
pub(crate) async fn execute(args: ChaosArgs, variables: &Variables) -> Result<Exit, Failure> {
    let (folder, mut notes) = match &args.again {
        Some(folder) => {
            let folder = Folder(folder.clone());
            let notes = Notes::read(&folder)?;
            (folder, notes)
        }
        None => test(&args, variables).await?,
    };
    let counts = notes.judge(&folder).await.map_err(|failure| left(failure, &folder))?;
    let mut report = Report { notes, counts, folder: None };
    if args.keep || args.again.is_some() || !report.is_ok() {
        report.folder = Some(folder.0.display().to_string());
    } else if let Err(error) = remove_tree(&folder.0) {
        say(format!("{}: {error}; remove it yourself", folder.0.display()));
    }
    if args.json {
        print_json(&report.json())?;
    } else {
        print(&report.text())?;
    }
    Ok(if report.is_ok() { Exit::Ok } else { Exit::Failed })
}

async fn test(args: &ChaosArgs, variables: &Variables) -> Result<(Folder, Notes), Failure> {
    let exe = env::current_exe().map_err(|error| Failure {
        exit: Exit::Internal,
        text: format!("the file of this program is not known: {error}"),
    })?;
    let seed = args.seed.unwrap_or_else(|| u32::from_le_bytes(chance::<4>()));
    let folder = make_folder(args.dir.as_deref().unwrap_or(&env::temp_dir()), seed)?;
    let script = Plan::new(args.commands).script().to_string();
    fs::write(folder.script(), script).map_err(|error| unusable(&folder.script(), &error))?;
    let notes = Notes {
        seed,
        commands: args.commands,
        durability: args.durability,
        kills: 0,
        starts: 0,
        bad_ends: Vec::new(),
        progress_ms: Vec::new(),
        took_ms: 0,
        counts: Counts::default(),
        books: Vec::new(),
    };
    let program = Program { exe, state: folder.state(), durability: args.durability.name() };
    let (schedule, status) = (Schedule::new(seed), Status::new(variables));
    let mut trial = Trial { folder, program, schedule, notes, status };
    let clock = SystemClock::default();
    let run = trial.run(args.kills, args.runs).await;
    trial.notes.took_ms = clock.monotonic_ms();
    let Trial { folder, notes, .. } = trial;
    run.and_then(|()| notes.write(&folder)).map_err(|failure| left(failure, &folder))?;
    Ok((folder, notes))
}

/// A folder that is new, and for this user alone.
fn make_folder(above: &Path, seed: u32) -> Result<Folder, Failure> {
    let name = format!("hermod-chaos-{}-{seed}", std::process::id());
    let made = above.canonicalize().and_then(|above| {
        let folder: PathBuf = above.join(name);
        fs::DirBuilder::new().mode(0o700).create(&folder).map(|()| Folder(folder))
    });
    made.map_err(|error| {
        Failure::usage(format!("--dir {}: {error}; give a folder to write in", above.display()))
    })
}

/// What the test has come to is left to be looked at.
fn left(failure: Failure, folder: &Folder) -> Failure {
    Failure { text: format!("{failure}; all is left in {}", folder.0.display()), ..failure }
}
