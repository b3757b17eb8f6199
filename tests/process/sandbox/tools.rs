//! Programs of every day that must work in a sandbox.

use std::fs;

use super::Cell;

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn git_clones_and_commits() {
    let cell = Cell::new();
    cell.allows(
        "git init -q one && cd one && git config user.name a && git config user.email a@b && echo x > x && git add . \
         && git commit -qm first && cd .. && git clone -q one two && cat two/x && cd two && git log --oneline && git gc -q \
         && git worktree add -q ../three && git -C ../three status",
    )
    .await;
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn python_makes_an_environment_and_runs_processes() {
    let cell = Cell::new();
    cell.allows("python3 -m venv --without-pip env && env/bin/python -c 'import json, ssl, sqlite3, tempfile; print(tempfile.mkdtemp())'")
        .await;
    let printed = cell
        .allows("python3 -c 'import subprocess, threading; t = threading.Thread(target=lambda: print(1)); t.start(); t.join(); print(subprocess.check_output([\"echo\", \"2\"]))'")
        .await;
    assert_eq!(printed, "1\nb'2\\n'\n");
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn npm_installs_from_a_local_folder() {
    let cell = Cell::new();
    fs::create_dir(cell.at("work/dep")).unwrap();
    fs::write(cell.at("work/dep/package.json"), r#"{"name":"dep","version":"1.0.0","main":"i.js"}"#).unwrap();
    fs::write(cell.at("work/dep/i.js"), "module.exports = 42").unwrap();
    fs::write(
        cell.at("work/package.json"),
        r#"{"name":"a","version":"1.0.0","scripts":{"t":"node -p 6*7"}}"#,
    )
    .unwrap();
    cell.allows("npm pack -s ./dep && npm install --offline --no-audit --no-fund ./dep-1.0.0.tgz && node -p 'require(\"dep\")' && npm run t").await;
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn cargo_builds_a_crate() {
    let cell = Cell::new();
    fs::create_dir(cell.at("work/src")).unwrap();
    fs::write(cell.at("work/Cargo.toml"), "[package]\nname = \"tiny\"\nedition = \"2021\"\n").unwrap();
    fs::write(cell.at("work/src/main.rs"), "fn main() { println!(\"tiny\") }").unwrap();
    assert_eq!(cell.allows("cargo run -q --offline").await, "tiny\n");
}
