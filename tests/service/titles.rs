//! Titles: a session has one after its first completed run, also after the end of its process.

use serde_json::{Value, json};

use crate::{running::until, served::Served, world::World};

/// A service whose sessions get titles if a model is named for them.
fn served(chain: &'static str) -> Served {
    let scripts = json!([
        { "when": "/^# The request/", "steps": [{ "say": "\"Stock of the folder.\"" }] },
        { "steps": [{ "say": "done" }] },
    ]);
    let settings = |_: &World| vec![("HERMOD_AUXILIARY__TITLE__CHAIN", chain.into())];
    Served::start_with((World::new(), &scripts), settings)
}

impl Served {
    #[track_caller]
    fn complete(&self, session: &str) -> String {
        let accepted = self.post("/v1/runs", &json!({ "input": "take stock", "session": session })).json();
        let run = accepted["run"].as_str().expect("a run").to_owned();
        let ended = self.get(&format!("/v1/runs/{run}/wait?timeout=60s")).json();
        assert_eq!(ended["outcome"], "completed", "{ended}");
        run
    }

    fn title(&self) -> Value {
        self.get("/v1/sessions").json()["items"][0]["title"].clone()
    }
}

#[test]
fn a_session_gets_a_title_after_its_first_run() {
    let mut served = served("acme/small");
    let run = served.complete("s");
    let title = json!("[rehearsal] \"Stock of the folder");
    until("it has a title", || served.title() == title);
    served.kill();
    served.start_again();
    assert_eq!(served.title(), title);
    let shown = served.get("/v1/sessions/s").json();
    assert_eq!(shown["title"], title, "{shown}");
    let listed = served.world.ok(&["sessions", "list"]);
    assert!(listed.contains("Stock of the folder"), "{listed}");
    let rpc = served.post("/rpc", &json!({ "jsonrpc": "2.0", "id": 1, "method": "sessions.list" })).json();
    assert_eq!(rpc["result"]["sessions"][0]["derivedTitle"], title, "{rpc}");
    // Its cost is on the account of the run.
    let tree = |run: &str| served.world.ok(&["tree", run, "--json"]);
    let tokens = |run: &str| {
        let tree: Value = serde_json::from_str(&tree(run)).unwrap();
        let of_answers =
            ["input_tokens", "output_tokens"].map(|kind| tree[0]["usage"][kind].as_u64().unwrap());
        (tree[0]["spent"]["tokens"].as_u64().unwrap(), of_answers.iter().sum::<u64>())
    };
    let further = served.complete("s");
    let journal = served.world.ok(&["journal", shown["id"].as_str().unwrap()]);
    let count = |kind: &str| journal.matches(&format!("\"{kind}\"")).count();
    assert_eq!((count("aside.started"), count("aside.answered")), (1, 1), "{journal}");
    let (spent, of_answers) = tokens(&run);
    assert!(spent > of_answers, "{spent} {of_answers}");
    let (spent, of_answers) = tokens(&further);
    assert_eq!(spent, of_answers);
}

#[test]
fn no_title_is_made_unless_a_model_is_named_for_it() {
    let served = served("");
    served.complete("s");
    served.complete("s");
    let id = served.get("/v1/sessions/s").json()["id"].as_str().unwrap().to_owned();
    let journal = served.world.ok(&["journal", &id]);
    assert!(!journal.contains("aside."), "{journal}");
    assert_eq!(served.title(), Value::Null);
}
