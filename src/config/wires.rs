//! Chooses the wire format of an endpoint from names and URLs, and completes its base URL; pure.

use http::Uri;

use crate::provider::{
    anthropic_messages::NAME as ANTHROPIC_MESSAGES, chat_completions::NAME as CHAT_COMPLETIONS,
    codex_responses::NAME as CODEX_RESPONSES,
};

/// Host of [`ANTHROPIC_MESSAGES`].
const ANTHROPIC: &str = "api.anthropic.com";
/// Hosts of [`CODEX_RESPONSES`]. OpenAI's current models accept tools with reasoning only in that format.
const RESPONSES_HOSTS: [&str; 2] = ["api.openai.com", "chatgpt.com"];
/// The path that [`CODEX_RESPONSES`] appends to the base URL.
const RESPONSES: &str = "/responses";
/// The path of [`CHAT_COMPLETIONS`], which a base URL may include.
const CHAT: &str = "/chat/completions";

/// The wire format of an endpoint, and the base URL to which the format's path is appended. The first of these that is
/// known decides: `configured`, `vendor`, the base URL. Otherwise it is `chat_completions`.
pub fn resolve(
    configured: Option<&'static str>,
    vendor: Option<&'static str>,
    base_url: &str,
) -> (&'static str, String) {
    let (path, query) = match base_url.find(['?', '#']) {
        Some(end) => base_url.split_at(end),
        None => (base_url, ""),
    };
    let path = path.trim_end_matches('/');
    let responses = path.strip_suffix(RESPONSES);
    let parsed = path.parse::<Uri>().ok();
    let host = parsed.as_ref().and_then(Uri::host);
    let host_is = |name: &str| host.is_some_and(|host| host.eq_ignore_ascii_case(name));
    let is_anthropic = host_is(ANTHROPIC);
    let is_openai = RESPONSES_HOSTS.into_iter().any(host_is) && !path.ends_with(CHAT);
    let is_bare = parsed.as_ref().is_some_and(|uri| uri.path() == "/");
    let by_address = match (is_anthropic, responses) {
        (true, _) => ANTHROPIC_MESSAGES,
        (false, Some(_)) => CODEX_RESPONSES,
        (false, None) if is_openai => CODEX_RESPONSES,
        (false, None) => CHAT_COMPLETIONS,
    };
    let wire = configured.or(vendor).unwrap_or(by_address);
    let path = match responses {
        Some(base) if wire == CODEX_RESPONSES => base.to_owned(),
        Some(_) | None if is_anthropic && is_bare => format!("{path}/v1"),
        Some(_) | None => path.to_owned(),
    };
    (wire, path + query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(
        configured: Option<&'static str>,
        vendor: Option<&'static str>,
        base_url: &str,
        expect: (&str, &str),
    ) {
        let (wire, url) = resolve(configured, vendor, base_url);
        assert_eq!((wire, url.as_str()), expect, "{base_url}");
    }

    #[test]
    fn what_is_said_comes_before_the_vendor_and_that_before_the_base_url() {
        let (anthropic, acme) = ("https://api.anthropic.com/v1", "https://acme.example/v1");
        check(Some(CHAT_COMPLETIONS), Some(ANTHROPIC_MESSAGES), anthropic, (CHAT_COMPLETIONS, anthropic));
        check(None, Some(ANTHROPIC_MESSAGES), acme, (ANTHROPIC_MESSAGES, acme));
        check(None, Some(CHAT_COMPLETIONS), anthropic, (CHAT_COMPLETIONS, anthropic));
        check(None, None, anthropic, (ANTHROPIC_MESSAGES, anthropic));
        check(None, None, acme, (CHAT_COMPLETIONS, acme));
        let openai = "https://api.openai.com/v1";
        check(Some(CHAT_COMPLETIONS), None, openai, (CHAT_COMPLETIONS, openai));
    }

    #[test]
    fn a_base_url_tells_by_its_host_or_the_end_of_its_path() {
        let tells = |base_url: &str, expect: (&str, &str)| check(None, None, base_url, expect);
        let v1 = "https://api.anthropic.com/v1";
        for url in
            ["https://api.anthropic.com", "https://api.anthropic.com/", "https://API.anthropic.com/v1/"]
        {
            let (wire, url) = resolve(None, None, url);
            assert_eq!((wire, url.to_lowercase().as_str()), (ANTHROPIC_MESSAGES, v1));
        }
        tells("http://api.anthropic.com:8080/v1", (ANTHROPIC_MESSAGES, "http://api.anthropic.com:8080/v1"));
        let other = "https://api.anthropic.com.acme.example/v1";
        tells(other, (CHAT_COMPLETIONS, other));
        let in_path = "https://acme.example/api.anthropic.com";
        tells(in_path, (CHAT_COMPLETIONS, in_path));
        for url in ["https://acme.example/v1/responses", "https://acme.example/v1/responses/"] {
            tells(url, (CODEX_RESPONSES, "https://acme.example/v1"));
        }
        tells("https://acme.example/responses?v=1", (CODEX_RESPONSES, "https://acme.example?v=1"));
        let codex = "https://chatgpt.com/backend-api/codex";
        for url in ["https://api.openai.com/v1", "https://API.OpenAI.com/v1", codex] {
            tells(url, (CODEX_RESPONSES, url));
        }
        tells("https://api.openai.com/v1/responses", (CODEX_RESPONSES, "https://api.openai.com/v1"));
        for url in ["https://api.openai.com/v1/chat/completions", "https://api.openai.com.acme.example/v1"] {
            tells(url, (CHAT_COMPLETIONS, url));
        }
        let responses = "https://acme.example/responses/v1";
        tells(responses, (CHAT_COMPLETIONS, responses));
        let query = "https://acme.example/v1?next=/responses";
        tells(query, (CHAT_COMPLETIONS, query));
        tells("", (CHAT_COMPLETIONS, ""));
    }

    #[test]
    fn the_path_that_the_format_adds_is_not_said_twice() {
        let url = "https://acme.example/v1/responses";
        check(Some(CODEX_RESPONSES), None, url, (CODEX_RESPONSES, "https://acme.example/v1"));
        check(Some(CHAT_COMPLETIONS), None, url, (CHAT_COMPLETIONS, url));
    }
}
