//! Queries an endpoint for the limits of a model. The shapes of the vendors' lists are in `provider/model_list`.

use std::time::Duration;

use hermod_actors::model::ModelLimits;
use http::HeaderMap;
use reqwest::{Client, Url};
use tokio::time::timeout;

use super::client::read_prefix;
use crate::provider::model_list::{LISTS, ListBase, ModelList, parse_limits};

/// Time limit for all queries about one model together.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Maximum number of bytes read of a response; a longer one is ignored. OpenRouter's is below 1 MiB.
const MAX_BODY_BYTES: usize = 4 << 20;

/// The limits that the endpoint reports for a model. `None` if none of its lists has come in time.
pub(super) async fn limits(
    client: &Client,
    base: &Url,
    headers: HeaderMap,
    model: &str,
) -> Option<ModelLimits> {
    let mut listed = None;
    let query_all = async {
        for list in &LISTS {
            let Some(url) = list_url(base, list) else { continue };
            let Some(limits) = fetch_limits(client, url, headers.clone(), list, model).await else {
                continue;
            };
            listed = Some(limits);
            if limits.window.is_some() {
                break;
            }
        }
    };
    if timeout(LOOKUP_TIMEOUT, query_all).await.is_err() {
        tracing::debug!(host = base.host_str(), model, "no list of models came in time");
    }
    listed
}

/// The URL of the vendor's list of models.
pub(super) fn models_url(base: &Url) -> Url {
    list_url(base, &LISTS[0]).unwrap_or_else(|| base.clone())
}

/// The URL of a list; `None` if the list exists only on local servers and the base URL does not look like one.
fn list_url(base: &Url, list: &ModelList) -> Option<Url> {
    let mut url = base.clone();
    if list.base == ListBase::Root && (base.scheme() != "http" || !strip_version(&mut url)) {
        return None;
    }
    url.path_segments_mut().ok()?.pop_if_empty().extend(list.path);
    Some(url)
}

/// Removes a trailing `/v1`; false if there is none.
fn strip_version(url: &mut Url) -> bool {
    let path = url.path().trim_end_matches('/');
    let Some(root) = path.strip_suffix("/v1").map(str::to_owned) else { return false };
    url.set_path(&root);
    true
}

async fn fetch_limits(
    client: &Client,
    url: Url,
    headers: HeaderMap,
    list: &ModelList,
    model: &str,
) -> Option<ModelLimits> {
    let request = match list.body {
        Some(body) => client.post(url).body(body(model).to_string()),
        None => client.get(url),
    };
    let mut response = request.headers(headers).send().await.ok()?;
    let is_list = response.status().is_success();
    let mut body = Vec::new();
    read_prefix(&mut response, MAX_BODY_BYTES, &mut body).await;
    Some(if is_list && body.len() < MAX_BODY_BYTES {
        parse_limits(list, &body, model)
    } else {
        ModelLimits::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_found_behind_the_base_url() {
        let check = |base: &str, expect: [Option<&str>; 3]| {
            let base = Url::parse(base).unwrap();
            let urls = LISTS.map(|list| list_url(&base, &list).map(|url| url.to_string()));
            assert_eq!(urls.each_ref().map(Option::as_deref), expect, "{base}");
        };
        check("https://openrouter.ai/api/v1", [Some("https://openrouter.ai/api/v1/models"), None, None]);
        check(
            "http://127.0.0.1:1234/v1/",
            [
                Some("http://127.0.0.1:1234/v1/models"),
                Some("http://127.0.0.1:1234/api/v0/models"),
                Some("http://127.0.0.1:1234/api/show"),
            ],
        );
        check("http://host/llm?tenant=1", [Some("http://host/llm/models?tenant=1"), None, None]);
    }
}
