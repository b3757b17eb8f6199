//! Agents over JSON-RPC: whose runs begin, and what a token finds that is limited to some.

use serde_json::{Value, json};

use crate::{agents, running::until, served::Served, socket::Socket};

/// The keys of the sessions that are listed.
#[track_caller]
fn keys(served: &Served, params: &Value) -> Vec<String> {
    let listed = served.result("sessions.list", params);
    let sessions = listed["sessions"].as_array().unwrap().iter();
    sessions.map(|session| session["key"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_call_names_the_agent_of_its_run() {
    let served = agents::start();
    let agent_of = |run: &Value| {
        let shown = served.get(&format!("/v1/runs/{}", run["runId"].as_str().unwrap())).json();
        shown["agent"].as_str().unwrap().to_owned()
    };
    let named = json!({ "message": "x", "agentId": "writer", "sessionKey": "w" });
    let first = served.result("agent", &named);
    assert_eq!(agent_of(&first), "writer");
    served.waited(&first["runId"]);
    let sent = served.result("chat.send", &json!({ "message": "x", "agentId": "reader", "sessionKey": "r" }));
    assert_eq!(agent_of(&sent), "reader");
    let same = served.result("agent", &json!({ "message": "x", "sessionKey": "w" }));
    assert_eq!(agent_of(&same), "writer", "a session has one agent");
    assert_eq!(agent_of(&served.result("agent", &json!({ "message": "x" }))), "default");

    let belongs = "agentId: the session `w` belongs to the agent `writer`";
    let (session, message) = (json!({ "sessionKey": "w" }), json!({ "sessionKey": "w", "message": "x" }));
    for (method, params) in
        [("agent", &message), ("chat.send", &message), ("chat.history", &session), ("chat.abort", &session)]
    {
        let mut params = params.clone();
        params["agentId"] = json!("reader");
        served.error(method, &params, (-32602, 422), belongs);
        params["agentId"] = json!("nobody");
        let unknown = "agentId: there is no agent `nobody`; there are: default, asker, reader, writer";
        served.error(method, &params, (-32602, 422), unknown);
    }
    assert_eq!(keys(&served, &json!({ "agentId": "writer" })), ["w"]);
    assert_eq!(
        served.result("sessions.list", &json!({ "agentId": "writer" }))["sessions"][0]["agentId"],
        "writer"
    );
    assert_eq!(keys(&served, &json!({ "agentId": "asker" })), [""; 0]);
    served.error(
        "sessions.list",
        &json!({ "agentId": "nobody" }),
        (-32602, 422),
        "there are: default, asker",
    );
}

#[test]
fn a_limited_token_finds_nothing_of_another_agents() {
    let mut served = agents::start();
    let own = served.run_as("writer", &json!({ "input": "hello", "session": "own" }));
    // A run under way, which could be steered and stopped.
    let other = served.post("/v1/runs", &json!({ "input": "wait", "agent": "asker", "session": "other" }));
    let other = other.json()["run"].as_str().unwrap().to_owned();
    until("the command runs", || served.world.work().join("ran").exists());
    let limited = served.limited_token("limited", "writer");
    let everything = std::mem::replace(&mut served.token, limited);

    let hidden = |method: &str, params: Value| served.error(method, &params, (-32004, 404), "there is no ");
    hidden("agent.wait", json!({ "runId": other, "timeoutMs": 1 }));
    hidden("chat.history", json!({ "sessionKey": "other" }));
    hidden("chat.abort", json!({ "sessionKey": "other" }));
    hidden("chat.abort", json!({ "sessionKey": "own", "runId": other }));
    hidden("chat.send", json!({ "sessionKey": "other", "message": "x" }));
    hidden("chat.send", json!({ "sessionKey": "other", "message": "x", "agentId": "writer" }));
    hidden("agent", json!({ "sessionKey": "other", "message": "x" }));
    hidden("agent", json!({ "sessionId": "other", "message": "x", "agentId": "writer" }));
    let refused = |method: &str, params: Value| {
        served.error(method, &params, (-32003, 403), "may not use the agent `asker`");
    };
    refused("agent", json!({ "message": "x", "agentId": "asker" }));
    refused("chat.send", json!({ "sessionKey": "new", "message": "x", "agentId": "asker" }));
    refused("sessions.list", json!({ "agentId": "asker" }));
    served.error("agent", &json!({ "message": "x" }), (-32003, 403), "may not use the agent `default`");
    let unknown = json!({ "message": "x", "agentId": "nobody" });
    served.error("agent", &unknown, (-32602, 422), "there is no agent `nobody`; there are: writer");
    let page = served.result("sessions.list", &json!({ "limit": 1 }));
    assert_eq!((&page["sessions"][0]["key"], &page["hasMore"]), (&json!("own"), &json!(false)));
    assert_eq!(keys(&served, &json!({ "limit": 1, "offset": 1 })), [""; 0], "hidden sessions take no place");

    // Events: neither by name, nor among those of all.
    let mut socket = Socket::rpc(&served, &served.token);
    for params in [json!({ "runId": other }), json!({ "sessionKey": "other" })] {
        let answer = socket.call("events.subscribe", &params);
        assert_eq!(answer["error"]["code"], -32004, "{answer}");
    }
    let answer = socket.call("events.subscribe", &json!({ "all": true, "after": "0.0" }));
    assert!(answer["result"]["subscription"].is_string(), "{answer}");
    let last = served.result("agent", &json!({ "message": "bye", "sessionKey": "own" }));
    let mut ended = 0;
    while ended < 2 {
        let event = &socket.next()["params"]["event"];
        assert_eq!(event["session"], last["sessionId"], "{event}");
        ended += usize::from(event["kind"] == "run.ended");
    }

    // What is its own, it finds.
    assert_eq!(served.waited(&json!(own))["status"], "ok");
    assert_eq!(served.result("chat.history", &json!({ "sessionKey": "own" }))["totalMessages"], 4);
    let aborted = served.result("chat.abort", &json!({ "sessionKey": "own" }));
    assert_eq!(aborted["aborted"], false);

    served.token = everything;
    let steered = served.world.ok(&["journal", "other"]);
    assert!(!steered.contains("steered"), "nothing has touched it: {steered}");
    let wait = served.result("agent.wait", &json!({ "runId": other, "timeoutMs": 1 }));
    assert_eq!(wait["state"], "running");
    served.result("chat.abort", &json!({ "sessionKey": "other" }));
    served.world.release();
}
