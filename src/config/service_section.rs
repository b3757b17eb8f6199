//! The section `service`: where `hermod serve` listens, and for which clients.

use std::{net::SocketAddr, path::PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::values::{Flag, PositiveCount};

/// The section `service`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceSection {
    /// Where the service listens.
    pub listen: ListenAddress,
    /// Further names by which clients reach it.
    pub hosts: HostNames,
    /// Most open connections.
    pub connections: PositiveCount,
    /// Whether it serves the dashboard.
    pub dashboard: Flag,
    /// The certificate with which it speaks TLS, and its chain.
    pub tls_certificate: PemPath,
    /// The private key of the certificate.
    pub tls_key: PemPath,
}

impl ServiceSection {
    /// One of the files for TLS that is set without the other: its key, and what is wrong.
    pub(super) const fn incomplete_tls(&self) -> Option<(&'static str, &'static str)> {
        match (&self.tls_certificate.0, &self.tls_key.0) {
            (Some(_), None) => Some((
                "service.tls_certificate",
                "needs its private key too; set service.tls_key to that file",
            )),
            (None, Some(_)) => Some((
                "service.tls_key",
                "needs its certificate too; set service.tls_certificate to that file",
            )),
            (Some(_), Some(_)) | (None, None) => None,
        }
    }
}

/// An address with its port; port 0 takes any free one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct ListenAddress(pub SocketAddr);

/// The absolute path of a PEM file; `None` if the text is empty.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct PemPath(pub Option<PathBuf>);

/// Names of hosts in lower case, each with a port or without.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct HostNames(pub Vec<String>);

impl TryFrom<Value> for ListenAddress {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        let address = value.as_str().and_then(|text| text.parse().ok());
        address.map(Self).ok_or("must be an address with its port, like \"127.0.0.1:7717\" or \"[::1]:7717\"")
    }
}

impl TryFrom<Value> for PemPath {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match value.as_str() {
            Some("") => Ok(Self(None)),
            Some(path) if path.starts_with('/') => Ok(Self(Some(path.into()))),
            Some(_) | None => Err(
                "must be the absolute path of a PEM file, like \"/etc/hermod/tls.pem\", or empty for none",
            ),
        }
    }
}

impl TryFrom<Value> for HostNames {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        const RULE: &str = "must be a list of names without scheme and path, like [\"hermod.example.com\"]";
        let name = |value: &Value| {
            let name = value.as_str()?.to_ascii_lowercase();
            let is_name = !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte));
            is_name.then_some(name)
        };
        let names = match &value {
            // The variable has a text for every form.
            Value::String(text) => text.split(',').map(|name_of| name(&name_of.trim().into())).collect(),
            Value::Array(names) => names.iter().map(name).collect::<Option<Vec<_>>>(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
        };
        names.map(Self).ok_or(RULE)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::PathBuf};

    use crate::config::{Config, ConfigFile};

    #[test]
    fn addresses_and_names_are_checked() {
        let check = |line: &str, expect: Result<(), &str>| {
            let text = format!("[service]\n{line}\n");
            let file = ConfigFile { path: PathBuf::from("config.toml"), text };
            let loaded = Config::load(&[file], &BTreeMap::new());
            match (loaded, expect) {
                (Ok(_), Ok(())) => {}
                (Err(error), Err(part)) => {
                    assert!(error.to_string().starts_with("config.toml:2: service."), "{error}");
                    assert!(error.to_string().contains(part), "{error}");
                }
                (loaded, expect) => panic!("{line}: expected {expect:?}, got {loaded:?}"),
            }
        };
        check("listen = \"0.0.0.0:80\"", Ok(()));
        check("listen = \"[::1]:0\"", Ok(()));
        check("listen = \"localhost:80\"", Err("must be an address with its port"));
        check("listen = 80", Err("must be an address with its port"));
        check("hosts = [\"Hermod.example.com\", \"a:8443\"]", Ok(()));
        check("hosts = [\"https://a\"]", Err("must be a list of names"));
        check("hosts = [\"\"]", Err("must be a list of names"));
        check("connections = 0", Err("connections"));
        check("tls_certificate = \"/a.pem\"\ntls_key = \"/b.pem\"", Ok(()));
        check("tls_certificate = \"\"", Ok(()));
        check("tls_certificate = \"a.pem\"", Err("must be the absolute path of a PEM file"));
        check(
            "tls_certificate = \"/a.pem\"",
            Err("\"/a.pem\": needs its private key too; set service.tls_key"),
        );
        check(
            "tls_key = \"/b.pem\"",
            Err("\"/b.pem\": needs its certificate too; set service.tls_certificate"),
        );
    }
}
