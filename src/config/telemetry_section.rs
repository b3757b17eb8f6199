//! The section `telemetry`: where the service exports traces to.

use serde::Deserialize;
use serde_json::Value;

use crate::{provider::check_base_url, secret::Reference};

/// The section `telemetry`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelemetrySection {
    /// The collector, before the path of a signal.
    pub otlp_endpoint: OtlpEndpoint,
    /// Reference to the headers of its requests.
    pub otlp_headers: OtlpHeaders,
}

/// An http or https URL without user, query and fragment; `None` if the text is empty.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct OtlpEndpoint(pub Option<String>);

/// A reference to headers, which are secret; `None` if the text is empty.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct OtlpHeaders(pub Option<Reference>);

impl TryFrom<Value> for OtlpEndpoint {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        const EXAMPLE: &str = "give it as \"http://127.0.0.1:4318\", or \"\" for none";
        let text = value.as_str().ok_or_else(|| format!("must be a text in quotes; {EXAMPLE}"))?;
        if text.is_empty() {
            return Ok(Self(None));
        }
        check_base_url(text).map_err(|reason| format!("{reason}; {EXAMPLE}"))?;
        if text.contains(['?', '#']) {
            return Err(format!("it has more than a path; {EXAMPLE}"));
        }
        Ok(Self(Some(text.to_owned())))
    }
}

impl TryFrom<Value> for OtlpHeaders {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        let text =
            value.as_str().ok_or("must be a text in quotes, like \"env:OTLP_HEADERS\", or \"\" for none")?;
        if text.is_empty() {
            return Ok(Self(None));
        }
        match text.parse()? {
            Reference::Command(_) => {
                Err("must be env:NAME or file:PATH; a command is not run for this".to_owned())
            }
            reference @ (Reference::Variable(_) | Reference::File(_)) => Ok(Self(Some(reference))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::PathBuf};

    use crate::config::{Config, ConfigFile};

    #[test]
    fn endpoints_and_headers_are_checked() {
        let check = |line: &str, expect: Result<(), &str>| {
            let text = format!("[telemetry]\n{line}\n");
            let file = ConfigFile { path: PathBuf::from("config.toml"), text };
            let loaded = Config::load(&[file], &BTreeMap::new());
            match (loaded, expect) {
                (Ok(_), Ok(())) => {}
                (Err(error), Err(part)) => {
                    assert!(error.to_string().starts_with("config.toml:2: telemetry."), "{error}");
                    assert!(error.to_string().contains(part), "{error}");
                    assert!(!error.to_string().contains("hunter2"), "{error}");
                }
                (loaded, expect) => panic!("{line}: expected {expect:?}, got {loaded:?}"),
            }
        };
        check("otlp_endpoint = \"http://127.0.0.1:4318\"", Ok(()));
        check("otlp_endpoint = \"https://collector/otlp/\"", Ok(()));
        check("otlp_endpoint = \"\"", Ok(()));
        check("otlp_endpoint = \"127.0.0.1:4318\"", Err("give it as \"http://127.0.0.1:4318\""));
        check("otlp_endpoint = \"http://me:hunter2@host\"", Err("holds a user or a password"));
        check("otlp_endpoint = \"http://host/?key=hunter2\"", Err("more than a path"));
        check("otlp_endpoint = 4318", Err("text in quotes"));
        check("otlp_headers = \"env:OTLP_HEADERS\"", Ok(()));
        check("otlp_headers = \"file:/etc/hermod/otlp\"", Ok(()));
        check("otlp_headers = \"\"", Ok(()));
        check("otlp_headers = \"authorization=Bearer hunter2\"", Err("does not belong here"));
        check("otlp_headers = \"command:pass otlp\"", Err("a command is not run"));
    }

    #[test]
    fn the_headers_are_among_the_secrets() {
        let variables =
            BTreeMap::from([("HERMOD_TELEMETRY__OTLP_HEADERS".to_owned(), "env:COLLECTOR".to_owned())]);
        let config = Config::load(&[], &variables).unwrap();
        let references: Vec<String> = config.secret_references().map(ToString::to_string).collect();
        assert_eq!(references, ["env:COLLECTOR"]);
    }
}
