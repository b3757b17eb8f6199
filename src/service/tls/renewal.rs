//! When the files of a certificate are read again. Pure: it compares stamps, and is told what became of the content.

/// The state of renewal: the stamp of the pair in use, and of a pair that cannot be used. `S` is a stamp of both files.
#[derive(Debug)]
pub(super) struct Renewal<S> {
    used: S,
    refused: Option<RefusedPair<S>>,
}

/// A pair of files that cannot be used.
#[derive(Debug)]
struct RefusedPair<S> {
    stamp: S,
    is_reported: bool,
}

impl<S: PartialEq> Renewal<S> {
    /// The pair with this stamp is in use.
    pub(super) const fn new(used: S) -> Self {
        Self { used, refused: None }
    }

    /// True if the files with the stamp `found` must be read.
    pub(super) fn needs_load(&mut self, found: &S) -> bool {
        if *found == self.used {
            self.refused = None;
            return false;
        }
        !self.refused.as_ref().is_some_and(|refused| refused.is_reported && refused.stamp == *found)
    }

    /// The pair with this stamp is used from now on.
    pub(super) fn on_used(&mut self, stamp: S) {
        *self = Self::new(stamp);
    }

    /// The pair with this stamp cannot be used. True if that must be reported: a pair is refused once in silence, because
    /// the second of its files may be about to be exchanged.
    pub(super) fn on_refused(&mut self, stamp: S) -> bool {
        let is_seen = self.refused.as_ref().is_some_and(|refused| refused.stamp == stamp);
        self.refused = Some(RefusedPair { stamp, is_reported: is_seen });
        is_seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found at one look at the files: their stamp, whether the pair can be used, and what must follow.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Expect {
        NotRead,
        Used,
        Refused,
        Reported,
    }

    #[track_caller]
    fn check(looks: &[(u8, bool, Expect)]) {
        let mut renewal = Renewal::new(0_u8);
        for (index, &(stamp, is_good, expect)) in looks.iter().enumerate() {
            let outcome = match (renewal.needs_load(&stamp), is_good) {
                (false, _) => Expect::NotRead,
                (true, true) => {
                    renewal.on_used(stamp);
                    Expect::Used
                }
                (true, false) if renewal.on_refused(stamp) => Expect::Reported,
                (true, false) => Expect::Refused,
            };
            assert_eq!(outcome, expect, "look {index} of {looks:?}");
        }
    }

    #[test]
    fn changed_files_are_read_once_and_a_bad_pair_is_reported_once() {
        use Expect::{NotRead, Refused, Reported, Used};
        check(&[(0, true, NotRead), (1, true, Used), (1, true, NotRead), (0, true, Used)]);
        check(&[(1, false, Refused), (1, false, Reported), (1, false, NotRead), (2, true, Used)]);
        // The second file comes a moment after the first.
        check(&[(1, false, Refused), (2, true, Used)]);
        // Each further bad pair is reported too.
        check(&[(1, false, Refused), (1, false, Reported), (2, false, Refused), (2, false, Reported)]);
        // The former files are back.
        check(&[(1, false, Refused), (1, false, Reported), (0, true, NotRead), (1, false, Refused)]);
        // What could not be read can be read now, with the same stamp.
        check(&[(1, false, Refused), (1, true, Used)]);
    }
}
