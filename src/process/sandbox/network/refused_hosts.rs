//! What a command could not reach through its proxy. Most clients of tunnels print only the status of a refusal, so these
//! lines are added to what the command has printed.

use std::sync::{Arc, Mutex, PoisonError};

use super::answer::ProxyAnswer;

const MAX_LINES: usize = 10;

/// Different lines about hosts that were refused or not reached, at most ten.
#[derive(Debug, Clone, Default)]
pub(in crate::process::sandbox) struct RefusedHosts(Arc<Mutex<Vec<String>>>);

impl RefusedHosts {
    pub(super) fn add(&self, answer: &ProxyAnswer) {
        let Some(line) = answer.about_host() else { return };
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() < MAX_LINES && !lines.contains(&line) {
            lines.push(line);
        }
    }

    /// All lines as one text.
    pub(in crate::process::sandbox) fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).concat()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::hosts::{Host, HostAccess},
        *,
    };

    #[test]
    fn each_host_is_listed_once_and_not_without_end() {
        let refused = RefusedHosts::default();
        refused.add(&ProxyAnswer::bad_request("x"));
        assert_eq!(refused.text(), "");
        for port in [1, 1, 2].into_iter().chain(3..100) {
            refused.add(&ProxyAnswer::refused(HostAccess::Refused, &Host::parse("a.org").unwrap(), port));
        }
        assert_eq!(refused.text().lines().count(), MAX_LINES);
        assert_eq!(refused.text().matches("not allow a.org:1;").count(), 1);
    }
}
