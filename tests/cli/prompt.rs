//! `hermod prompt show`, that sessions begin with what it shows, and what a vendor's cache has of their requests.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
};

use serde_json::{Value, json};

use crate::{
    running::Running,
    world::{World, object, stderr},
};

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, text).expect("written");
}

/// A workspace that has something to say, and a skill.
fn world() -> World {
    let world = World::new();
    write(&world.work().join("AGENTS.md"), "Use tabs.\n");
    let skill = "---\nname: pdf\ndescription: Reads PDFs.\n---\n\n# How\n\nSee NOTES.md.\n";
    write(&world.work().join(".hermod/skills/pdf/SKILL.md"), skill);
    write(&world.work().join(".hermod/skills/pdf/NOTES.md"), "Page by page.\n");
    world
}

fn layer<'a>(shown: &'a Value, name: &str) -> &'a Value {
    let layers = shown["layers"].as_array().expect("layers");
    layers.iter().find(|layer| layer["name"] == name).expect("a layer")
}

#[test]
fn it_shows_the_layers_with_their_sizes() {
    let world = world();
    let shown = object(&world.ok(&["prompt", "show", "--json"]));
    let names: Vec<_> = shown["layers"].as_array().unwrap().iter().map(|layer| &layer["name"]).collect();
    let order =
        ["identity", "guidance", "skills", "environment", "context", "memory", "user", "date", "model"];
    assert_eq!(names, order);
    assert_eq!(layer(&shown, "skills")["text"], "Skills:\n- pdf: Reads PDFs.");
    let context = layer(&shown, "context");
    assert!(context["text"].as_str().unwrap().contains("\nUse tabs.\n"), "{context}");
    let text = shown["text"].as_str().unwrap();
    assert_eq!((&shown["bytes"], &shown["tokens"]), (&json!(text.len()), &json!(text.len() / 4)));
    assert!(!world.state().exists(), "nothing is made");
    let page = world.ok(&["prompt", "show", "--workspace", "."]);
    let bytes = context["bytes"].as_u64().unwrap();
    let row = page.lines().find(|line| line.starts_with("context ")).expect("a row");
    assert_eq!(
        row.split_whitespace().collect::<Vec<_>>(),
        ["context", &bytes.to_string(), &(bytes / 4).to_string(), "-"]
    );
    assert!(page.contains("\n\nYou are Hermod") && page.contains("\ntotal "), "{page}");
}

#[test]
fn what_is_cut_is_shown_so() {
    let world = world();
    let shown = world.hermod(&["prompt", "show", "--json"]).env("HERMOD_PROMPT__SKILLS_BYTES", "7").output();
    let shown = object(&String::from_utf8(shown.unwrap().stdout).unwrap());
    let skills = layer(&shown, "skills");
    assert_eq!((&skills["of"], &skills["text"]), (&json!(26), &json!("Skills:\n[cut: 7 of 26 bytes shown]")));
}

#[test]
fn what_does_not_do_is_told() {
    let world = world();
    world.fails(&["prompt", "show", "--workspace", "nowhere"], 2, "--workspace nowhere");
    fs::create_dir_all(world.state().join("SOUL.md")).unwrap();
    world.fails(&["prompt", "show", "--workspace", "../state"], 2, "state directory");
    world.fails(&["prompt", "show"], 78, "is a folder; mend it, or remove it");
    let script = world.script(&json!([{ "say": "done" }]));
    world.fails(&["run", &script, "hi"], 78, "the system prompt of a new session cannot be built");
    assert_eq!(world.ok(&["runs", "list", "--json"]), "[]\n", "nothing of this was accepted");
}

#[test]
fn a_session_keeps_what_it_began_with() {
    let world = world();
    let view = |arguments: Value| json!({ "call": [{ "tool": "skill_view", "arguments": arguments }] });
    let steps = json!([
        view(json!({ "name": "pdf" })),
        view(json!({ "name": "pdf", "path": "NOTES.md" })),
        view(json!({ "name": "doc" })),
        view(json!({ "name": "pdf", "path": "../../../AGENTS.md" })),
        { "say": "{{result:1.1}}|{{result:2.1}}|{{result:3.1}}|{{result:4.1}}" },
    ]);
    let shown = object(&world.ok(&["prompt", "show", "--json"]));
    let answer = world.ok(&["run", &world.script(&steps), "--session", "k", "hi"]);
    let parts: Vec<_> = answer.trim_end().split('|').collect();
    assert_eq!(&parts[..2], ["[rehearsal] # How\n\nSee NOTES.md.\n", "Page by page.\n"]);
    assert!(
        parts[2].contains("there is no such skill") && parts[2].contains("the skills are: pdf"),
        "{answer}"
    );
    assert!(parts[3].contains("leads out of the folder of skill `pdf`"), "{answer}");
    fs::remove_dir_all(world.work().join(".hermod")).unwrap();
    write(&world.work().join("AGENTS.md"), "Use spaces.\n");
    world.ok(&["run", &world.script(&json!([{ "say": "done" }])), "--session", "k", "again"]);
    let records = world.journal("k");
    let prompts: Vec<_> = records.iter().filter_map(|record| record["prompt"].as_str()).collect();
    let [prompt] = prompts[..] else { panic!("{prompts:?}") };
    // The rehearsal is another model than the one that is found here, if there is one.
    let before = |text: &str| text.split("\n\nDate: ").next().map(ToOwned::to_owned);
    assert_eq!(before(prompt), before(shown["text"].as_str().unwrap()));
    let tools = records.iter().filter_map(|record| record["spec"]["tools"].as_array());
    let offered: Vec<_> = tools.map(|tools| tools.contains(&json!("skill_view"))).collect();
    assert_eq!(offered, [true, true], "the list of skills is in its prompt");
    let other = world.ok(&["run", &world.script(&json!([{ "say": "done" }])), "--session", "l", "hi"]);
    assert_eq!(other, "[rehearsal] done\n");
    let records = world.journal("l");
    assert!(records[0]["prompt"].as_str().unwrap().contains("\nUse spaces.\n"));
    assert!(!records[0]["prompt"].as_str().unwrap().contains("skill"), "{}", records[0]["prompt"]);
}

/// Tokens that a request has read from the vendor's cache, has written to it, and neither of the two.
type Cached = (u64, u64, u64);

/// What each request of a run of 50 has of the cache, where only so many are allowed.
fn cached_of_fifty(max_turns: u32) -> Vec<Cached> {
    let world = World::new();
    write(&world.work().join("a.txt"), &"lorem ipsum ".repeat(100));
    let call = json!({ "repeat": 49, "call": [{ "tool": "read_file", "arguments": { "path": "a.txt" } }] });
    let script = world.script(&json!([call, { "say": "done" }]));
    let mut command = world.hermod(&["rehearse", script.strip_prefix("--rehearse=").unwrap()]);
    let mut model = Running::new(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut base_url = String::new();
    BufReader::new(model.child().stdout.take().unwrap()).read_line(&mut base_url).unwrap();
    let config = format!(
        "[agent]\nmax_turns = {max_turns}\nloop_guard = false\n[providers.a]\nbase_url = \"{}\"\nwire = \"anthropic_messages\"\n\
         credential = \"env:KEY\"\nmodel = \"m\"\n",
        base_url.trim()
    );
    let path = world.work().join("config.toml");
    write(&path, &config);
    let run = world.hermod(&["run", "go"]).env("HERMOD_CONFIG", path).env("KEY", "k").output().unwrap();
    assert!(run.status.success(), "{}", stderr(&run));
    let records = world.journal("last");
    let answers = records.iter().filter(|record| record["kind"] == "model.answered");
    let cached = answers.map(|answer| {
        let tokens = |name: &str| answer["usage"][name].as_u64().unwrap_or(0);
        let (read, written) = (tokens("cached_tokens"), tokens("cache_write_tokens"));
        (read, written, tokens("input_tokens") - read - written)
    });
    cached.collect()
}

#[test]
fn a_request_reads_from_the_cache_all_that_the_one_before_has_written() {
    // The second run is told near its end, in each request anew, how little it has left.
    for (max_turns, noted) in [(90, 0), (60, 2)] {
        let cached = cached_of_fifty(max_turns);
        assert_eq!(cached.len(), 50);
        assert_eq!(cached[0].0, 0);
        for pair in cached.windows(2) {
            assert_eq!(pair[1].0, pair[0].0 + pair[0].1, "{cached:?}");
        }
        let with_notes = cached.iter().filter(|(_, _, neither)| *neither > 0).count();
        assert_eq!(with_notes, noted, "{cached:?}");
    }
}
