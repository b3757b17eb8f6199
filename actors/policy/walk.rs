use crate::model::{ModelRef, Timestamp};

/// How a link of the chain stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It can be asked.
    Free,
    /// It could be, but as many calls are under way as may be.
    Full,
    /// It could be, but the limits of its account have no room before then.
    Paced(Timestamp),
    /// It could be, but nobody has heard of it yet, and as many calls are under way as may be until then.
    Starting,
    /// Somebody finds out just now whether it answers again.
    Probing,
    /// Experience says not to ask it before then.
    Held(Timestamp),
    /// It has said that it does not answer before then.
    Shut(Timestamp),
    /// There is no such provider here.
    Absent,
}

/// What a call has to do with a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visit {
    /// It has not asked it yet.
    First,
    /// It comes back after a pause of its own.
    Again,
}

/// A link that a call may still ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) model: ModelRef,
    pub(crate) visit: Visit,
    /// What an attempt there would reserve.
    pub(crate) tokens: u64,
}

/// Whom to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// This link.
    Lease(usize),
    /// This link, when a call there ends.
    Queue(usize),
    /// Whoever can be asked first; at this time at the latest, if one is known, somebody can.
    Wait(Option<Timestamp>),
    /// Nobody, before a time that a provider has named, if ever.
    Nobody,
}

impl Next {
    /// The same for whoever waits until `by` at most, if that is given: nobody, if nobody can be asked before.
    pub(crate) fn by(self, by: Option<Timestamp>) -> Self {
        match self {
            Self::Wait(Some(until)) if by.is_some_and(|by| until > by) => Self::Nobody,
            Self::Lease(_) | Self::Queue(_) | Self::Wait(_) | Self::Nobody => self,
        }
    }
}

/// Walks over the links that the call has not given up, in order. Each is asked or has a standing that says why not:
///
/// - the first that lets anybody through is asked, or waited for if it has no room: a fallback is for failures, not for load;
/// - else one to which the call comes back: its own pause is over, and there is nobody else to ask;
/// - else the first change is waited for.
pub(crate) fn next(links: &[(Standing, Visit)]) -> Next {
    let open = |(standing, _): &(Standing, Visit)| {
        matches!(standing, Standing::Free | Standing::Full | Standing::Paced(_) | Standing::Starting)
    };
    if let Some(link) = links.iter().position(open) {
        return match links[link].0 {
            Standing::Full => Next::Queue(link),
            Standing::Paced(until) => Next::Wait(Some(until)),
            Standing::Starting => Next::Wait(None),
            Standing::Free | Standing::Probing | Standing::Held(_) | Standing::Shut(_) | Standing::Absent => {
                Next::Lease(link)
            }
        };
    }
    if let Some(link) = links.iter().position(|link| matches!(link, (Standing::Held(_), Visit::Again))) {
        return Next::Lease(link);
    }
    let changes =
        |(standing, _): &(Standing, Visit)| matches!(standing, Standing::Probing | Standing::Held(_));
    match links.iter().any(changes) {
        true => Next::Wait(links.iter().filter_map(|(standing, _)| until(*standing)).min()),
        false => Next::Nobody,
    }
}

/// From when on a link can be asked, if that is known.
pub(crate) const fn until(standing: Standing) -> Option<Timestamp> {
    match standing {
        Standing::Paced(until) | Standing::Held(until) | Standing::Shut(until) => Some(until),
        Standing::Free | Standing::Full | Standing::Starting | Standing::Probing | Standing::Absent => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::*;

    const HELD: Standing = Standing::Held(Timestamp(30));
    const PACED: Standing = Standing::Paced(Timestamp(5));
    const SHUT: Standing = Standing::Shut(Timestamp(90));

    fn check(links: &[(Standing, Visit)], expect: Next) {
        assert_eq!(next(links), expect, "{links:?}");
    }

    #[test]
    fn the_first_that_can_is_asked() {
        use Standing::{Absent, Free, Full, Probing, Starting};
        use Visit::{Again, First};
        check(&[(Free, First), (Free, First)], Next::Lease(0));
        check(&[(SHUT, First), (Free, First)], Next::Lease(1));
        check(&[(Absent, First), (HELD, First), (Probing, First), (Free, First)], Next::Lease(3));
        check(&[(Full, First), (Free, First)], Next::Queue(0));
        check(&[(HELD, First), (Full, First)], Next::Queue(1));
        check(&[(PACED, First), (Free, First)], Next::Wait(Some(Timestamp(5))));
        check(&[(HELD, First), (PACED, First)], Next::Wait(Some(Timestamp(5))));
        check(&[(HELD, First), (Starting, First), (Free, First)], Next::Wait(None));
        // With nobody else to ask, one's own pause counts; but not against what the provider itself has said.
        check(&[(HELD, Again), (SHUT, First)], Next::Lease(0));
        check(&[(HELD, Again), (Free, First)], Next::Lease(1));
        check(&[(SHUT, Again)], Next::Nobody);
        check(&[(HELD, First), (SHUT, First)], Next::Wait(Some(Timestamp(30))));
        check(&[(Probing, Again), (SHUT, First)], Next::Wait(Some(Timestamp(90))));
        check(&[(Probing, First)], Next::Wait(None));
        check(&[(SHUT, First), (Absent, First)], Next::Nobody);
        check(&[(Absent, First)], Next::Nobody);
        check(&[], Next::Nobody);
    }

    #[test]
    fn whoever_has_no_time_does_not_wait() {
        let check = |next: Next, by: Option<i64>, expect: Next| {
            assert_eq!(next.by(by.map(Timestamp)), expect, "{next:?} by {by:?}");
        };
        let wait = Next::Wait(Some(Timestamp(30)));
        check(wait, None, wait);
        check(wait, Some(30), wait);
        check(wait, Some(29), Next::Nobody);
        check(Next::Wait(None), Some(0), Next::Wait(None));
        check(Next::Lease(1), Some(0), Next::Lease(1));
        check(Next::Queue(1), Some(0), Next::Queue(1));
    }

    fn standing(chance: u8) -> Standing {
        let until = Timestamp(i64::from(chance));
        match chance % 8 {
            0 => Standing::Free,
            1 => Standing::Full,
            2 => Standing::Probing,
            3 => Standing::Held(until),
            4 => Standing::Shut(until),
            5 => Standing::Paced(until),
            6 => Standing::Starting,
            _ => Standing::Absent,
        }
    }

    proptest! {
        #[test]
        fn nobody_who_can_be_asked_is_passed_over(chance in proptest::collection::vec(any::<(u8, bool)>(), 0..6)) {
            let visit = |again| if again { Visit::Again } else { Visit::First };
            let links: Vec<_> = chance.into_iter().map(|(n, again)| (standing(n), visit(again))).collect();
            let lets = |standing| matches!(standing, Standing::Free | Standing::Full);
            let has_no_room = |standing| matches!(standing, Standing::Paced(_) | Standing::Starting);
            match next(&links) {
                Next::Lease(link) | Next::Queue(link) => {
                    prop_assert!(links[..link].iter().all(|(standing, _)| !lets(*standing)));
                    prop_assert!(!matches!(links[link].0, Standing::Shut(_) | Standing::Absent | Standing::Probing));
                }
                Next::Wait(at) if links.iter().any(|(s, _)| has_no_room(*s)) => {
                    let first = links.iter().find(|(s, _)| lets(*s) || has_no_room(*s));
                    let expect = at.map_or(Standing::Starting, Standing::Paced);
                    prop_assert_eq!(first.map(|(standing, _)| *standing), Some(expect));
                }
                Next::Wait(at) => {
                    prop_assert!(links.iter().all(|(standing, _)| !lets(*standing)));
                    prop_assert!(links.iter().filter_map(|(s, _)| until(*s)).all(|until| at <= Some(until)));
                }
                Next::Nobody => {
                    prop_assert!(links.iter().all(|(s, _)| matches!(s, Standing::Shut(_) | Standing::Absent)));
                }
            }
        }
    }
}
