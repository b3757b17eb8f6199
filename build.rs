//! Tells the tests whether the recorded exchanges are there, and whether the kernel has all that the sandbox uses. The
//! tests that need what is missing are ignored.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// The first version of Linux whose Landlock keeps signals and abstract sockets inside of a sandbox.
const SANDBOX_KERNEL: (u32, u32) = (6, 12);

fn main() {
    println!("cargo::rustc-check-cfg=cfg(no_sandbox)");
    if kernel_version().is_none_or(|version| version < SANDBOX_KERNEL) {
        println!("cargo::rustc-cfg=no_sandbox");
    }
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

/// The version of the running Linux; `None` on other systems.
fn kernel_version() -> Option<(u32, u32)> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let mut numbers = release.split(['.', '-']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}
