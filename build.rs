//! Tells the tests whether the recorded exchanges are there: without them, the tests that need them are ignored.

use std::{
    env,
    path::{Path, PathBuf},
};

fn main() {
    println!("cargo::rustc-check-cfg=cfg(no_recordings)");
    println!("cargo::rerun-if-changed=build.rs");
    for variable in ["HERMOD_RECORDINGS", "HERMOD_REQUIRE_RECORDINGS"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let folder = env::var_os("HERMOD_RECORDINGS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/recordings"), PathBuf::from);
    if folder.is_dir() {
        // A folder that is not there is not watched: everything would be compiled each time.
        println!("cargo::rerun-if-changed={}", folder.join("index.json").display());
    } else if env::var_os("HERMOD_REQUIRE_RECORDINGS").is_none_or(|value| value != "1") {
        println!("cargo::rustc-cfg=no_recordings");
    }
}
