//! The real binary examines the machine that it runs on.

use serde_json::Value;

use crate::world::World;

#[test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
fn the_sandbox_is_tried() {
    let world = World::new();
    let report: Value = serde_json::from_str(&world.ok(&["doctor", "sandbox", "--json"])).unwrap();
    assert_eq!((&report["mode"], &report["network"]), (&"workspace".into(), &"off".into()));
    assert_eq!(report["may_list_hosts"], true, "this user may make a network namespace");
    assert_eq!(report["missing"], serde_json::json!([]));
    let protections = report["protections"].as_array().unwrap();
    assert_eq!(protections.len(), 11, "{report}");
    // Landlock and seccomp are needed for the tests of the sandbox anyway.
    for protection in protections {
        assert_ne!(protection["outcome"], "possible", "{protection}");
    }
    let table = world.ok(&["doctor", "sandbox"]);
    assert!(table.contains("read the state directory"), "{table}");
    assert!(table.contains("This kernel enforces all of it."), "{table}");
    assert!(table.contains("sandbox.network can be a list of hosts here."), "{table}");
    let left: Vec<_> = std::fs::read_dir(world.state()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
fn a_sandbox_that_is_off_is_said() {
    let world = World::new();
    let output = world.hermod(&["doctor", "sandbox"]).env("HERMOD_SANDBOX__MODE", "off").output().unwrap();
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("The sandbox is off"), "{table}");
    let output = world.hermod(&["doctor", "sandbox"]).env("HERMOD_SANDBOX__MODE", "on").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{error}");
    assert!(error.contains("sandbox.mode = \"on\": must be \"off\", \"workspace\""), "{error}");
}
