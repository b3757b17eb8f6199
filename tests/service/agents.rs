//! Several agents in one service: what differs between their runs, and what a token reaches that is limited to some.

use std::{
    fs,
    io::{BufRead as _, BufReader},
};

use serde_json::{Value, json};

use crate::{
    running::{WAITING, until},
    served::Served,
    world::World,
};

const CONFIG: &str = r#"
[agents.writer]
description = "Writes"
max_turns = 7
prompt.identity = "You are the writer."
tools.exclude = ["current_time"]

[agents.reader.policy]
mode = "deny"

[agents.asker]
approvals.approver = "person"
policy.ask = ["shell(touch *)"]
"#;

fn scripts() -> Value {
    let shell = |command: &str| json!({ "tool": "shell", "arguments": { "command": command } });
    let remember = json!({ "action": "add", "target": "memory", "content": "a fact" });
    json!([
        { "when": "touch", "steps": [{ "call": [shell("touch made")] }, { "say": "touched" }] },
        { "when": "remember", "steps": [
            { "call": [{ "tool": "memory", "arguments": remember }] }, { "say": "noted" },
        ] },
        { "when": "wait", "steps": [
            { "call": [shell(WAITING)] }, { "call": [shell("touch made")] }, { "say": "waited" },
        ] },
        { "steps": [{ "say": "You said: {{user}}" }] },
    ])
}

/// A service with the agents of [`CONFIG`].
pub(crate) fn start() -> Served {
    let world = World::new();
    world.configure(CONFIG);
    Served::start_in(world, &scripts())
}

impl Served {
    /// Submits a run, and waits until it has ended or waits for a person; returns its id.
    #[track_caller]
    pub(crate) fn run_as(&self, agent: &str, more: &Value) -> String {
        let mut body = json!({ "agent": agent });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let run = self.post("/v1/runs", &body).json()["run"].as_str().expect("it is accepted").to_owned();
        until("the run has ended or is parked", || {
            ["ended", "parked"]
                .map(Value::from)
                .contains(&self.get(&format!("/v1/runs/{run}")).json()["state"])
        });
        run
    }

    /// A token that is limited to agents.
    #[track_caller]
    pub(crate) fn limited_token(&self, name: &str, agents: &str) -> String {
        let args = ["tokens", "create", "--name", name, "--scopes", "admin", "--agents", agents];
        self.world.ok(&args).split_whitespace().last().expect("a token").to_owned()
    }
}

#[test]
fn each_agent_has_its_prompt_tools_limits_policy_and_memory() {
    let served = start();
    let made = served.world.work().join("made");
    let show = |run: &str| served.get(&format!("/v1/runs/{run}")).json();
    let writer = served.run_as("writer", &json!({ "input": "hello", "session": "w" }));
    let (shown, plain) = (show(&writer), show(&served.run_as("default", &json!({ "input": "hello" }))));
    assert_eq!((&shown["agent"], &plain["agent"]), (&json!("writer"), &json!("default")));
    let limit = |run: &Value| run["spec"]["limits"]["budget"]["iterations"].clone();
    assert_eq!((limit(&shown), limit(&plain)), (json!(7), json!(90)));
    let has_time = |run: &Value| run["spec"]["tools"].as_array().unwrap().contains(&json!("current_time"));
    assert!(!has_time(&shown) && has_time(&plain));
    let prompt = |session: &Value| {
        let journal = served.world.ok(&["journal", session.as_str().unwrap()]);
        journal.lines().next().unwrap().contains("You are the writer.")
    };
    assert!(prompt(&shown["session"]) && !prompt(&plain["session"]));

    served.run_as("reader", &json!({ "input": "touch" }));
    assert!(!made.exists(), "the policy of the reader denies it");
    served.run_as("default", &json!({ "input": "touch" }));
    assert!(made.exists());

    served.run_as("writer", &json!({ "input": "remember" }));
    let memories = served.world.state().join("memories");
    assert!(memories.join("agents/writer/MEMORY.md").exists() && !memories.join("MEMORY.md").exists());
    served.run_as("default", &json!({ "input": "remember" }));
    assert!(memories.join("MEMORY.md").exists());

    // The session belongs to its agent, whichever door is used.
    let other = served.post("/v1/runs", &json!({ "input": "x", "session": "w", "agent": "reader" }));
    assert_eq!(other.status, 422);
    assert!(other.text().contains("belongs to the agent `writer`"));
    let same = served.post("/v1/runs", &json!({ "input": "x", "session": "w" })).json();
    assert_eq!(show(same["run"].as_str().unwrap())["agent"], "writer");
    let listed = served.get("/v1/runs?agent=reader").json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    let unknown = served.post("/v1/runs", &json!({ "input": "x", "agent": "nobody" }));
    assert_eq!(unknown.status, 422);
    assert!(unknown.text().contains("there is no agent `nobody`; there are: default, asker, reader, writer"));

    // A client of the command line gives its run to the service, with its agent.
    let given = served.world.ok(&["run", "--json", "--agent", "writer", "hello"]);
    let given: Value = serde_json::from_str(&given).unwrap();
    assert_eq!(show(given["run"].as_str().unwrap())["agent"], "writer");
    served.world.fails(&["run", "--agent", "nobody", "hello"], 2, "there is no agent `nobody`");
    served.world.fails(
        &["run", "--session", "w", "--agent", "reader", "hello"],
        2,
        "belongs to the agent `writer`",
    );
}

#[test]
fn the_models_are_the_agents() {
    let served = start();
    let names = |token: &str| {
        let models = served.send_as(token, ("GET", "/v1/models"), &Value::Null).json();
        let models = models["data"].as_array().unwrap().iter();
        models.map(|model| model["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&served.token), ["default", "asker", "reader", "writer"]);
    assert_eq!(names(&served.limited_token("l", "writer")), ["writer"]);
    let chat = |model: &str| {
        let messages = json!([{ "role": "user", "content": "hello" }]);
        served.post("/v1/chat/completions", &json!({ "model": model, "messages": messages }))
    };
    assert_eq!(chat("writer").json()["model"], "writer");
    assert_eq!(served.get("/v1/runs?agent=writer").json()["items"].as_array().unwrap().len(), 1);
    let unknown = chat("nobody");
    assert_eq!((unknown.status, &unknown.json()["error"]["code"]), (404, &json!("model_not_found")));

    // A response is of its agent, and another agent goes on in a session of its own.
    let first = served.post("/v1/responses", &json!({ "model": "writer", "input": "one" })).json();
    let next = |more: &Value| {
        let mut body = json!({ "previous_response_id": first["id"], "input": "two" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        served.post("/v1/responses", &body).json()
    };
    let session = |response: &Value| served.session_of(response["id"].as_str().unwrap());
    let same = next(&json!({}));
    assert_eq!((&same["model"], session(&same)), (&json!("writer"), session(&first)));
    let other = next(&json!({ "model": "reader" }));
    assert_eq!(other["model"], "reader");
    assert_ne!(session(&other), session(&first));
    let stored = served.get(&format!("/v1/responses/{}", first["id"].as_str().unwrap())).json();
    assert_eq!(stored["model"], "writer");
}

/// Every operation that names the run `other` of the session `other`, or its call.
fn operations_on(other: &str, call: &str) -> Vec<(&'static str, String, Value)> {
    let response = format!("resp_{other}");
    vec![
        ("GET", format!("/v1/runs/{other}"), Value::Null),
        ("GET", format!("/v1/runs/{other}/wait?timeout=1ms"), Value::Null),
        ("GET", format!("/v1/runs/{other}/events"), Value::Null),
        ("GET", format!("/v1/runs/{other}/result"), Value::Null),
        ("GET", format!("/v1/runs/{other}/budget"), Value::Null),
        ("POST", format!("/v1/runs/{other}/budget"), json!({ "add": { "iterations": 1 } })),
        ("POST", format!("/v1/runs/{other}/steer"), json!({ "text": "x" })),
        ("POST", format!("/v1/runs/{other}/stop"), Value::Null),
        ("GET", "/v1/sessions/other".to_owned(), Value::Null),
        ("GET", "/v1/sessions/other/events".to_owned(), Value::Null),
        ("POST", format!("/v1/approvals/{call}/allow"), json!({})),
        ("POST", format!("/v1/approvals/{call}/deny"), Value::Null),
        ("POST", format!("/v1/approvals/{call}/answer"), json!({ "text": "x" })),
        ("POST", "/v1/runs".to_owned(), json!({ "input": "x", "session": "other" })),
        ("GET", format!("/v1/responses/{response}"), Value::Null),
        ("POST", format!("/v1/responses/{response}/cancel"), Value::Null),
        (
            "POST",
            "/v1/responses".to_owned(),
            json!({ "model": "writer", "input": "x", "previous_response_id": response }),
        ),
        ("GET", "/v1/models/asker".to_owned(), Value::Null),
    ]
}

#[test]
fn a_limited_token_reaches_its_agents_alone() {
    let served = start();
    let own = served.run_as("writer", &json!({ "input": "hello", "session": "own" }));
    let other = served.run_as("asker", &json!({ "input": "touch", "session": "other" }));
    let limited = served.limited_token("limited", "writer");
    let get = |path: &str| served.send_as(&limited, ("GET", path), &Value::Null);
    let approvals = served.get("/v1/approvals").json();
    let call = approvals[0]["call"].as_str().expect("the asker asks").to_owned();
    let operations = operations_on(&other, &call);
    for (method, path, body) in &operations {
        let answer = served.send_as(&limited, (method, path), body);
        let status = answer.status;
        assert_eq!(status, 404, "{method} {path}: {}", answer.text());
    }
    let ids = |path: &str| {
        let items = get(path).json()["items"].as_array().unwrap().clone();
        items.iter().map(|item| item.get("key").unwrap_or(&item["id"]).clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids("/v1/runs"), [json!(own)]);
    assert_eq!(ids("/v1/runs?max=1"), [json!(own)], "hidden rows take no place of a page");
    assert_eq!(ids("/v1/sessions?max=1"), [json!("own")]);
    assert_eq!(ids("/v1/runs?agent=asker"), [Value::Null; 0]);
    assert_eq!((get("/v1/approvals").json(), get("/v1/tree").json()), (json!([]), json!([])));
    assert_eq!(served.get("/v1/tree").json()[0]["id"], *other);
    // The feed from its beginning has the records of one session, and goes on with new ones, although another client
    // reads all records at the same time.
    let mut all = served.get("/v1/events?after=0.0");
    let mut feed = get("/v1/events?after=0.0");
    let second = served.run_as("asker", &json!({ "input": "touch", "session": "second" }));
    let last = served.run_as("writer", &json!({ "input": "bye", "session": "own" }));
    let session = served.get("/v1/sessions/own").json()["id"].clone();
    let mut seen = String::new();
    while !(seen.contains(&last) && seen.contains("run.ended") && seen.matches("run.ended").count() == 2) {
        seen += &feed.chunk().expect("the feed goes on");
    }
    for line in seen.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["session"], session, "{event}");
    }
    let mut everything = String::new();
    while !(everything.contains(&last) && everything.matches("run.ended").count() == 2) {
        everything += &all.chunk().expect("the feed goes on");
    }
    assert!(everything.contains(&other) && everything.contains(&second));
    // What it may do, it can; and it cannot begin what it may not see.
    assert_eq!(get(&format!("/v1/runs/{own}/result")).status, 200);
    let submit = |body: &Value| served.send_as(&limited, ("POST", "/v1/runs"), body).status;
    assert_eq!(submit(&json!({ "input": "x", "session": "own" })), 202);
    assert_eq!(submit(&json!({ "input": "x", "agent": "asker" })), 403);
    assert_eq!(submit(&json!({ "input": "x" })), 403, "the agent would be `default`");
    assert_eq!(served.get(&format!("/v1/runs/{other}")).json()["state"], "parked", "nothing has touched it");
    let asker = served.limited_token("asker", "asker");
    let allow = ("POST", &*format!("/v1/approvals/{call}/allow"));
    let always = served.send_as(&asker, allow, &json!({ "scope": "always" }));
    assert_eq!(always.status, 403, "a rule for always holds for all agents");
    assert_eq!(served.send_as(&asker, allow, &json!({ "scope": "run" })).status, 200);
}

#[test]
fn a_run_whose_agent_is_gone_goes_on_with_the_strictest_rules() {
    let mut served = start();
    let run = served.post("/v1/runs", &json!({ "input": "wait", "agent": "writer", "session": "w" }));
    let run = run.json()["run"].as_str().unwrap().to_owned();
    until("the command runs", || served.world.work().join("ran").exists());
    served.kill();
    served.world.configure("");
    served.start_noting(Some(&format!("run {run} belongs to the agent `writer`, which is not configured")));
    served.world.release();
    let ended = served.get(&format!("/v1/runs/{run}/wait?timeout=60s")).json();
    assert_eq!(ended["outcome"], "completed", "{ended}");
    assert_eq!(served.get(&format!("/v1/runs/{run}")).json()["agent"], "writer");
    assert!(!served.world.work().join("made").exists(), "its calls may only read");
    let next = served.post("/v1/runs", &json!({ "input": "x", "session": "w" }));
    assert_eq!(next.status, 422);
    assert!(next.text().contains("there is no agent `writer`; there are: default"));
    fs::remove_file(served.world.work().join("ran")).unwrap();
}

#[test]
fn each_agent_asks_its_own_models() {
    let world = World::new();
    let endpoint = |name: &str| {
        let script = json!({ "name": name, "scripts": [{ "steps": [{ "say": format!("I am {name}") }] }] });
        let path = world.state().with_file_name(format!("{name}.json"));
        fs::write(&path, script.to_string()).unwrap();
        let mut running = world.running(&["rehearse", path.to_str().unwrap()]);
        let mut url = String::new();
        BufReader::new(running.child().stdout.take().unwrap()).read_line(&mut url).unwrap();
        let url = url.trim().to_owned();
        (running, url)
    };
    let ((_one, first), (_other, second)) = (endpoint("one"), endpoint("two"));
    world.configure(&format!(
        "[providers.a]\nbase_url = \"{first}\"\nmodel = \"one\"\n[providers.b]\nbase_url = \"{second}\"\nmodel = \"two\"\n\
         [agents.default]\nmodel = \"a/one\"\n[agents.other]\nmodel = \"b/two\"\n"
    ));
    let answer = |args: &[&str]| {
        let result: Value = serde_json::from_str(&world.ok(&[&["run", "--json"], args].concat())).unwrap();
        result["answer"].as_str().unwrap_or_default().to_owned()
    };
    assert!(answer(&["hello"]).contains("I am one"));
    assert!(answer(&["--agent", "other", "hello"]).contains("I am two"));
    assert!(answer(&["--resume", "last", "and again"]).contains("I am two"));
}
