//! Tells the service manager of the system (systemd) what the process does: `sd_notify(3)`. Without one, nothing is told.

use std::{
    convert::Infallible,
    future,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    sync::Arc,
    time::Duration,
};

use hermod_actors::{Runtime, port::Journal};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::{clock, discovery::Variables};

/// The service manager that has started this process.
#[derive(Debug, Default)]
pub struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// The manager kills the process if it says nothing for so long.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// The manager that the variables name. One that cannot be reached is logged, and told nothing.
    pub fn of(variables: &Variables) -> Self {
        let Some(path) = variables.get("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
            return Self::default();
        };
        let address = match path.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(path),
        };
        match address.and_then(|address| Ok((UnixDatagram::unbound()?, address))) {
            Ok(socket) => Self { socket: Some(socket), watchdog: watchdog(variables) },
            Err(error) => {
                tracing::warn!(socket = path, %error, "the service manager cannot be told anything");
                Self::default()
            }
        }
    }

    /// Clients are served.
    pub fn ready(&self, status: &str) {
        self.notify(&format!("READY=1\nSTATUS={status}"));
    }

    /// The configuration is read again; `ready` follows.
    pub fn reloading(&self) {
        self.notify(&format!("RELOADING=1\nMONOTONIC_USEC={}", clock::monotonic_us()));
    }

    /// The process is about to end.
    pub fn stopping(&self) {
        self.notify("STOPPING=1");
    }

    /// A line for people.
    pub fn status(&self, status: &str) {
        self.notify(&format!("STATUS={status}"));
    }

    /// Tells the manager that the process works, for as long as it does. Without a manager that asks for it, there is no
    /// timer.
    pub async fn keep_alive(&self, runtime: &Runtime, journal: &Arc<dyn Journal>) -> Infallible {
        let Some(limit) = self.watchdog else { return future::pending().await };
        let half = limit / 2;
        let mut ticks = interval(half);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match timeout(half, check(runtime, journal)).await {
                Ok(Ok(())) => self.notify("WATCHDOG=1"),
                Ok(Err(error)) => tracing::error!(error, "the service does not work"),
                Err(_) => tracing::error!("the store's writer or the actors have not answered in {half:?}"),
            }
        }
    }

    fn notify(&self, text: &str) {
        let Some((socket, address)) = &self.socket else { return };
        if let Err(error) = socket.send_to_addr(text.as_bytes(), address) {
            tracing::warn!(%error, text, "the service manager was not told");
        }
    }
}

/// The interval of the watchdog, if it is meant for this process.
fn watchdog(variables: &Variables) -> Option<Duration> {
    let number = |name: &str| variables.get(name).and_then(|value| value.parse::<u64>().ok());
    let is_own = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let us = number("WATCHDOG_USEC").filter(|us| is_own && *us > 0)?;
    Some(Duration::from_micros(us))
}

/// Asks the writer of the store and the supervisors of the actors for a sign of life. A full disk is no fault of the
/// process: a restart would not help.
async fn check(runtime: &Runtime, journal: &Arc<dyn Journal>) -> Result<(), String> {
    runtime.supervision_counts().await.map_err(|error| error.to_string())?;
    if runtime.health_probe().disk_full().is_some() {
        return Ok(());
    }
    // An empty batch passes through the writer, and writes nothing.
    journal.commit(Vec::new()).await.map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager(variables: &[(&str, &str)]) -> ServiceManager {
        let owned = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        ServiceManager::of(&owned.collect())
    }

    #[track_caller]
    fn received(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    fn check_messages(socket: &UnixDatagram, name: &str) {
        let manager = manager(&[("NOTIFY_SOCKET", name)]);
        manager.ready("serves");
        assert_eq!(received(socket), "READY=1\nSTATUS=serves");
        manager.reloading();
        assert!(received(socket).starts_with("RELOADING=1\nMONOTONIC_USEC="));
        manager.status("x");
        manager.stopping();
        assert_eq!([received(socket), received(socket)], ["STATUS=x", "STOPPING=1"]);
    }

    #[test]
    fn a_manager_is_told_at_a_path_and_at_an_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        check_messages(&UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap());
        let name = format!("hermod-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        check_messages(&UnixDatagram::bind_addr(&address).unwrap(), &format!("@{name}"));
    }

    #[test]
    fn nobody_is_told_without_a_manager() {
        for variables in [&[][..], &[("NOTIFY_SOCKET", "")], &[("NOTIFY_SOCKET", "/no/such/socket")]] {
            manager(variables).ready("serves");
        }
    }

    #[test]
    fn the_watchdog_is_this_process_only() {
        let socket = ("NOTIFY_SOCKET", "/run/notify");
        let pid = std::process::id().to_string();
        let check = |variables: &[(&str, &str)], expect: Option<u64>| {
            let watchdog = manager(&[&[socket], variables].concat()).watchdog;
            assert_eq!(watchdog.map(|limit| limit.as_secs()), expect, "{variables:?}");
        };
        check(&[], None);
        check(&[("WATCHDOG_USEC", "30000000")], Some(30));
        check(&[("WATCHDOG_USEC", "30000000"), ("WATCHDOG_PID", &pid)], Some(30));
        check(&[("WATCHDOG_USEC", "30000000"), ("WATCHDOG_PID", "1")], None);
        check(&[("WATCHDOG_USEC", "0")], None);
        check(&[("WATCHDOG_USEC", "soon")], None);
    }
}
