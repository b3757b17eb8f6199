//! The OpenAPI document: it has every operation, names the scope that each needs, and describes the answers that come.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    http::Answer,
    running::until,
    served::{Served, scripts},
};

const SCOPES: [&str; 4] = ["read", "submit", "steer", "approve"];
const RUN: &str = "/v1/runs/{run}";
const SESSION: &str = "/v1/sessions/{session}";
/// Files of the service that add routes: the one for all operations, and those with routes that the document does not have: the
/// pages for browsers, and JSON-RPC and WebSockets, which OpenAPI cannot describe.
const ROUTING: [&str; 3] = ["dashboard/mod.rs", "operations.rs", "rpc/mod.rs"];

/// The document of a service.
struct Api(Value);

impl Api {
    #[track_caller]
    fn of(served: &Served) -> Self {
        let answer = served.send_plain(("GET", "/openapi.json"), &[], "");
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
        Self(answer.json())
    }

    /// Method, path, and description of each operation.
    fn operations(&self) -> Vec<(String, String, &Value)> {
        let paths = self.0["paths"].as_object().unwrap().iter();
        let all = paths.flat_map(|(path, operations)| {
            let operations = operations.as_object().unwrap().iter();
            operations.map(|(method, operation)| (method.to_uppercase(), path.clone(), operation))
        });
        all.collect()
    }

    /// Whether a schema, which may refer to others of the document, allows a value.
    fn errors(&self, schema: &Value, value: &Value) -> Vec<String> {
        let schema = json!({ "allOf": [schema], "components": self.0["components"] });
        let validator = jsonschema::validator_for(&schema).unwrap();
        validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
    }

    /// Checks that an answer is one that the document has, and returns its body.
    #[track_caller]
    fn check(&self, (method, path): (&str, &str), answer: Answer) -> Value {
        let responses = &self.0["paths"][path][method]["responses"];
        let response = &responses[answer.status.to_string()];
        assert!(response.is_object(), "{method} {path}: the status {} is not documented", answer.status);
        let Some(media) = answer.header("content-type").map(str::to_owned) else {
            assert!(
                response["content"].is_null(),
                "{method} {path} answered {} without a body",
                answer.status
            );
            return Value::Null;
        };
        let media = media.split(';').next().unwrap().to_owned();
        let schema = response["content"][&media]["schema"].clone();
        assert!(schema.is_object(), "{method} {path}: {media} of {} is not documented", answer.status);
        if !media.ends_with("json") {
            return answer.text().into();
        }
        let body = answer.json();
        let errors = self.errors(&schema, &body);
        assert!(errors.is_empty(), "{method} {path}: {errors:?} in {body}");
        body
    }

    /// Gets a path of this form, and checks the answer.
    #[track_caller]
    fn get(&self, served: &Served, form: &str, path: &str) -> Value {
        self.check(("get", form), served.get(path))
    }

    /// Posts to a path of this form, and checks that the document allows the body, and the answer.
    #[track_caller]
    fn post(&self, served: &Served, form: &str, path: &str, body: &Value) -> Value {
        let schema = &self.0["paths"][form]["post"]["requestBody"]["content"]["application/json"]["schema"];
        let errors = self.errors(schema, body);
        assert!(errors.is_empty(), "{form}: {errors:?} in {body}");
        self.check(("post", form), served.post(path, body))
    }
}

#[test]
fn every_route_is_an_operation_of_the_document() {
    fn visit((root, folder): (&Path, &Path), found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                visit((root, &path), found);
            } else if fs::read_to_string(&path).unwrap().contains(".route(") {
                found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    let mut found = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/service");
    visit((&root, &root), &mut found);
    found.sort_unstable();
    assert_eq!(found, ROUTING, "`Operations::with` adds a route with its description");
}

#[test]
fn each_operation_needs_the_scope_that_the_document_names() {
    let served = Served::start(&scripts());
    let api = Api::of(&served);
    let token = |scopes: &[&str]| {
        let name = format!("t-{}", scopes.join("-"));
        format!("Bearer {}", served.new_token(&name, &scopes.join(",")))
    };
    let all = token(&SCOPES);
    let tokens = SCOPES.map(|scope| {
        let others: Vec<&str> = SCOPES.into_iter().filter(|other| *other != scope).collect();
        (scope, token(&[scope]), token(&others))
    });
    let operations = api.operations();
    let mut names: Vec<&str> =
        operations.iter().map(|(.., operation)| operation["operationId"].as_str().unwrap()).collect();
    assert!(names.len() > 25, "{names:?}");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), operations.len(), "each operation has a name of its own");
    for (method, path, operation) in &operations {
        let real = path.replace(['{', '}'], "");
        let send = |bearer: Option<&str>| {
            let headers: Vec<_> = bearer.map(|bearer| ("authorization", bearer)).into_iter().collect();
            served.send_plain((method, &real), &headers, "").status
        };
        let Some(security) = operation.get("security") else {
            // Webhooks bring a signature in place of a token.
            let expect = if path.starts_with("/v1/hooks/") { 401 } else { 200 };
            assert_eq!(send(None), expect, "{method} {path} needs no token");
            continue;
        };
        let scope = security[0]["token"][0].as_str().unwrap();
        assert_eq!(send(None), 401, "{method} {path} needs a token");
        let Some((_, with, without)) = tokens.iter().find(|(name, ..)| *name == scope) else {
            assert_eq!((scope, send(Some(&all))), ("admin", 403), "{method} {path}");
            continue;
        };
        assert_eq!(send(Some(without)), 403, "{method} {path} needs the scope {scope}");
        let status = send(Some(with));
        assert!(![401, 403, 405].contains(&status), "{method} {path} has the scope {scope}: {status}");
    }
}

#[test]
fn answers_are_as_the_document_says() {
    let served = Served::start(&scripts());
    let api = Api::of(&served);
    let limits = json!({ "iterations": 9, "tokens": "50k", "wall": "10m" });
    let body =
        json!({ "input": "hello", "session": "s", "timeout": 60, "thinking": "low", "budget": limits });
    let accepted = api.post(&served, "/v1/runs", "/v1/runs", &body);
    let run = format!("/v1/runs/{}", accepted["run"].as_str().unwrap());
    assert_eq!(api.get(&served, &format!("{RUN}/wait"), &format!("{run}/wait"))["outcome"], "completed");
    for part in ["", "/result", "/budget", "/events"] {
        api.get(&served, &format!("{RUN}{part}"), &format!("{run}{part}"));
    }
    for part in ["", "/messages"] {
        api.get(&served, &format!("{SESSION}{part}"), &format!("/v1/sessions/s{part}"));
    }
    let failed = api.post(&served, "/v1/runs", "/v1/runs", &json!({ "input": "fail" }));
    let failed = format!("/v1/runs/{}", failed["run"].as_str().unwrap());
    assert_eq!(api.get(&served, &format!("{RUN}/wait"), &format!("{failed}/wait"))["outcome"], "failed");
    api.get(&served, &format!("{RUN}/result"), &format!("{failed}/result"));
    let waiting = api.post(&served, "/v1/runs", "/v1/runs", &json!({ "input": "wait" }));
    let waiting = format!("/v1/runs/{}", waiting["run"].as_str().unwrap());
    until("the command runs", || served.world.work().join("ran").exists());
    api.get(&served, RUN, &waiting);
    assert_eq!(api.get(&served, "/v1/tree", "/v1/tree")[0]["waits"][0]["what"], "tool");
    api.get(&served, &format!("{RUN}/result"), &format!("{waiting}/result"));
    api.post(&served, &format!("{RUN}/steer"), &format!("{waiting}/steer"), &json!({ "text": "hurry" }));
    let raise = json!({ "add": { "iterations": 1 } });
    api.post(&served, &format!("{RUN}/budget"), &format!("{waiting}/budget"), &raise);
    let stopped = served.send(("POST", &format!("{waiting}/stop")), &[], "");
    assert_eq!(api.check(("post", &format!("{RUN}/stop")), stopped)["outcome"], "stopped");
    for path in
        ["/v1/runs", "/v1/sessions", "/v1/approvals", "/v1/providers", "/v1/usage", "/v1/models", "/livez"]
    {
        api.get(&served, path, path);
    }
    let chat = json!({ "model": "default", "messages": [{ "role": "user", "content": "hi" }] });
    api.post(&served, "/v1/chat/completions", "/v1/chat/completions", &chat);
    let response = api.post(&served, "/v1/responses", "/v1/responses", &json!({ "input": "hi" }));
    let path = format!("/v1/responses/{}", response["id"].as_str().unwrap());
    api.get(&served, "/v1/responses/{response}", &path);
    let model = api.get(&served, "/v1/models/{model}", "/v1/models/default");
    assert_eq!(model["id"], "default");
    // Errors.
    api.get(&served, RUN, "/v1/runs/x");
    api.get(&served, "/v1/models/{model}", "/v1/models/x");
    api.check(("get", "/v1/runs"), served.get("/v1/runs?max=0"));
    api.check(("get", "/v1/runs"), served.send_plain(("GET", "/v1/runs"), &[], ""));
    api.check(("post", "/v1/runs"), served.post("/v1/runs", &json!({ "input": " " })));
    api.check(("post", "/v1/responses"), served.post("/v1/responses", &json!({ "input": 1 })));
}

#[test]
fn answers_about_schedules_are_as_the_document_says() {
    let served = Served::start(&scripts());
    let api = Api::of(&served);
    let schedule =
        json!({ "name": "hourly", "definition": { "every": "1h", "text": "hi", "deliver_to": [] } });
    api.post(&served, "/v1/schedules", "/v1/schedules", &schedule);
    let form = "/v1/schedules/{schedule}";
    let ran = api
        .check(("post", &format!("{form}/run")), served.send(("POST", "/v1/schedules/hourly/run"), &[], ""));
    until("the run has ended", || {
        let run = format!("/v1/runs/{}", ran["run"].as_str().unwrap());
        api.get(&served, RUN, &run)["outcome"] == "completed"
    });
    for part in ["", "/history"] {
        api.get(&served, &format!("{form}{part}"), &format!("/v1/schedules/hourly{part}"));
    }
    let paused = json!({ "reason": "holidays" });
    api.post(&served, &format!("{form}/pause"), "/v1/schedules/hourly/pause", &paused);
    api.get(&served, "/v1/schedules", "/v1/schedules");
}

#[test]
fn the_document_refuses_what_the_service_refuses() {
    let served = Served::start(&scripts());
    let api = Api::of(&served);
    for (_, path, operation) in &api.operations() {
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            assert_ne!(parameter["schema"]["format"], "int32", "{path}: a u32 has more values");
        }
    }
    let schema = &api.0["paths"]["/v1/runs"]["post"]["requestBody"]["content"]["application/json"]["schema"];
    let check = |body: &Value| {
        let is_allowed = api.errors(schema, body).is_empty();
        let status = served.post("/v1/runs", body).status;
        assert_eq!(status == 202, is_allowed, "{body} was answered {status}");
    };
    for fields in [
        json!({}),
        json!({ "input": " " }),
        json!({ "color": "red" }),
        json!({ "timeout": "soon" }),
        json!({ "timeout": 0 }),
        json!({ "timeout": 0.5 }),
        json!({ "timeout": null, "session": null, "model": null, "budget": null, "thinking": null }),
        json!({ "thinking": "much" }),
        json!({ "budget": { "iterations": 0 } }),
        json!({ "budget": { "usd": 1e-10 } }),
        json!({ "budget": { "tokens": 3.0, "wall": 1.5 } }),
        json!({ "budget": { "children": 3 } }),
        json!({ "budget": "iterations=3" }),
        json!({ "session": "" }),
        json!({ "workspace": "" }),
        json!({ "system": "be brief" }),
        json!({ "input": 5 }),
    ] {
        let mut body = json!({ "input": "x" });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        check(&body);
    }
    check(&json!({}));
    check(&json!(["x"]));
}
