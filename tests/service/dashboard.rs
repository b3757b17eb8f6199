//! The dashboard: its files, signing in and out, and what a browser without the page's half of a token may do.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    http::Answer,
    running::until,
    served::{Served, scripts},
    world::World,
};

const JSON: (&str, &str) = ("content-type", "application/json");
/// Most bytes of all files together, without any compression.
const MAX_BYTES: usize = 200_000;

/// A browser that has signed in.
struct Browser<'s> {
    served: &'s Served,
    cookie: String,
    key: String,
}

fn sign_in(served: &Served, token: &str) -> Answer {
    served.send_plain(("POST", "/login"), &[JSON], &json!({ "token": token }).to_string())
}

impl<'s> Browser<'s> {
    #[track_caller]
    fn signed_in(served: &'s Served, token: &str) -> Self {
        let answer = sign_in(served, token);
        assert_eq!((answer.status, answer.header("cache-control")), (200, Some("no-store")));
        let cookie = answer.header("set-cookie").unwrap().to_owned();
        let attributes: Vec<_> = cookie.split("; ").skip(1).collect();
        assert_eq!(attributes, ["Path=/", "HttpOnly", "SameSite=Strict"]);
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let key = answer.json()["key"].as_str().unwrap().to_owned();
        for half in [&cookie, &key] {
            assert!(!half.contains(token.strip_prefix("hermod_").unwrap()), "no half is the token");
        }
        Self { served, cookie, key }
    }

    fn send(&self, operation: (&str, &str), more: &[(&str, &str)], body: &str) -> Answer {
        let own = [("cookie", self.cookie.as_str()), ("x-hermod-key", self.key.as_str())];
        self.served.send_plain(operation, &[&own, more].concat(), body)
    }

    fn get(&self, path: &str) -> Answer {
        self.send(("GET", path), &[], "")
    }

    fn submit(&self, headers: &[(&str, &str)]) -> u16 {
        let body = json!({ "input": "hello" }).to_string();
        self.send(("POST", "/v1/runs"), &[&[JSON], headers].concat(), &body).status
    }
}

/// The paths of the files, as the page and its modules name them.
fn named_files(served: &Served) -> Vec<String> {
    let mut found = vec!["/".to_owned()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        let text = served.send_plain(("GET", &path), &[], "").text();
        let absolute = text.split('"').filter(|part| part.starts_with("/dashboard/"));
        let beside = text.split('"').filter(|part| part.starts_with("./"));
        let beside = beside.map(|part| format!("/dashboard/{}", &part[2..]));
        for name in absolute.map(str::to_owned).chain(beside) {
            if !found.contains(&name) {
                found.push(name);
            }
        }
    }
    found
}

#[test]
fn its_files_are_served_to_all_with_strict_headers() {
    let served = Served::start(&scripts());
    let files = named_files(&served);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/service/dashboard/web");
    assert_eq!(files.len(), fs::read_dir(folder).unwrap().count(), "each file is used: {files:?}");
    let mut bytes = 0;
    for path in &files {
        let answer = served.send_plain(("GET", path), &[], "");
        assert_eq!(answer.status, 200, "{path}");
        let kind = match path.rsplit_once('.').map(|(_, extension)| extension) {
            None => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("svg") => "image/svg+xml",
            Some(other) => panic!("{other}"),
        };
        assert_eq!(answer.header("content-type"), Some(kind), "{path}");
        let policy = answer.header("content-security-policy").unwrap();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{path}: {policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("x-frame-options", "DENY"),
            ("cache-control", "no-cache"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{path}");
        }
        let tag = answer.header("etag").unwrap().to_owned();
        let again = served.send_plain(("GET", path), &[("if-none-match", &tag)], "");
        assert_eq!((again.status, again.header("etag")), (304, Some(&*tag)), "{path}");
        let text = answer.text();
        assert!(!text.is_empty() && again.text().is_empty(), "{path}");
        bytes += text.len();
    }
    assert!(bytes <= MAX_BYTES, "the dashboard has {bytes} bytes");
    assert_eq!(served.send_plain(("GET", "/dashboard/none.js"), &[], "").status, 401);
    assert_eq!(served.send_plain(("POST", "/"), &[], "").status, 405);
}

#[test]
fn no_file_makes_code_of_texts_or_needs_another_host() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/service/dashboard/web");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap().replace("http://www.w3.org/2000/svg", "");
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "setTimeout(\"",
            "javascript:",
            "http://",
            "https://",
            "//cdn",
            "srcdoc",
            " style=\"",
            "@import",
            "url(",
            "onerror=",
        ] {
            assert!(!text.contains(word), "{} has `{word}`", path.display());
        }
        let is_page = path.extension().is_some_and(|extension| extension == "html");
        assert!(!is_page || !text.contains("<script>"), "no script is inline");
    }
}

#[test]
fn a_browser_needs_its_cookie_and_the_key_of_the_page() {
    let mut served = Served::start(&scripts());
    for wrong in ["", "x", "hermod_00", &served.token.replace("hermod_", "")] {
        let answer = sign_in(&served, wrong);
        assert_eq!((answer.status, answer.header("set-cookie")), (401, None), "{wrong}");
    }
    let browser = Browser::signed_in(&served, &served.token);
    assert_eq!(browser.get("/v1/runs").status, 200);
    assert_eq!(browser.get("/v1/token").json()["name"], "test");
    assert_eq!(browser.submit(&[]), 202);
    let (cookie, key) = (browser.cookie.clone(), browser.key.clone());
    let other = Browser::signed_in(&served, &served.token);
    for (cookie, key) in [(&*cookie, ""), ("", &*key), (&*cookie, &*other.key), (&*other.cookie, &*key)] {
        let headers = [("cookie", cookie), ("x-hermod-key", key), JSON];
        for operation in [("GET", "/v1/runs"), ("GET", "/v1/events"), ("POST", "/v1/runs")] {
            assert_eq!(served.send_plain(operation, &headers, "{}").status, 401, "{operation:?} {headers:?}");
        }
    }
    // A header of an authorization counts alone.
    let headers = [("authorization", "Bearer x")];
    assert_eq!(browser.send(("GET", "/v1/runs"), &headers, "").status, 401);
    served.kill();
    served.start_again();
    let headers = [("cookie", cookie.as_str()), ("x-hermod-key", key.as_str())];
    assert_eq!(served.send_plain(("GET", "/v1/runs"), &headers, "").status, 200, "it outlives the service");
}

#[test]
fn a_repeat_of_the_page_counts_once() {
    let served = Served::start(&scripts());
    let browser = Browser::signed_in(&served, &served.token);
    let send = |path: &str, body: &Value, field: &str| {
        let headers = [JSON, ("idempotency-key", field)];
        let answer = browser.send(("POST", path), &headers, &body.to_string());
        assert_eq!(answer.status, 202, "{path}");
        answer.json()[field].as_str().unwrap().to_owned()
    };
    let task = json!({ "input": "hello" });
    assert_eq!(send("/v1/runs", &task, "run"), send("/v1/runs", &task, "run"));
    let message = json!({ "text": "and on", "mode": "steer" });
    let path = "/v1/sessions/talk/messages";
    assert_eq!(send(path, &message, "message"), send(path, &message, "message"));
}

#[test]
fn pages_of_other_sites_can_do_nothing() {
    let served = Served::start(&scripts());
    let browser = Browser::signed_in(&served, &served.token);
    assert_eq!(browser.submit(&[("origin", "https://evil.example")]), 403);
    assert_eq!(browser.submit(&[("origin", "null")]), 403);
    let origin = format!("http://{}", served.address());
    assert_eq!(browser.submit(&[("origin", &origin)]), 202);
    for headers in [
        vec![JSON, ("origin", "https://evil.example")],
        vec![("content-type", "text/plain")],
        vec![("content-type", "application/x-www-form-urlencoded")],
        vec![],
    ] {
        let body = json!({ "token": served.token }).to_string();
        let answer = served.send_plain(("POST", "/login"), &headers, &body);
        assert!([403, 415].contains(&answer.status), "{headers:?}: {}", answer.status);
        assert_eq!(answer.header("set-cookie"), None);
    }
    let preflight = [("origin", "https://evil.example"), ("access-control-request-method", "POST")];
    let answer = served.send_plain(("OPTIONS", "/v1/runs"), &preflight, "");
    assert!(answer.status >= 400 && answer.header("access-control-allow-origin").is_none());
    let long = json!({ "token": "x".repeat(2_000) }).to_string();
    assert_eq!(served.send_plain(("POST", "/login"), &[JSON], &long).status, 413);
    assert_eq!(served.send_plain(("POST", "/login"), &[JSON], "{\"token\": 1}").status, 422);
}

#[test]
fn a_cookie_is_kept_or_secure_as_the_sign_in_says() {
    let served = Served::start(&scripts());
    let kept = json!({ "token": format!(" {}\n", served.token), "keep": true }).to_string();
    let answer = served.send_plain(("POST", "/login"), &[JSON], &kept);
    assert!(answer.header("set-cookie").unwrap().ends_with("; SameSite=Strict; Max-Age=2592000"));
    // A proxy has ended TLS: the browser says where its page is from.
    let origin = format!("https://{}", served.address());
    let answer = served.send_plain(("POST", "/login"), &[JSON, ("origin", &origin)], &kept);
    assert!(answer.header("set-cookie").unwrap().ends_with("; Secure"));
}

#[test]
fn signing_out_removes_the_cookie_and_revoking_ends_all() {
    let served = Served::start(&scripts());
    let token = served.new_token("reader", "read");
    let browser = Browser::signed_in(&served, &token);
    let answer = browser.send(("POST", "/logout"), &[], "");
    let name = browser.cookie.split('=').next().unwrap();
    let removed = format!("{name}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    assert_eq!((answer.status, answer.header("set-cookie")), (204, Some(&*removed)));
    assert_eq!(served.send_plain(("POST", "/logout"), &[], "").status, 400);
    let mut events = browser.get("/v1/events");
    assert_eq!(events.status, 200);
    served.world.ok(&["tokens", "revoke", "reader"]);
    assert_eq!(browser.get("/v1/runs").status, 401);
    assert_eq!(sign_in(&served, &token).status, 401);
    // The stream that it has opened ends with the next event.
    let end = served.post("/v1/runs", &json!({ "input": "hello" }));
    assert_eq!(end.status, 202);
    while let Some(chunk) = events.chunk() {
        assert!(!chunk.contains("data:"), "{chunk}");
    }
}

#[test]
fn the_scopes_and_agents_of_a_token_hold() {
    let served = Served::start(&scripts());
    let reader = Browser::signed_in(&served, &served.new_token("reader", "read"));
    assert_eq!(reader.submit(&[]), 403);
    assert_eq!(reader.get("/v1/token").json()["scopes"], json!(["read"]));
    for path in ["/v1/supervision", "/v1/report?since=2026-01-01T00:00:00Z", "/v1/usage/days"] {
        assert_eq!(reader.get(path).status, 200, "{path}");
    }
    let limited =
        served.world.ok(&["tokens", "create", "--name", "l", "--scopes", "read", "--agents", "other"]);
    let limited = Browser::signed_in(&served, limited.split_whitespace().last().unwrap());
    for path in ["/v1/supervision", "/v1/report?since=2026-01-01T00:00:00Z"] {
        assert_eq!(limited.get(path).status, 403, "{path}");
    }
    assert_eq!(limited.get("/v1/token").json()["agents"], json!(["other"]));
    assert_eq!(served.post("/v1/runs", &json!({ "input": "hello", "session": "s" })).status, 202);
    let runs = |browser: &Browser<'_>| browser.get("/v1/usage/days?days=1").json()["days"][0]["runs"].clone();
    assert_eq!((runs(&reader), runs(&limited)), (json!(1), json!(0)));
    assert_eq!(limited.get("/v1/sessions?text=hello").json()["items"], json!([]));
}

#[test]
fn a_configuration_without_a_dashboard_has_none() {
    let world = World::new();
    world.configure("[service]\ndashboard = false\n");
    let served = Served::start_in(world, &scripts());
    for path in ["/", "/dashboard/app.js"] {
        assert_eq!(served.send_plain(("GET", path), &[], "").status, 401, "{path}");
        assert_eq!(served.get(path).status, 404, "{path}");
    }
    assert_eq!(sign_in(&served, &served.token).status, 401);
}

#[test]
fn sessions_are_found_by_what_was_said() {
    let served = Served::start(&scripts());
    for (session, input) in [("alpha", "the Disk is full"), ("beta", "all is well")] {
        let run = served.post("/v1/runs", &json!({ "input": input, "session": session })).json();
        let path = format!("/v1/runs/{}/wait", run["run"].as_str().unwrap());
        assert_eq!(served.get(&path).json()["outcome"], "completed");
    }
    let check = |text: &str, expect: &[(&str, Option<&str>)]| {
        let page = served.get(&format!("/v1/sessions?text={text}")).json();
        let items = page["items"].as_array().unwrap().iter();
        let found: Vec<_> =
            items.map(|item| (item["key"].as_str().unwrap(), item["match"].as_str())).collect();
        assert_eq!(found, expect, "{text}");
    };
    check("disk", &[("alpha", Some("the Disk is full"))]);
    check("BETA", &[("beta", None)]);
    check("is", &[("beta", Some("all is well")), ("alpha", Some("the Disk is full"))]);
    check("you%20said:%20all", &[("beta", Some("[rehearsal] You said: all is well"))]);
    check("nothing", &[]);
    check("%20", &[("beta", None), ("alpha", None)]);
}

#[test]
fn the_records_of_a_run_are_read_in_pages_and_counted_by_day() {
    let served = Served::start(&scripts());
    let run = served.post("/v1/runs", &json!({ "input": "hello" })).json();
    let run = format!("/v1/runs/{}", run["run"].as_str().unwrap());
    assert_eq!(served.get(&format!("{run}/wait")).json()["outcome"], "completed");
    let page = served.get(&format!("{run}/records")).json();
    let kinds = |page: &Value| {
        let items = page["items"].as_array().unwrap().iter();
        items.map(|item| item["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&page), ["run.accepted", "model.started", "model.answered", "run.ended"]);
    assert_eq!(page["next"], Value::Null);
    let last = page["items"][3]["seq"].as_u64().unwrap();
    let rest = served.get(&format!("{run}/records?from={last}")).json();
    assert_eq!(kinds(&rest), ["run.ended"]);
    until("the run counts", || {
        let days = served.get("/v1/usage/days?days=2").json();
        days["days"][0]["outcomes"] == json!({ "completed": 1 }) && days["is_complete"] == true
    });
    for wrong in ["/v1/usage/days?days=0", "/v1/usage/days?days=367", "/v1/report?since=2999-01-01T00:00:00Z"]
    {
        assert_eq!(served.get(wrong).status, 400, "{wrong}");
    }
    let report = served.get("/v1/report?since=2020-01-01T00:00:00Z").json();
    assert_eq!((&report["runs"]["total"], &report["service"]), (&json!(1), &Value::Null));
    let actors = served.get("/v1/supervision").json();
    assert_eq!((&actors["children"][0]["restarts"], &actors["reasons"]), (&json!(0), &json!([])));
}
