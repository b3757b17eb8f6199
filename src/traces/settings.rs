//! Where traces go: the section `telemetry`, and the variables that OpenTelemetry defines for all programs.

use http::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

use crate::{
    config::Config,
    discovery::Variables,
    provider::check_base_url,
    redaction,
    secret::{Secret, redacted_url},
};

/// The path of traces behind the address of a collector.
const TRACES_PATH: &str = "/v1/traces";
/// The variable with the address of a collector.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// The variable with the address for traces, whole.
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
/// The variables with headers, the preferred first.
const HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
/// The variables with the protocol, the preferred first.
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
/// The only protocol.
const PROTOCOL: &str = "http/protobuf";
/// The setting with the headers.
const HEADERS_SETTING: &str = "telemetry.otlp_headers";

/// Where traces go, and as whose.
#[derive(Debug, Clone)]
pub struct OtlpSettings {
    /// The URL for traces.
    pub url: String,
    /// Headers of the requests.
    pub headers: Vec<(HeaderName, Secret)>,
    /// Attributes of the service, its name first.
    pub resource: Vec<(String, String)>,
}

impl OtlpSettings {
    /// The settings that hold; `None` if no address is configured, or the export is turned off. The error says what cannot
    /// be used, and contains no value that may be secret. The headers become known to this process's redaction.
    pub fn resolve(config: &Config, variables: &Variables) -> Result<Option<Self>, String> {
        let is =
            |name: &str, value: &str| set(variables, name).is_some_and(|set| set.eq_ignore_ascii_case(value));
        if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
            return Ok(None);
        }
        let Some(url) = url(config, variables)? else { return Ok(None) };
        if let Some((name, other)) = first_set(variables, &PROTOCOLS).filter(|(_, value)| *value != PROTOCOL)
        {
            return Err(format!("{name} is `{other}`, and only {PROTOCOL} is spoken"));
        }
        let (origin, headers) = headers(config, variables)?;
        Ok(Some(Self { url, headers: parse_headers(&origin, &headers)?, resource: resource(variables)? }))
    }

    /// The URL without secrets, for messages.
    pub fn redacted_url(&self) -> String {
        redacted_url(&self.url)
    }
}

/// The value of a variable that is not empty.
fn set<'v>(variables: &'v Variables, name: &str) -> Option<&'v str> {
    variables.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
}

fn first_set<'v>(variables: &'v Variables, names: &[&'static str]) -> Option<(&'static str, &'v str)> {
    names.iter().find_map(|name| Some((*name, set(variables, name)?)))
}

fn url(config: &Config, variables: &Variables) -> Result<Option<String>, String> {
    let of_collector = |address: &str| format!("{}{TRACES_PATH}", address.trim_end_matches('/'));
    if let Some(address) = &config.telemetry.otlp_endpoint.0 {
        return Ok(Some(of_collector(address)));
    }
    let (name, url) = match (set(variables, TRACES_ENDPOINT), set(variables, ENDPOINT)) {
        (Some(url), _) => (TRACES_ENDPOINT, url.to_owned()),
        (None, Some(address)) if address.contains(['?', '#']) => {
            return Err(format!("{ENDPOINT} has more than a path; {TRACES_ENDPOINT} may have"));
        }
        (None, Some(address)) => (ENDPOINT, of_collector(address)),
        (None, None) => return Ok(None),
    };
    check_base_url(&url).map_err(|reason| format!("{name}: {reason}"))?;
    redaction::learn_url(name, &url);
    Ok(Some(url))
}

/// The headers as text, and where they come from.
fn headers(config: &Config, variables: &Variables) -> Result<(String, String), String> {
    if let Some(reference) = &config.telemetry.otlp_headers.0 {
        let secret =
            reference.resolve(variables).map_err(|missing| format!("{HEADERS_SETTING}: {missing}"))?;
        return Ok((reference.to_string(), secret.reveal().to_owned()));
    }
    let (name, headers) = first_set(variables, &HEADERS).unwrap_or_default();
    Ok((name.to_owned(), headers.to_owned()))
}

fn parse_headers(origin: &str, text: &str) -> Result<Vec<(HeaderName, Secret)>, String> {
    let mut headers = Vec::new();
    for (at, (name, value)) in pairs(origin, text)?.into_iter().enumerate() {
        let wrong = |what: &str| format!("{origin}: the {what} of header {} cannot be sent", at + 1);
        let name = HeaderName::try_from(name).map_err(|_| wrong("name"))?;
        HeaderValue::try_from(&value).map_err(|_| wrong("value"))?;
        // Of `Bearer TOKEN`, the token is found without the first word too.
        for part in [value.as_str(), value.rsplit(' ').next().unwrap_or_default()] {
            redaction::learn_variable(HEADERS_SETTING, part);
        }
        headers.push((name, Secret::new(value)));
    }
    Ok(headers)
}

fn resource(variables: &Variables) -> Result<Vec<(String, String)>, String> {
    const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
    const SERVICE: &str = "service.name";
    let mut attributes = pairs(ATTRIBUTES, set(variables, ATTRIBUTES).unwrap_or_default())?;
    let named = attributes.iter().position(|(key, _)| key == SERVICE).map(|at| attributes.remove(at).1);
    let name = set(variables, "OTEL_SERVICE_NAME").map(str::to_owned).or(named);
    attributes.insert(0, (SERVICE.to_owned(), name.unwrap_or_else(|| "hermod".to_owned())));
    if !attributes.iter().any(|(key, _)| key == "service.version") {
        attributes.push(("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
    }
    Ok(attributes)
}

/// The pairs of `key=value,key=value`, whose values may be percent-encoded. The error names no value.
fn pairs(origin: &str, text: &str) -> Result<Vec<(String, String)>, String> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let pair = |part: &str| {
        let (key, value) = part.split_once('=').map(|(key, value)| (key.trim(), value.trim()))?;
        let value = percent_decode_str(value).decode_utf8().ok()?;
        (!key.is_empty()).then(|| (key.to_owned(), value.into_owned()))
    };
    let wrong =
        |at: usize| format!("{origin}: part {} is not `name=value`; separate parts by commas", at + 1);
    parts.enumerate().map(|(at, part)| pair(part).ok_or_else(|| wrong(at))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(variables: &[(&str, &str)]) -> Result<Option<OtlpSettings>, String> {
        let owned = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let variables: Variables = owned.collect();
        OtlpSettings::resolve(&Config::load(&[], &variables).unwrap(), &variables)
    }

    #[test]
    fn the_address_is_that_of_the_configuration_or_of_the_standard_variables() {
        let check = |variables: &[(&str, &str)], expect: Option<&str>| {
            let settings = resolve(variables).unwrap();
            assert_eq!(settings.as_ref().map(|settings| settings.url.as_str()), expect, "{variables:?}");
        };
        let own = ("HERMOD_TELEMETRY__OTLP_ENDPOINT", "http://own:4318/");
        check(&[], None);
        check(&[own], Some("http://own:4318/v1/traces"));
        check(&[(ENDPOINT, "http://c:4318/otlp")], Some("http://c:4318/otlp/v1/traces"));
        check(&[(ENDPOINT, "http://c:4318"), (TRACES_ENDPOINT, "http://t/in")], Some("http://t/in"));
        check(&[own, (TRACES_ENDPOINT, "http://t/in")], Some("http://own:4318/v1/traces"));
        check(&[own, ("OTEL_SDK_DISABLED", "TRUE")], None);
        check(&[own, ("OTEL_SDK_DISABLED", "false")], Some("http://own:4318/v1/traces"));
        check(&[own, ("OTEL_TRACES_EXPORTER", "none")], None);
        check(&[(ENDPOINT, "")], None);
    }

    #[test]
    fn headers_and_attributes_are_lists_of_pairs() {
        let settings = resolve(&[
            (ENDPOINT, "http://c:4318"),
            (HEADERS[1], " authorization=Bearer%20abc+/=, X-Tenant = one ,"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=prod,service.name=other"),
            ("OTEL_SERVICE_NAME", "agents"),
        ]);
        let settings = settings.unwrap().unwrap();
        let headers: Vec<_> =
            settings.headers.iter().map(|(name, value)| (name.as_str(), value.reveal())).collect();
        assert_eq!(headers, [("authorization", "Bearer abc+/="), ("x-tenant", "one")]);
        let resource: Vec<_> =
            settings.resource.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            resource,
            [
                ("service.name", "agents"),
                ("deployment.environment.name", "prod"),
                ("service.version", version)
            ]
        );
        assert_eq!(resolve(&[(ENDPOINT, "http://c")]).unwrap().unwrap().resource[0].1, "hermod");
    }

    #[test]
    fn headers_of_the_configuration_are_a_reference() {
        let own = [
            ("HERMOD_TELEMETRY__OTLP_ENDPOINT", "http://own"),
            ("HERMOD_TELEMETRY__OTLP_HEADERS", "env:COLLECTOR"),
            (HEADERS[0], "x-from=standard"),
        ];
        let error = resolve(&own).unwrap_err();
        assert!(error.starts_with("telemetry.otlp_headers: env:COLLECTOR: "), "{error}");
        let settings = resolve(&[&own[..], &[("COLLECTOR", "x-from=own")]].concat()).unwrap().unwrap();
        assert_eq!(settings.headers[0].1.reveal(), "own");
    }

    #[test]
    fn what_cannot_be_used_is_named_without_its_value() {
        let check = |variable: (&str, &str), expect: &str| {
            let error = resolve(&[(ENDPOINT, "http://c:4318"), variable]).unwrap_err();
            assert!(error.contains(expect), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        };
        check((TRACES_ENDPOINT, "grpc://hunter2"), "neither http nor https");
        check((ENDPOINT, "http://c/?key=hunter2"), "more than a path");
        check((PROTOCOLS[1], "grpc"), "only http/protobuf is spoken");
        check((HEADERS[1], "a=1,hunter2"), "part 2 is not");
        check((HEADERS[1], "a b=hunter2"), "the name of header 1 cannot be sent");
        check((HEADERS[1], "a=hunter2%0A"), "the value of header 1 cannot be sent");
        check((HEADERS[1], "=hunter2"), "part 1 is not");
    }
}
