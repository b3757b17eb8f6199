//! What is not needed any more goes.

use super::*;

#[tokio::test]
async fn what_is_forgotten_is_removed_and_ended() {
    let place = Place::new();
    ended(end(place.start("echo out").await).await);
    place.runner.forget(name());
    gone(&place.folder()).await;
    place.left_alone().await;
    place.runner.forget(name());
    gone(&place.folder()).await;
    assert!(is_gone(place.pid("ran")));
    // Nothing is there.
    place.runner.forget(name());
}

#[tokio::test]
async fn whoever_waits_sees_the_commands_of_given_up_runs_ended() {
    let clearings: [fn(&Runner); 2] =
        [|runner| runner.forget(name()), |runner| drop(tokio::spawn(runner.sweep(|_| false)))];
    for clear in clearings {
        let place = Place::new();
        // Nothing is to be cleared yet.
        timeout(SOON, place.runner.wait_cleared()).await.unwrap();
        place.left_alone().await;
        clear(&place.runner.clone());
        timeout(SOON, place.runner.wait_cleared()).await.unwrap();
        assert!(is_gone(place.pid("ran")) && !place.folder().exists());
    }
}

async fn gone(folder: &Path) {
    let start = Instant::now();
    while folder.exists() {
        assert!(start.elapsed() < SOON, "it stays");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn what_ended_runs_left_is_swept() {
    let place = Place::new();
    place.left_alone().await;
    let of = |bits: u128| SpoolName { call: CallId { run: RunId::from_bits(bits), ..name().call }, ..name() };
    let (open, dead) = (place.spool().join(of(8).to_string()), place.spool().join(of(9).to_string()));
    // Whoever removed the last one was killed meanwhile; whether the run is open does not matter.
    let removed = place.spool().join(format!("{}.removed-1-0", of(8)));
    for folder in [&open, &dead, &removed, &place.spool().join("notes")] {
        fs::create_dir(folder).unwrap();
    }
    fs::write(removed.join("task"), "{}").unwrap();
    timeout(SOON, place.runner.sweep(|run| run == RunId::from_bits(8))).await.unwrap();
    let mut left: Vec<_> = fs::read_dir(place.spool()).unwrap().map(|entry| entry.unwrap().path()).collect();
    left.sort();
    assert_eq!(left, [open, place.spool().join("notes")]);
    until("an ended run's command is ended", || is_gone(place.pid("ran")));
    assert_eq!(place.times_run(), 1);
}

#[tokio::test]
async fn the_folder_of_an_attempt_that_was_lost_is_used_again() {
    let place = Place::new();
    place.left_alone().await;
    let first = place.pid("ran");
    let exit = ended(end(place.start("echo again").await).await);
    assert_eq!(told(exit).3, "again\n");
    assert!(is_gone(first));
}
