//! `hermod policy`: verdicts on commands, and the list of rules.

use std::{
    fs,
    io::Write as _,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A state directory with a configuration of its own.
struct PolicyWorld(TempDir);

impl PolicyWorld {
    fn new(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("hermod.toml"), config).unwrap();
        fs::create_dir(folder.path().join("state")).unwrap();
        Self(folder)
    }

    /// Runs `hermod policy` with this input.
    fn run(&self, args: &[&str], input: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hermod"));
        command.arg("policy").args(args).env_clear().env("HERMOD_HOME", self.0.path().join("state"));
        command.env("HERMOD_CONFIG", self.0.path().join("hermod.toml"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A usage error closes the input unread.
        let _unread = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// The JSON that a successful command prints.
    #[track_caller]
    fn json(&self, args: &[&str], input: &str) -> Value {
        let output = self.run(args, input);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    #[track_caller]
    fn check(&self, command: &str, verdict: &str, rule: Option<&str>) -> Value {
        let found = self.json(&["check", "--json", command], "");
        assert_eq!(
            (&found["verdict"], &found["rule"]),
            (&json!(verdict), &json!(rule)),
            "{command}: {found}"
        );
        found
    }
}

#[test]
fn the_verdict_on_a_command_names_the_rule_and_the_part() {
    let world = PolicyWorld::new("");
    world.check("ls -la", "allow", None);
    world.check("sudo rm -rf /", "deny", Some("hard-wipe"));
    let found = world.check("cd x && git  push -'f'", "deny", Some("git-force-push"));
    assert_eq!(found["reduced_to"], "git push -f");
    assert!(found["why"].as_str().unwrap().contains("no person answers"), "{found}");
    let found = world.json(&["check", "--json", "-"], "echo hi\nrm -f /x\n");
    assert_eq!((&found["rule"], &found["reduced_to"]), (&json!("forced-delete"), &json!("rm -f /x")));
    let text = world.run(&["check", "reboot"], "");
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.starts_with("deny: it stops or restarts the machine\nrule: hard-power\n"), "{text}");
}

#[test]
fn the_rules_of_the_configuration_are_applied_in_their_order() {
    let config = r#"
        policy.deny = ["shell(git push * main)"]
        policy.allow = ["shell(git push *)", "shell(reboot)"]
        policy.ask = ["shell(cargo publish*)"]
        approvals.approver = "person"
    "#;
    let world = PolicyWorld::new(config);
    world.check("git push -f origin x", "allow", None);
    world.check("git push -f origin main", "deny", Some("shell(git push * main)"));
    world.check("git push -f origin x; rm -f /y", "ask", Some("forced-delete"));
    world.check("cargo publish --dry-run", "ask", Some("shell(cargo publish*)"));
    world.check("reboot", "deny", Some("hard-power"));
    let approved = r#"{"allow": ["shell(rm -f /y)"]}"#;
    fs::write(world.0.path().join("state/approved-rules.json"), approved).unwrap();
    world.check("git push -f origin x; rm -f /y", "allow", None);
    let rules = world.json(&["list", "--json"], "");
    let rules = rules.as_array().unwrap();
    let place = |rule: &str| rules.iter().position(|row| row["rule"] == rule).unwrap();
    let order = ["hard-wipe", "shell(git push * main)", "shell(git push *)", "shell(rm -f /y)"];
    let order = order.into_iter().chain(["shell(cargo publish*)", "unknown-script", "policy.mode"]);
    let places: Vec<_> = order.map(place).collect();
    assert!(places.is_sorted(), "{places:?}");
    assert_eq!(rules[place("hard-wipe")]["origin"], "built in");
    assert_eq!(rules[place("shell(rm -f /y)")]["origin"], "approved-rules.json");
    assert!(rules[place("shell(git push *)")]["origin"].as_str().unwrap().contains("hermod.toml"));
}

#[test]
fn wrong_usage_and_wrong_rules_are_named() {
    let check = |config: &str, args: &[&str], code: i32, expected: &str| {
        let output = PolicyWorld::new(config).run(args, "");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        assert!(text.contains(expected), "{args:?}: {text}");
    };
    check("", &["check"], 2, "COMMAND");
    check("", &["check", " "], 2, "the command is empty");
    check("", &["check", "-"], 2, "the command is empty");
    check("policy.mode = \"on\"", &["list"], 78, "must be \"allow\", \"ask\" or \"deny\"");
    check("policy.deny = [\"shell(x\"]", &["list"], 78, "`shell(x` is no rule: the closing `)`");
    check("policy.deny = \"shell\"", &["list"], 78, "must be a list of rules");
    check("approvals.approver = \"me\"", &["list"], 78, "must be \"none\" or \"person\"");
}

#[test]
fn damaged_approved_rules_count_for_nothing_and_are_named() {
    let world = PolicyWorld::new("");
    fs::write(world.0.path().join("state/approved-rules.json"), "{\"allow\": [\"shell\"").unwrap();
    world.check("rm -f /y", "deny", Some("forced-delete"));
    let output = world.run(&["list"], "");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(74), "{text}");
    assert!(text.contains("approved-rules.json: it is damaged"), "{text}");
}
