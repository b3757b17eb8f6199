//! Builds the HTTP client of one URL, and reads the start of a body. Model calls are sent by `endpoint.rs`, forms by
//! `form.rs`.

use std::{error::Error, net::IpAddr, sync::Arc, time::Duration};

use reqwest::{Client, Response, Url, redirect};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;

use crate::provider::failure::BodyEnd;

/// A client for one URL. A request without an idle connection opens a new one, so no request waits for a connection.
/// Certificates are loaded only for https, because that takes milliseconds.
pub(super) fn build_client(url: &Url, connect: Duration) -> Result<Client, Box<dyn Error>> {
    let mut builder = Client::builder()
        .tls_backend_preconfigured(tls(url.scheme() == "https")?)
        .http1_only()
        .redirect(redirect::Policy::none())
        .referer(false)
        .connect_timeout(connect);
    if is_loopback(url.host_str().unwrap_or_default()) {
        builder = builder.no_proxy();
    }
    Ok(builder.build()?)
}

/// Without https, no certificate is trusted and none is loaded.
fn tls(is_https: bool) -> Result<ClientConfig, Box<dyn Error>> {
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(ring).with_safe_default_protocol_versions()?;
    let verified = match is_https {
        true => builder.with_platform_verifier()?,
        false => builder.with_root_certificates(RootCertStore::empty()),
    };
    Ok(verified.with_no_client_auth())
}

fn is_loopback(host: &str) -> bool {
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

/// Reads the start of a body into `into`, at most `max_bytes` bytes, and reports how the reading ended.
pub(super) async fn read_prefix(response: &mut Response, max_bytes: usize, into: &mut Vec<u8>) -> BodyEnd {
    loop {
        let chunk = match response.chunk().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return BodyEnd::Complete,
            Err(_) => return BodyEnd::Broken,
        };
        let bytes_left = max_bytes - into.len();
        into.extend_from_slice(&chunk[..chunk.len().min(bytes_left)]);
        if chunk.len() >= bytes_left {
            return BodyEnd::Limit;
        }
    }
}

/// The text of the innermost error. The outer errors only state that something failed.
pub(super) fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
