//! Failover: chooses the link of a chain for an attempt, from the availability of each link. Pure: it takes no lease
//! and judges no failure.

use crate::model::{ModelRef, Timestamp};

/// Availability of a link of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkAvailability {
    /// A call may start.
    Available,
    /// Up, but all its permits are taken.
    AtCapacity,
    /// Up, but the rate limits of its account admit no call before this time.
    RateLimited(Timestamp),
    /// Up, but without a response so far; the first few calls are under way.
    WarmingUp,
    /// A probe is in flight.
    Probing,
    /// Its breaker is open until this time, after failures.
    BreakerOpen(Timestamp),
    /// The provider reported that it does not answer before this time.
    ClosedByProvider(Timestamp),
    /// The provider is not configured in this process.
    NotConfigured,
}

impl LinkAvailability {
    /// Whether the link answers calls, at once or after calls that are under way.
    pub(crate) const fn is_up(self) -> bool {
        matches!(self, Self::Available | Self::AtCapacity | Self::RateLimited(_) | Self::WarmingUp)
    }
}

/// How a call comes to a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkVisit {
    /// The call has not tried it, or has left it for another link.
    First,
    /// The call has failed there and returns after a pause of its own.
    Return,
}

/// A link that a call may still try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The link's model.
    pub model: ModelRef,
    /// What the call has done with the link so far.
    pub visit: LinkVisit,
    /// Tokens that an attempt there would reserve.
    pub tokens: u64,
}

/// The next step of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkChoice {
    /// Call this link now (index in the list).
    Lease(usize),
    /// Wait in the queue of this link (index in the list) until a call there ends.
    Queue(usize),
    /// Wait for the first change of any link; with a time, a link may be called then at the latest.
    Wait(Option<Timestamp>),
    /// No link may be called soon enough: each is not configured, is closed by its provider, or opens after the
    /// deadline.
    Unavailable,
}

impl LinkChoice {
    /// The same choice for a call that waits until `deadline`: [`Self::Unavailable`] if no link is ready before.
    #[must_use]
    pub fn before_deadline(self, deadline: Option<Timestamp>) -> Self {
        let is_late =
            matches!(self, Self::Wait(Some(until)) if deadline.is_some_and(|deadline| until > deadline));
        if is_late { Self::Unavailable } else { self }
    }
}

/// Chooses among the links that the call has not given up, in order:
///
/// - The first link that is up is called, or waited for while it is busy: a fallback is for failures, not for load.
/// - Otherwise the first link with an open breaker to which the call returns: the call's own pause is over.
/// - Otherwise the call waits, if a probe is in flight or a breaker is open.
/// - Otherwise no link is available.
pub fn choose_link(links: &[(LinkAvailability, LinkVisit)]) -> LinkChoice {
    let choice_of_up = |(link, (availability, _)): (usize, &(LinkAvailability, LinkVisit))| match availability
    {
        LinkAvailability::Available => Some(LinkChoice::Lease(link)),
        LinkAvailability::AtCapacity => Some(LinkChoice::Queue(link)),
        LinkAvailability::RateLimited(until) => Some(LinkChoice::Wait(Some(*until))),
        LinkAvailability::WarmingUp => Some(LinkChoice::Wait(None)),
        LinkAvailability::Probing
        | LinkAvailability::BreakerOpen(_)
        | LinkAvailability::ClosedByProvider(_)
        | LinkAvailability::NotConfigured => None,
    };
    let is_return = |link: &_| matches!(link, (LinkAvailability::BreakerOpen(_), LinkVisit::Return));
    let returned = || links.iter().position(is_return).map(LinkChoice::Lease);
    if let Some(choice) = links.iter().enumerate().find_map(choice_of_up).or_else(returned) {
        return choice;
    }
    let may_open = |(availability, _): &(LinkAvailability, LinkVisit)| {
        matches!(availability, LinkAvailability::Probing | LinkAvailability::BreakerOpen(_))
    };
    match links.iter().any(may_open) {
        true => LinkChoice::Wait(links.iter().filter_map(|(link, _)| available_from(*link)).min()),
        false => LinkChoice::Unavailable,
    }
}

/// The time from which a link may be called; `None` if it may be called now, or if no time is known.
pub const fn available_from(availability: LinkAvailability) -> Option<Timestamp> {
    if let LinkAvailability::RateLimited(until)
    | LinkAvailability::BreakerOpen(until)
    | LinkAvailability::ClosedByProvider(until) = availability
    {
        return Some(until);
    }
    None
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
        // Without another link the call's own pause counts, but not against the provider's own reset time.
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
        let check = |next: LinkChoice, deadline: Option<i64>, expect: LinkChoice| {
            assert_eq!(next.before_deadline(deadline.map(Timestamp)), expect, "{next:?} by {deadline:?}");
        };
        let wait = LinkChoice::Wait(Some(Timestamp(30)));
        check(wait, None, wait);
        check(wait, Some(30), wait);
        check(wait, Some(29), LinkChoice::Unavailable);
        check(LinkChoice::Wait(None), Some(0), LinkChoice::Wait(None));
        check(LinkChoice::Lease(1), Some(0), LinkChoice::Lease(1));
        check(LinkChoice::Queue(1), Some(0), LinkChoice::Queue(1));
    }

    fn availability(chance: u8) -> LinkAvailability {
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
            let links: Vec<_> = chance.into_iter().map(|(n, again)| (availability(n), visit(again))).collect();
            let lets = |availability| matches!(availability, LinkAvailability::Available | LinkAvailability::AtCapacity);
            let has_no_room = |availability| matches!(availability, LinkAvailability::RateLimited(_) | LinkAvailability::WarmingUp);
            match choose_link(&links) {
                LinkChoice::Lease(link) | LinkChoice::Queue(link) => {
                    prop_assert!(links[..link].iter().all(|(availability, _)| !lets(*availability)));
                    prop_assert!(!matches!(links[link].0, LinkAvailability::ClosedByProvider(_) | LinkAvailability::NotConfigured | LinkAvailability::Probing));
                }
                LinkChoice::Wait(at) if links.iter().any(|(s, _)| has_no_room(*s)) => {
                    let first = links.iter().find(|(s, _)| lets(*s) || has_no_room(*s));
                    let expect = at.map_or(LinkAvailability::WarmingUp, LinkAvailability::RateLimited);
                    prop_assert_eq!(first.map(|(availability, _)| *availability), Some(expect));
                }
                LinkChoice::Wait(at) => {
                    prop_assert!(links.iter().all(|(availability, _)| !lets(*availability)));
                    prop_assert!(links.iter().filter_map(|(s, _)| available_from(*s)).all(|until| at <= Some(until)));
                }
                LinkChoice::Unavailable => {
                    prop_assert!(links.iter().all(|(s, _)| matches!(s, LinkAvailability::ClosedByProvider(_) | LinkAvailability::NotConfigured)));
                }
            }
        }
    }
}
