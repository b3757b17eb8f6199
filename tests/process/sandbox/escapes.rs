//! Attempts to leave the sandbox. Each must fail.

use std::{
    fs,
    net::TcpListener,
    os::unix::{fs::MetadataExt as _, net::UnixListener},
};

use hermod::process::{
    runner::{Runner, RunnerOutcome, SpoolName},
    sandbox::NetworkAccess,
};

use super::{Cell, HERMOD, ended, exists, name, python};

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn the_workspace_and_the_temporary_folder_are_writable() {
    let cell = Cell::new();
    let printed = cell
        .allows(
            "echo new > new && mkdir -p a/b && mv new a/b && ln a/b/new hard && ln -s known soft && cat soft \
             && echo t > $TMPDIR/t && cat $TMPDIR/t && mv $TMPDIR/t back && rm -r a hard && echo x > /dev/null",
        )
        .await;
    assert_eq!(printed, "knownt\n");
    assert_eq!(cell.text("work/back"), "t\n");
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn nothing_outside_is_written() {
    let cell = Cell::new();
    std::os::unix::fs::symlink(cell.at("outside"), cell.at("work/link")).unwrap();
    for script in [
        "echo x > $1/outside/file",
        "echo x > $1/outside/new",
        "echo x > link/file",
        "echo x > /proc/self/root$1/outside/file",
        "echo x > /proc/self/cwd/../outside/file",
        "rm $1/outside/file",
        "mv $1/outside/file .",
        "mv known $1/outside/known",
        "ln $1/outside/file hard",
        "ln known $1/outside/known",
        "mkdir $1/outside/folder",
        "truncate -s 0 $1/outside/file",
        "touch $1/new",
        "mknod device b 1 1",
        "cd $1/outside && echo x > file",
        "mkfifo $1/outside/pipe",
        "ln -s x $1/outside/soft",
    ] {
        cell.refuses(script).await;
    }
    assert_eq!(fs::read_dir(cell.at("outside")).unwrap().count(), 1);
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn modes_owners_and_times_outside_are_not_changed() {
    let cell = Cell::new();
    let scripts = [
        "chmod 777 $1/outside/file",
        "chmod 777 /proc/self/root$1/outside/file",
        "chown 12345 $1/outside/file",
        "touch -d 2001-01-01 $1/outside/file",
        "ln -s $1/outside/file soft && chmod 777 soft",
        "python3 -c 'import os, sys; os.setxattr(sys.argv[1] + \"/outside/file\", \"user.x\", b\"x\")' $1",
    ];
    let state = || {
        let file = fs::metadata(cell.at("outside/file")).unwrap();
        (file.mode(), file.uid(), file.modified().unwrap(), (file.ctime(), file.ctime_nsec()))
    };
    let before = state();
    for script in scripts {
        cell.refuses(script).await;
        fs::remove_file(cell.at("work/soft")).unwrap_or_default();
    }
    assert_eq!(state(), before);
    let inside = "chmod 751 known && touch -d 2001-01-01 known && touch $TMPDIR/t && chmod 700 $TMPDIR/t && stat -c %a known";
    assert_eq!(cell.allows(inside).await, "751\n");
    assert_eq!(cell.run_detached(inside).await.stdout, "751\n");
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn what_is_exposed_in_a_covered_folder_keeps_its_rights() {
    let mut cell = Cell::new();
    cell.workspace = String::new();
    for folder in ["state/skills/deep", "state/cache", "folder/secret"] {
        fs::create_dir_all(cell.at(folder)).unwrap();
    }
    fs::write(cell.at("state/skills/script"), "echo skilled").unwrap();
    fs::write(cell.at("folder/secret/key"), "key").unwrap();
    cell.rules.read = vec![cell.at("state/skills"), cell.at("state/skills/script")];
    cell.rules.write = vec![cell.at("state/cache")];
    cell.rules.hide.push(cell.at("folder/secret"));
    assert_eq!(
        cell.allows("sh $1/state/skills/script && echo x > $1/state/cache/x && echo y > $1/folder/new").await,
        "skilled\n"
    );
    for script in [
        "echo x > $1/state/skills/script",
        "echo x > $1/state/skills/new",
        "chmod 777 $1/state/skills/script",
        "mv $1/state/skills/script $1/script",
        // Out of its cover, for the next command.
        "mv $1/folder $1/other",
        "mv $1/folder/secret $1/other",
        "cat $1/folder/secret/key",
    ] {
        cell.refuses(script).await;
    }
    assert_eq!(cell.text("state/skills/script"), "echo skilled");
    assert_eq!(cell.text("state/cache/x"), "x\n");
    let user = cell
        .run_as_user("echo x > $1/state/skills/script; mv $1/folder $1/other; cat $1/state/skills/script")
        .await;
    assert_eq!(user.stdout, "echo skilled", "{user:?}");
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn an_ordinary_user_changes_no_modes_outside() {
    let cell = Cell::new();
    let end = cell.run_as_user("chmod 777 $1/outside/file; chmod 700 known && stat -c %a known").await;
    assert_eq!(end.stdout, "700\n", "{end:?}");
    assert_eq!(fs::metadata(cell.at("outside/file")).unwrap().mode() & 0o777, 0o644);
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn what_changes_between_two_commands_of_a_runner_counts() {
    let mut cell = Cell::new();
    fs::create_dir_all(cell.at("outside/tools/bin")).unwrap();
    fs::write(cell.at("outside/tools/bin/tool"), "tool").unwrap();
    cell.rules.read.push(cell.at("outside/tools"));
    let secret = cell.at("outside/tools/secret");
    cell.rules.hide.push(secret.clone());
    let runner = Runner::new(HERMOD, &cell.at("state"));
    let mut attempt = 0;
    let mut run = async |script: &str| {
        attempt += 1;
        let name = SpoolName { attempt, ..name() };
        let live = runner.start(name, cell.command(script)).await.unwrap();
        match live.wait(&cell.cancel).await {
            RunnerOutcome::Ended(exit) => ended(exit.end.expect("it starts")),
            other @ (RunnerOutcome::NeverBegun(_) | RunnerOutcome::Unknown | RunnerOutcome::Killed) => {
                panic!("{other:?}")
            }
        }
    };
    assert_eq!(run("cat $1/outside/tools/bin/tool").await.stdout, "tool");
    // A secret that appears in a granted folder is hidden, though the sandbox of the command before is kept.
    fs::write(&secret, "secret").unwrap();
    let end = run("cat $1/outside/tools/secret; cat $1/outside/tools/bin/tool").await;
    assert_eq!(end.stdout, "tool", "{end:?}");
    // The folder is granted by its entries now. A new one is seen.
    fs::write(cell.at("outside/tools/new"), "new").unwrap();
    assert_eq!(run("cat $1/outside/tools/new").await.stdout, "new");
    // And so is the folder as a whole, once the secret is gone.
    fs::remove_file(&secret).unwrap();
    assert_eq!(run("ls $1/outside/tools").await.stdout, "bin\nnew\n");
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn state_and_credentials_are_not_read() {
    let cell = Cell::new();
    let shadow = if exists("/etc/shadow".as_ref()) { "cat /etc/shadow" } else { "false" };
    for script in [
        "cat $1/state/control.token",
        "ls $1/state",
        "cat $1/outside/file",
        "cat /proc/self/root$1/state/control.token",
        "cp $1/state/control.token mine",
        "cp -r $1/state mine",
        "mv $1/state mine",
        "ln $1/state/control.token mine",
        "ln -s $1/state/control.token soft; cat soft",
        "ls $1/state/spool",
        "cat /proc/$PPID/environ",
        "cat /proc/$PPID/cwd/Cargo.toml",
        "ls -l /proc/$PPID/fd/",
        "head -c 1 /dev/mem",
        shadow,
    ] {
        cell.refuses(script).await;
    }
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn credentials_inside_of_a_granted_folder_are_not_read() {
    let mut cell = Cell::new();
    fs::create_dir_all(cell.at("outside/deep/er")).unwrap();
    fs::write(cell.at("outside/deep/secret"), "secret").unwrap();
    fs::write(cell.at("outside/deep/er/open"), "open").unwrap();
    fs::write(cell.at("outside/deep/open"), "open").unwrap();
    cell.rules.hide.push(cell.at("outside/deep/secret"));
    cell.rules.read.push(cell.at("outside"));
    assert_eq!(
        cell.allows("cat $1/outside/deep/er/open $1/outside/deep/open $1/outside/file").await,
        "openopenoutside"
    );
    cell.refuses("cat $1/outside/deep/secret").await;
    cell.refuses("echo x > $1/outside/deep/open").await;
    cell.rules.write.push(cell.at("outside/deep/er"));
    cell.allows("echo x > $1/outside/deep/er/open").await;
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn a_path_inside_of_a_hidden_folder_can_be_granted() {
    let mut cell = Cell::new();
    fs::create_dir(cell.at("state/skills")).unwrap();
    fs::write(cell.at("state/skills/script"), "echo skilled").unwrap();
    cell.rules.read.push(cell.at("state/skills"));
    assert_eq!(cell.allows("sh $1/state/skills/script").await, "skilled\n");
    cell.refuses("echo x > $1/state/skills/script").await;
    cell.refuses("cat $1/state/control.token").await;
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn a_read_only_sandbox_writes_only_temporary_files() {
    let mut cell = Cell::new();
    cell.rules.mode = hermod::process::sandbox::SandboxMode::ReadOnly;
    assert_eq!(cell.allows("cat known && echo x > $TMPDIR/x").await, "known");
    cell.refuses("echo x > known").await;
    cell.refuses("echo x > new").await;
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn the_network_is_out_of_reach_unless_it_is_on() {
    let mut cell = Cell::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect =
        python(&format!("import socket; socket.create_connection((\"127.0.0.1\", {port})).close()"));
    cell.refuses(&connect).await;
    for kind in [
        "AF_INET, socket.SOCK_DGRAM",
        "AF_INET6",
        "AF_NETLINK, socket.SOCK_RAW",
        "AF_UNIX",
        "AF_PACKET, socket.SOCK_RAW",
    ] {
        cell.refuses(&python(&format!("import socket; socket.socket(socket.{kind})"))).await;
    }
    cell.allows(&python("import socket; a, b = socket.socketpair(); a.send(b\"x\"); b.recv(1)")).await;
    cell.rules.network = NetworkAccess::On;
    cell.allows(&connect).await;
    cell.refuses(&python("import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)")).await;
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn pairs_of_sockets_reach_only_each_other() {
    let cell = Cell::new();
    let stream =
        python("import socket; a, b = socket.socketpair(); a.send(b\"x\"); print(b.recv(1).decode())");
    assert_eq!(cell.allows(&stream).await, "x\n");
    cell.refuses(&python("import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)")).await;
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn sockets_of_others_are_out_of_reach() {
    use std::os::linux::net::SocketAddrExt;
    let mut cell = Cell::new();
    cell.rules.unix_sockets = true;
    let name = cell.dir.path().to_str().unwrap().replace('/', "_");
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    let connect = format!("import socket; socket.socket(socket.AF_UNIX).connect(\"\\0{name}\")");
    cell.refuses(&python(&connect)).await;
    cell.allows(&python("import socket; s = socket.socket(socket.AF_UNIX); s.bind(\"own\"); s.listen(); socket.socket(socket.AF_UNIX).connect(\"own\")")).await;
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn other_processes_are_out_of_reach() {
    let cell = Cell::new();
    let call = |number: i64, arguments: &str| {
        python(&format!(
            "import ctypes, os, sys\nr = ctypes.CDLL(None, use_errno=True).syscall({number}, {arguments})\n\
             sys.exit(0 if r >= 0 else 1)"
        ))
    };
    for script in [
        "kill -0 $PPID".to_owned(),
        "kill -TERM $PPID".to_owned(),
        call(libc_number("ptrace"), "0, 0, 0, 0"),
        call(libc_number("process_vm_readv"), "os.getppid(), 0, 0, 0, 0, 0"),
        call(libc_number("keyctl"), "0, -3, 0"),
        call(libc_number("bpf"), "0, 0, 0"),
        call(libc_number("io_uring_setup"), "1, 0"),
        call(libc_number("perf_event_open"), "0, 0, -1, -1, 0"),
        call(libc_number("unshare"), "0x10000000"),
        call(libc_number("setns"), "0, 0"),
        call(libc_number("mount"), "0, 0, 0, 0, 0"),
        "unshare -Ur true".to_owned(),
        "unshare -m true".to_owned(),
        "mount -t tmpfs none .".to_owned(),
        "prlimit --pid $PPID --nofile=1:1".to_owned(),
    ] {
        cell.refuses(&script).await;
    }
}

/// The number of a system call on this machine.
fn libc_number(name: &str) -> i64 {
    match (name, std::env::consts::ARCH) {
        ("ptrace", "x86_64") => 101,
        ("process_vm_readv", "x86_64") => 310,
        ("keyctl", "x86_64") => 250,
        ("bpf", "x86_64") => 321,
        ("perf_event_open", "x86_64") => 298,
        ("unshare", "x86_64") => 272,
        ("mount", "x86_64") => 165,
        ("setns", "x86_64") => 308,
        ("ptrace", "aarch64") => 117,
        ("process_vm_readv", "aarch64") => 270,
        ("keyctl", "aarch64") => 219,
        ("bpf", "aarch64") => 280,
        ("perf_event_open", "aarch64") => 241,
        ("unshare", "aarch64") => 97,
        ("mount", "aarch64") => 40,
        ("setns", "aarch64") => 268,
        ("io_uring_setup", _) => 425,
        other => panic!("the number of {other:?} is not known"),
    }
}

/// Makes, lists and reads in the workspace, and uses the folder for temporary files.
const WORKS: &str = "cd $1 && echo new > new && mkdir folder && ls state && rmdir folder && cat work/known \
    && echo t > $TMPDIR/t && cat $TMPDIR/t";

/// A workspace that contains the state directory, as the home folder does.
#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn a_state_directory_inside_of_the_workspace_is_hidden() {
    let mut cell = Cell::new();
    cell.workspace = String::new();
    fs::write(cell.at("state/store"), "the store").unwrap();
    for end in [cell.run(WORKS).await, cell.run_detached(WORKS).await] {
        assert_eq!((end.code, &*end.stdout), (Some(0), "tmp\nknownt\n"), "{end:?}");
    }
    fs::remove_dir_all(cell.at("state/spool")).unwrap();
    assert_eq!(cell.text("state/tmp/run/t"), "t\n");
    for script in [
        "cat $1/state/control.token",
        "cat $1/state/store",
        "ls $1/state | grep control",
        "echo x > $1/state/store",
        "echo x > $1/state/new",
        "rm -r $1/state",
        "mv $1/state $1/other",
        "umount $1/state",
        "ln $1/state/store $1/mine",
        "cat /proc/$PPID/root$1/state/store",
    ] {
        cell.refuses(script).await;
    }
    assert_eq!(cell.text("state/store"), "the store");
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn an_ordinary_user_is_kept_inside_as_well() {
    let mut cell = Cell::new();
    let check = async |cell: &Cell, script: &str, expected: Option<&str>| {
        let end = cell.run_as_user(script).await;
        assert_eq!((end.code == Some(0)).then_some(&*end.stdout), expected, "{script}: {end:?}");
        fs::remove_dir_all(cell.at("state/spool")).unwrap();
    };
    check(&cell, "echo x > new && cat new", Some("x\n")).await;
    for script in [
        "cat $1/state/control.token",
        "cat $1/outside/file",
        "echo x > $1/outside/file",
        "kill -0 $PPID",
        "cat /proc/$PPID/environ",
        "unshare -Ur true",
    ] {
        check(&cell, script, None).await;
    }
    cell.workspace = String::new();
    check(&cell, WORKS, Some("tmp\nknownt\n")).await;
    check(&cell, "cat $1/state/control.token", None).await;
    check(&cell, "echo x > $1/state/control.token", None).await;
    assert_eq!(cell.text("state/control.token"), "the token");
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn an_ordinary_user_cannot_start_processes_without_end() {
    let mut cell = Cell::new();
    cell.rules.limits.processes = Some(20);
    let end = cell
        .run_as_user("i=0; while [ $i -lt 1000 ] && sleep 100 & do i=$((i + 1)); done; echo $i > count")
        .await;
    assert_ne!(end.code, Some(0), "{end:?}");
    assert!(end.stderr.to_lowercase().contains("fork"), "{end:?}");
}
