//! Which addresses are public, and which of a host a connection may use.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs},
    sync::Arc,
    thread,
};

use tokio::sync::{Semaphore, oneshot};

use super::hosts::{Host, HostAccess, HostRule, access};

/// Names that are resolved at the same time. Each has a thread, which the system's resolver may hold for a minute.
const MAX_LOOKUPS: usize = 16;

/// True for an address that belongs to no private, local or reserved range. Ranges for documentation and tests are public
/// here: nothing local has them, and some networks lead names of the internet to them.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_reserved = match a {
        // "This host", private, loopback, multicast and reserved.
        0 | 10 | 127 | 224.. => true,
        // Shared by a carrier's customers, and used by virtual networks.
        100 => (64..128).contains(&b),
        169 => b == 254,
        172 => (16..32).contains(&b),
        192 => b == 168 || (b, c) == (0, 0),
        _ => false,
    };
    !is_reserved
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // Translation to IPv4, and 6to4.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => embedded(high, low),
        // Protocols such as Teredo.
        [0x2001, 0..=0x1ff, ..] => false,
        // All that is assigned to hosts of the internet.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

/// Why a host has no address for a connection.
#[derive(Debug)]
pub(super) enum AddressError {
    /// No rule allows the host, or an address that its name leads to.
    Refused(HostAccess),
    /// The system's resolver knows no address.
    Lookup(io::Error),
}

/// Resolves the names of hosts that rules allow.
#[derive(Debug)]
pub(super) struct Resolver {
    rules: Vec<HostRule>,
    lookups: Arc<Semaphore>,
}

impl Resolver {
    pub(super) fn new(rules: Vec<HostRule>) -> Self {
        Self { rules, lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)) }
    }

    /// The addresses to which a connection may be made, at least one. A name is resolved only if a rule allows it.
    pub(super) async fn addresses(&self, host: &Host, port: u16) -> Result<Vec<SocketAddr>, AddressError> {
        let judged = access(&self.rules, host, port);
        if judged == HostAccess::Refused {
            return Err(AddressError::Refused(judged));
        }
        let mut addresses = match host {
            Host::Address(address) => vec![SocketAddr::new(*address, port)],
            Host::Name(name) => self.lookup(name.clone(), port).await.map_err(AddressError::Lookup)?,
        };
        if judged != HostAccess::Any {
            addresses.retain(|address| self.may_reach(address.ip(), port));
        }
        if addresses.is_empty() { Err(AddressError::Refused(judged)) } else { Ok(addresses) }
    }

    fn may_reach(&self, address: IpAddr, port: u16) -> bool {
        let host = Host::Address(address.to_canonical());
        is_public(address) || access(&self.rules, &host, port) == HostAccess::Any
    }

    /// Not on a blocking thread of the runtime: its end would wait for them.
    async fn lookup(&self, name: String, port: u16) -> io::Result<Vec<SocketAddr>> {
        let permit = Arc::clone(&self.lookups).acquire_owned().await.map_err(io::Error::other)?;
        let (sender, receiver) = oneshot::channel();
        thread::Builder::new().name("resolver".into()).spawn(move || {
            let addresses = (name.as_str(), port).to_socket_addrs().map(Iterator::collect);
            drop(permit);
            // The connection may be gone.
            let (Ok(()) | Err(_)) = sender.send(addresses);
        })?;
        let addresses: Vec<_> = receiver.await.map_err(io::Error::other)??;
        if addresses.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(addresses) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_and_reserved_addresses_are_not_public() {
        for text in [
            "1.1.1.1",
            "192.0.2.1",
            "198.18.0.1",
            "203.0.113.1",
            "2001:db8::1",
            "8.8.8.8",
            "100.63.0.1",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.167.0.1",
            "192.0.1.1",
            "169.253.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "64:ff9b::101:101",
            "2002:101:101::1",
        ] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.168.1.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "5f00::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[tokio::test]
    async fn a_name_leads_to_local_addresses_only_if_a_rule_names_them() {
        let check = async |rules: &[&str],
                           host: &str,
                           port: u16,
                           expected: Result<(), Option<HostAccess>>| {
            let resolver = Resolver::new(rules.iter().map(|rule| rule.parse().unwrap()).collect());
            let result = match resolver.addresses(&Host::parse(host).unwrap(), port).await {
                Ok(addresses) => {
                    assert!(
                        addresses.iter().all(|address| address.ip().is_loopback() && address.port() == port)
                    );
                    Ok(())
                }
                Err(AddressError::Refused(access)) => Err(Some(access)),
                Err(AddressError::Lookup(_)) => Err(None),
            };
            assert_eq!(result, expected, "{rules:?} {host}:{port}");
        };
        let (refused, public) = (Err(Some(HostAccess::Refused)), Err(Some(HostAccess::Public)));
        check(&["localhost:80"], "localhost", 80, Ok(())).await;
        check(&["localhost"], "localhost", 80, public).await;
        check(&["localhost", "127.0.0.1:80", "[::1]:80"], "localhost", 80, Ok(())).await;
        check(&["localhost", "127.0.0.1:81"], "localhost", 80, public).await;
        check(&["localhost:80"], "localhost", 81, refused).await;
        check(&["127.0.0.1:81"], "127.0.0.1", 81, Ok(())).await;
        check(&["127.0.0.1:81"], "127.0.0.2", 81, refused).await;
        check(&["no-such-name.invalid"], "no-such-name.invalid", 80, Err(None)).await;
        check(&[], "localhost", 80, refused).await;
    }
}
