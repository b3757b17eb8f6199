//! A ledger that was cut, filled or overwritten, and commands that have removed their folder: none of them is taken for
//! one that was not begun.

use super::*;

impl Place {
    /// Starts a command that removes its folder and waits.
    async fn left_without_folder(&self) {
        drop(self.start(&format!("rm -rf '{}'; {WAITS}", self.folder().display())).await);
        self.begun();
    }

    fn count_running(&self) -> std::io::Result<usize> {
        self.runner.running_commands().map(|running| running.len())
    }
}

#[tokio::test]
async fn a_damaged_ledger_is_not_an_empty_one() {
    for damage in [&b""[..], b"hermod-begun 3 0\n", &[0; 100]] {
        let place = Place::new();
        place.left_without_folder().await;
        assert_eq!(place.count_running().unwrap(), 1);
        fs::write(place.ledger(), damage).unwrap();
        for error in [place.count_running().unwrap_err(), place.runner.end_all().await.unwrap_err()] {
            assert!(error.to_string().contains("the ledger of begun commands is damaged"), "{error}");
        }
        assert!(matches!(place.over(Boot::Same).await, RunnerOutcome::Unknown));
        place.release();
    }
}

#[tokio::test]
async fn what_is_left_of_a_damaged_ledger_is_kept() {
    let place = Place::new();
    place.left_without_folder().await;
    let mut bytes = fs::read(place.ledger()).unwrap();
    bytes[..4].fill(0);
    fs::write(place.ledger(), bytes).unwrap();
    timeout(SOON, place.runner.sweep(|_| true)).await.unwrap();
    assert_eq!(place.count_running().unwrap(), 1);
    ended(stop(place.alive().await).await);
    assert!(is_gone(place.pid("ran")));
}

#[tokio::test]
async fn a_sweep_with_a_ledger_that_cannot_be_read_removes_folders_all_the_same() {
    let place = Place::new();
    place.left_alone().await;
    fs::remove_file(place.ledger()).unwrap();
    fs::create_dir(place.ledger()).unwrap();
    let other = place.spool().join(SpoolName { attempt: 2, ..name() }.to_string() + ".removed-1-0");
    fs::create_dir(&other).unwrap();
    timeout(SOON, place.runner.sweep(|_| false)).await.unwrap();
    assert!(!other.exists());
    place.release();
}

#[tokio::test]
async fn a_sweep_that_shortens_the_ledger_ends_commands_without_a_folder() {
    let place = Place::new();
    place.left_without_folder().await;
    let call = CallId { run: RunId::from_bits(8 | 1 << 127), ..name().call };
    let line = format!("\n{} {} 1\n", SpoolName { call, ..name() }, nobody());
    let long = [fs::read_to_string(place.ledger()).unwrap(), line.repeat(2_000)].concat();
    fs::write(place.ledger(), long).unwrap();
    timeout(SOON, place.runner.sweep(|_| false)).await.unwrap();
    assert!(is_gone(place.pid("ran")));
    assert!(fs::metadata(place.ledger()).unwrap().len() < 1_000);
}
