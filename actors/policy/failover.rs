use crate::model::{ModelRef, Timestamp};

/// How a link of the chain stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkAvailability {
    /// It can be asked.
    Available,
    /// It could be, but as many calls are under way as may be.
    AtCapacity,
    /// It could be, but the limits of its account have no room before then.
    RateLimited(Timestamp),
    /// It could be, but nobody has heard of it yet, and as many calls are under way as may be until then.
    WarmingUp,
    /// Somebody finds out just now whether it answers again.
    Probing,
    /// Experience says not to ask it before then.
    BreakerOpen(Timestamp),
    /// It has said that it does not answer before then.
    ClosedByProvider(Timestamp),
    /// There is no such provider here.
    NotConfigured,
}

/// What a call has to do with a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkVisit {
    /// It has not asked it yet.
    First,
    /// It comes back after a pause of its own.
    Return,
}

/// A link that a call may still ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) model: ModelRef,
    pub(crate) visit: LinkVisit,
    /// What an attempt there would reserve.
    pub(crate) tokens: u64,
}

/// Whom to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkChoice {
    /// This link.
    Lease(usize),
    /// This link, when a call there ends.
    Queue(usize),
    /// Whoever can be asked first; at this time at the latest, if one is known, somebody can.
    Wait(Option<Timestamp>),
    /// Nobody, before a time that a provider has named, if ever.
    Unavailable,
}

impl LinkChoice {
    /// The same for whoever waits until `by` at most, if that is given: nobody, if nobody can be asked before.
    pub(crate) fn before_deadline(self, by: Option<Timestamp>) -> Self {
        match self {
            Self::Wait(Some(until)) if by.is_some_and(|by| until > by) => Self::Unavailable,
            Self::Lease(_) | Self::Queue(_) | Self::Wait(_) | Self::Unavailable => self,
        }
    }
}

/// Walks over the links that the call has not given up, in order. Each is asked or has a standing that says why not:
///
/// - the first that lets anybody through is asked, or waited for if it has no room: a fallback is for failures, not for load;
/// - else one to which the call comes back: its own pause is over, and there is nobody else to ask;
/// - else the first change is waited for.
pub(crate) fn choose_link(links: &[(LinkAvailability, LinkVisit)]) -> LinkChoice {
    let open = |(standing, _): &(LinkAvailability, LinkVisit)| {
        matches!(
            standing,
            LinkAvailability::Available
                | LinkAvailability::AtCapacity
                | LinkAvailability::RateLimited(_)
                | LinkAvailability::WarmingUp
        )
    };
    if let Some(link) = links.iter().position(open) {
        return match links[link].0 {
            LinkAvailability::AtCapacity => LinkChoice::Queue(link),
            LinkAvailability::RateLimited(until) => LinkChoice::Wait(Some(until)),
            LinkAvailability::WarmingUp => LinkChoice::Wait(None),
            LinkAvailability::Available
            | LinkAvailability::Probing
            | LinkAvailability::BreakerOpen(_)
            | LinkAvailability::ClosedByProvider(_)
            | LinkAvailability::NotConfigured => LinkChoice::Lease(link),
        };
    }
    if let Some(link) =
        links.iter().position(|link| matches!(link, (LinkAvailability::BreakerOpen(_), LinkVisit::Return)))
    {
        return LinkChoice::Lease(link);
    }
    let changes = |(standing, _): &(LinkAvailability, LinkVisit)| {
        matches!(standing, LinkAvailability::Probing | LinkAvailability::BreakerOpen(_))
    };
    match links.iter().any(changes) {
        true => LinkChoice::Wait(links.iter().filter_map(|(standing, _)| available_from(*standing)).min()),
        false => LinkChoice::Unavailable,
    }
}

/// From when on a link can be asked, if that is known.
pub(crate) const fn available_from(standing: LinkAvailability) -> Option<Timestamp> {
    match standing {
        LinkAvailability::RateLimited(until)
        | LinkAvailability::BreakerOpen(until)
        | LinkAvailability::ClosedByProvider(until) => Some(until),
        LinkAvailability::Available
        | LinkAvailability::AtCapacity
        | LinkAvailability::WarmingUp
        | LinkAvailability::Probing
        | LinkAvailability::NotConfigured => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::*;

    const HELD: LinkAvailability = LinkAvailability::BreakerOpen(Timestamp(30));
    const PACED: LinkAvailability = LinkAvailability::RateLimited(Timestamp(5));
    const SHUT: LinkAvailability = LinkAvailability::ClosedByProvider(Timestamp(90));

    fn check(links: &[(LinkAvailability, LinkVisit)], expect: LinkChoice) {
        assert_eq!(choose_link(links), expect, "{links:?}");
    }

    #[test]
    fn the_first_that_can_is_asked() {
        use LinkAvailability::{AtCapacity, Available, NotConfigured, Probing, WarmingUp};
        use LinkVisit::{First, Return};
        check(&[(Available, First), (Available, First)], LinkChoice::Lease(0));
        check(&[(SHUT, First), (Available, First)], LinkChoice::Lease(1));
        check(
            &[(NotConfigured, First), (HELD, First), (Probing, First), (Available, First)],
            LinkChoice::Lease(3),
        );
        check(&[(AtCapacity, First), (Available, First)], LinkChoice::Queue(0));
        check(&[(HELD, First), (AtCapacity, First)], LinkChoice::Queue(1));
        check(&[(PACED, First), (Available, First)], LinkChoice::Wait(Some(Timestamp(5))));
        check(&[(HELD, First), (PACED, First)], LinkChoice::Wait(Some(Timestamp(5))));
        check(&[(HELD, First), (WarmingUp, First), (Available, First)], LinkChoice::Wait(None));
        // With nobody else to ask, one's own pause counts; but not against what the provider itself has said.
        check(&[(HELD, Return), (SHUT, First)], LinkChoice::Lease(0));
        check(&[(HELD, Return), (Available, First)], LinkChoice::Lease(1));
        check(&[(SHUT, Return)], LinkChoice::Unavailable);
        check(&[(HELD, First), (SHUT, First)], LinkChoice::Wait(Some(Timestamp(30))));
        check(&[(Probing, Return), (SHUT, First)], LinkChoice::Wait(Some(Timestamp(90))));
        check(&[(Probing, First)], LinkChoice::Wait(None));
        check(&[(SHUT, First), (NotConfigured, First)], LinkChoice::Unavailable);
        check(&[(NotConfigured, First)], LinkChoice::Unavailable);
        check(&[], LinkChoice::Unavailable);
    }

    #[test]
    fn whoever_has_no_time_does_not_wait() {
        let check = |next: LinkChoice, by: Option<i64>, expect: LinkChoice| {
            assert_eq!(next.before_deadline(by.map(Timestamp)), expect, "{next:?} by {by:?}");
        };
        let wait = LinkChoice::Wait(Some(Timestamp(30)));
        check(wait, None, wait);
        check(wait, Some(30), wait);
        check(wait, Some(29), LinkChoice::Unavailable);
        check(LinkChoice::Wait(None), Some(0), LinkChoice::Wait(None));
        check(LinkChoice::Lease(1), Some(0), LinkChoice::Lease(1));
        check(LinkChoice::Queue(1), Some(0), LinkChoice::Queue(1));
    }

    fn standing(chance: u8) -> LinkAvailability {
        let until = Timestamp(i64::from(chance));
        match chance % 8 {
            0 => LinkAvailability::Available,
            1 => LinkAvailability::AtCapacity,
            2 => LinkAvailability::Probing,
            3 => LinkAvailability::BreakerOpen(until),
            4 => LinkAvailability::ClosedByProvider(until),
            5 => LinkAvailability::RateLimited(until),
            6 => LinkAvailability::WarmingUp,
            _ => LinkAvailability::NotConfigured,
        }
    }

    proptest! {
        #[test]
        fn nobody_who_can_be_asked_is_passed_over(chance in proptest::collection::vec(any::<(u8, bool)>(), 0..6)) {
            let visit = |again| if again { LinkVisit::Return } else { LinkVisit::First };
            let links: Vec<_> = chance.into_iter().map(|(n, again)| (standing(n), visit(again))).collect();
            let lets = |standing| matches!(standing, LinkAvailability::Available | LinkAvailability::AtCapacity);
            let has_no_room = |standing| matches!(standing, LinkAvailability::RateLimited(_) | LinkAvailability::WarmingUp);
            match choose_link(&links) {
                LinkChoice::Lease(link) | LinkChoice::Queue(link) => {
                    prop_assert!(links[..link].iter().all(|(standing, _)| !lets(*standing)));
                    prop_assert!(!matches!(links[link].0, LinkAvailability::ClosedByProvider(_) | LinkAvailability::NotConfigured | LinkAvailability::Probing));
                }
                LinkChoice::Wait(at) if links.iter().any(|(s, _)| has_no_room(*s)) => {
                    let first = links.iter().find(|(s, _)| lets(*s) || has_no_room(*s));
                    let expect = at.map_or(LinkAvailability::WarmingUp, LinkAvailability::RateLimited);
                    prop_assert_eq!(first.map(|(standing, _)| *standing), Some(expect));
                }
                LinkChoice::Wait(at) => {
                    prop_assert!(links.iter().all(|(standing, _)| !lets(*standing)));
                    prop_assert!(links.iter().filter_map(|(s, _)| available_from(*s)).all(|until| at <= Some(until)));
                }
                LinkChoice::Unavailable => {
                    prop_assert!(links.iter().all(|(s, _)| matches!(s, LinkAvailability::ClosedByProvider(_) | LinkAvailability::NotConfigured)));
                }
            }
        }
    }
}
