//! The values of targets of kind `email`.

use lettre::message::{Mailbox, Mailboxes};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

use super::targets_section::TargetSection;
use crate::delivery::is_loopback;

/// Most receivers of one target.
const MAX_RECEIVERS: usize = 50;

/// How the connection to a mail server is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum MailTls {
    /// From its first byte on.
    #[default]
    Implicit,
    /// After the command `STARTTLS`, without which nothing is sent.
    Starttls,
    /// Not at all; only to this machine.
    None,
}

impl MailTls {
    const ALL: [Self; 3] = [Self::Implicit, Self::Starttls, Self::None];

    /// The port of servers without another one.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Implicit => 465,
            Self::Starttls => 587,
            Self::None => 25,
        }
    }
}

/// The name of a kind of encryption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MailTlsName(pub MailTls);

/// The port of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port(pub u16);

/// An address of e-mail, with a name or without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailAddress(pub Mailbox);

/// Addresses of e-mail, at least one.
#[derive(Debug, Clone, PartialEq)]
pub struct MailAddresses(pub Mailboxes);

impl<'de> Deserialize<'de> for MailTlsName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        let found = MailTls::ALL.into_iter().find(|mode| value.as_str() == Some(<&str>::from(*mode)));
        found.map(Self).ok_or_else(|| D::Error::custom("must be \"implicit\", \"starttls\" or \"none\""))
    }
}

impl<'de> Deserialize<'de> for Port {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = Value::deserialize(from)?.as_u64().and_then(|number| u16::try_from(number).ok());
        let port = number.filter(|port| *port > 0);
        port.map(Self)
            .ok_or_else(|| D::Error::custom("must be a whole number from 1 to 65535, without quotes"))
    }
}

impl<'de> Deserialize<'de> for MailAddress {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        mailbox(&Value::deserialize(from)?).map(Self).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for MailAddresses {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        let items = value.as_array().filter(|items| (1..=MAX_RECEIVERS).contains(&items.len()));
        let items = items.ok_or_else(|| {
            D::Error::custom(format!(
                "must be a list of 1 to {MAX_RECEIVERS} addresses, like [\"ops@example.com\"]"
            ))
        })?;
        let all = items.iter().map(mailbox).collect::<Result<Vec<_>, _>>().map_err(D::Error::custom)?;
        Ok(Self(all.into_iter().collect()))
    }
}

fn mailbox(value: &Value) -> Result<Mailbox, String> {
    const RULE: &str = "must be an address, like \"ops@example.com\" or \"Ops <ops@example.com>\"";
    value.as_str().and_then(|text| text.parse().ok()).ok_or_else(|| RULE.to_owned())
}

/// Calls `reject` with each key of a target of kind `email` that does not fit to the others.
pub(super) fn check(section: &TargetSection, mut reject: impl FnMut(&str, String)) {
    let server = section.server.as_ref().map_or("", |server| server.0.as_str());
    if section.mail_tls() == MailTls::None && !is_loopback(server) {
        reject(
            "tls",
            format!("\"none\" is only for this machine, and `{server}` is another one; use \"starttls\""),
        );
    }
    match (&section.user, &section.password) {
        (Some(_), None) => reject("user", "stands without `password`; give both, or none".to_owned()),
        (None, Some(_)) => reject("password", "stands without `user`; give both, or none".to_owned()),
        (Some(_), Some(_)) | (None, None) => {}
    }
}
