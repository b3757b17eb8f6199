//! Hosts as requests name them, and the rules that allow them; pure.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use super::addresses::is_public;

/// The ports of a rule that names none.
const WEB_PORTS: [u16; 2] = [80, 443];
const MAX_NAME_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// A host without its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Host {
    /// A name of the DNS in lower case, without a dot at its end.
    Name(String),
    /// An address; an IPv4 one is never in its IPv6 form.
    Address(IpAddr),
}

impl Host {
    /// Parses a host as URLs have it: an IPv6 address is in brackets. `None` if it is neither a name nor an address in
    /// its usual form. Resolvers also read `127.1` and `0x7f000001`, which are no names.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if let Some(text) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            return text.parse::<Ipv6Addr>().ok().map(|address| Self::Address(address.to_canonical()));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Some(Self::Address(address.into()));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        is_name(&name).then_some(Self::Name(name))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// True for a name whose last label is not a number.
fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=MAX_LABEL_BYTES).contains(&label.len()) && label.bytes().all(is_allowed)
    };
    let is_number = |label: &str| {
        label.bytes().all(|byte| byte.is_ascii_digit())
            || label
                .strip_prefix("0x")
                .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    name.len() <= MAX_NAME_BYTES
        && name.split('.').all(is_label)
        && name.rsplit('.').next().is_some_and(|label| !is_number(label))
}

/// The host and the port of `host[:port]`; `None` if the port is no number from 1 to 65535.
pub(super) fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match text.rsplit_once(':') {
        // The colons in brackets belong to the address.
        Some((_, rest)) if rest.ends_with(']') => (text, None),
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let Some(digits) = port else { return Some((host, None)) };
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let port = digits.parse().ok().filter(|port| is_number && *port > 0)?;
    Some((host, Some(port)))
}

/// What a rule says about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostAccess {
    /// No rule allows the host with this port.
    Refused,
    /// The host is reached at public addresses, and at those that a rule names with this port.
    Public,
    /// The host is reached at any address: a rule names it with this port.
    Any,
}

/// A host, or all hosts below a name, that commands may reach: `example.com`, `*.example.com`, `127.0.0.1:8080`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostRule {
    pattern: HostPattern,
    /// `None` for 80 and 443.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostPattern {
    /// This host.
    Host(Host),
    /// The names that end in this one, and not this one itself.
    Below(String),
}

impl HostRule {
    fn matches(&self, host: &Host, port: u16) -> bool {
        let is_port = self.port.map_or(WEB_PORTS.contains(&port), |own| own == port);
        is_port
            && match (&self.pattern, host) {
                (HostPattern::Host(own), host) => own == host,
                (HostPattern::Below(suffix), Host::Name(name)) => {
                    name.strip_suffix(suffix.as_str()).is_some_and(|start| start.ends_with('.'))
                }
                (HostPattern::Below(_), Host::Address(_)) => false,
            }
    }

    /// True if this rule names exactly this host and port.
    fn names(&self, host: &Host, port: u16) -> bool {
        self.port == Some(port) && matches!(&self.pattern, HostPattern::Host(own) if own == host)
    }

    /// True if this rule is about this machine's loopback.
    fn is_loopback(&self) -> bool {
        match &self.pattern {
            HostPattern::Host(Host::Name(name)) => name == "localhost",
            HostPattern::Host(Host::Address(address)) => address.is_loopback(),
            HostPattern::Below(_) => false,
        }
    }
}

/// What the rules say about a host.
pub(super) fn access(rules: &[HostRule], host: &Host, port: u16) -> HostAccess {
    if rules.iter().any(|rule| rule.names(host, port)) {
        HostAccess::Any
    } else if rules.iter().any(|rule| rule.matches(host, port)) {
        HostAccess::Public
    } else {
        HostAccess::Refused
    }
}

/// True if a rule is about this machine's loopback.
pub(super) fn have_loopback(rules: &[HostRule]) -> bool {
    rules.iter().any(HostRule::is_loopback)
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pattern {
            HostPattern::Host(host) => host.fmt(f),
            HostPattern::Below(suffix) => write!(f, "*.{suffix}"),
        }?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl From<HostRule> for String {
    fn from(rule: HostRule) -> Self {
        rule.to_string()
    }
}

impl TryFrom<String> for HostRule {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// The error names the problem and the remedy.
impl FromStr for HostRule {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err("is empty; give a host, like \"example.com\", or leave it out");
        }
        if text.contains("://") {
            return Err("has a scheme; give the host alone, like \"example.com\" or \"example.com:443\"");
        }
        if text.contains(['/', '?', '#', '@']) {
            return Err(
                "has more than a host and a port; give it without path, query and user, like \"example.com\"",
            );
        }
        if text.parse::<Ipv6Addr>().is_ok() {
            return Err("is an IPv6 address without brackets; give it like \"[::1]:8080\"");
        }
        let (host, port) = split_port(text).ok_or(
            "has a bad port; give a number from 1 to 65535 behind one colon, like \"example.com:443\"",
        )?;
        if host == "*" {
            return Err(
                "allows every host, which is what \"on\" stands for; give hosts, like \"*.example.com\"",
            );
        }
        let (host, is_suffix) = host.strip_prefix("*.").map_or((host, false), |suffix| (suffix, true));
        if host.contains('*') {
            return Err("has a `*` that is not the whole first label; give it like \"*.example.com\"");
        }
        let host = Host::parse(host).ok_or(
            "is no host; give a name like \"example.com\" (an international one as xn--…) or an address",
        )?;
        let pattern = match host {
            Host::Name(name) if is_suffix => HostPattern::Below(name),
            Host::Address(_) if is_suffix => {
                return Err("has a `*` before an address; give the whole address");
            }
            Host::Address(address) if port.is_none() && !is_public(address) => {
                return Err(
                    "is an address of this machine or of its network, which needs its port, like \"127.0.0.1:8080\"",
                );
            }
            host @ (Host::Name(_) | Host::Address(_)) => HostPattern::Host(host),
        };
        Ok(Self { pattern, port })
    }
}

#[cfg(test)]
mod tests {
    use super::{HostAccess::*, *};

    #[test]
    fn hosts_are_read_in_one_form_each() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(Host::parse(text).map(|host| host.to_string()).as_deref(), expected, "{text}");
        };
        check("Example.COM.", Some("example.com"));
        check("localhost", Some("localhost"));
        check("a_b-c.xn--p1ai", Some("a_b-c.xn--p1ai"));
        check("127.0.0.1", Some("127.0.0.1"));
        check("[::1]", Some("[::1]"));
        check("[0:0:0:0:0:0:0:1]", Some("[::1]"));
        check("[::ffff:127.0.0.1]", Some("127.0.0.1"));
        let label = "a".repeat(64);
        let long = ["a"; 128].join(".");
        for text in [
            "",
            ".",
            "a..b",
            ".a",
            "a b",
            "a\0b",
            "ä.de",
            "::1",
            "[::1",
            "[fe80::1%eth0]",
            "[127.0.0.1]",
            "127.1",
            "0x7f.1",
            "0x7f000001",
            "2130706433",
            "1.2.3.256",
            "01.2.3.4",
            "a.1",
            "a.0x1f",
            "*",
            "a/b",
            "u@h",
            "a%2e",
            &label,
            &long,
        ] {
            check(text, None);
        }
    }

    #[test]
    fn a_request_is_judged_by_the_rules() {
        let rules: Vec<HostRule> = [
            "example.com",
            "*.example.com",
            "npm.org:444",
            "*.corp:443",
            "10.0.0.7:5432",
            "localhost:80",
            "[::1]:9",
            "8.8.8.8",
        ]
        .map(|rule| rule.parse().unwrap())
        .into();
        let check = |host: &str, port: u16, expected: HostAccess| {
            assert_eq!(access(&rules, &Host::parse(host).unwrap(), port), expected, "{host}:{port}");
        };
        check("example.com", 443, Public);
        check("EXAMPLE.COM.", 80, Public);
        check("example.com", 22, Refused);
        check("static.example.com", 443, Public);
        check("a.b.example.com", 443, Public);
        check("evilexample.com", 443, Refused);
        check("example.com.evil.org", 443, Refused);
        check("npm.org", 444, Any);
        check("npm.org", 443, Refused);
        check("a.corp", 443, Public);
        check("corp", 443, Refused);
        check("10.0.0.7", 5432, Any);
        check("[::ffff:10.0.0.7]", 5432, Any);
        check("10.0.0.7", 80, Refused);
        check("localhost", 80, Any);
        check("127.0.0.1", 80, Refused);
        check("[::1]", 9, Any);
        check("8.8.8.8", 443, Public);
        assert!(have_loopback(&rules));
        assert!(!have_loopback(&rules[..5]));
    }

    #[test]
    fn a_rule_prints_as_it_was_given() {
        for text in
            ["example.com", "*.example.com", "a.b:1", "127.0.0.1:8080", "[::1]:65535", "[2606:4700::1]"]
        {
            assert_eq!(text.parse::<HostRule>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_bad_rule_names_its_problem() {
        let check = |text: &str, expected: &str| {
            let error = text.parse::<HostRule>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        };
        check("", "is empty");
        check("https://example.com", "has a scheme");
        check("example.com/api", "without path");
        check("example.com?x", "without path");
        check("me@example.com", "user");
        for port in ["", "0", "65536", "x", "+80", "-1", " 80", "8 0"] {
            check(&format!("example.com:{port}"), "bad port");
        }
        check("::1", "without brackets");
        check("fe80::1", "without brackets");
        check("[::1]", "needs its port");
        check("[::1", "is no host");
        check("a:b:80", "is no host");
        check("*", "\"on\"");
        check("*:443", "\"on\"");
        check("a.*.io", "whole first label");
        check("*example.com", "whole first label");
        check("*.*.io", "whole first label");
        check("crates.*", "whole first label");
        check("*.10.0.0.1", "whole address");
        check("*.", "is no host");
        check("crates io", "is no host");
        check("münchen.de", "xn--");
        check("192.168.0.1", "needs its port");
    }
}
