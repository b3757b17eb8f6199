//! The built-in list of catastrophic commands: what it refuses, and what looks alike and runs.

use std::{env, fs, path::PathBuf};

use hermod::policy::{JudgementAction, Policy, PolicySettings, command::denial_reason};
use serde_json::Value;

/// One command a line; `⏎` is a newline.
const CATASTROPHES: &str = r#"
rm -rf /
rm -rf /*
rm -fr -- /
rm -r -f /
rm / -rf
rm --recursive --force /
rm --rec --no-preserve-root /
rm -rf //
rm -rf /./
rm -rf /etc/../
rm -rf ~
rm -rf ~/
rm -rf ~/*
rm -rf ~root
rm -rf "$HOME"
rm -rf "${HOME:?}"/*
rm -rf ${HOME}/.
rm -rf /home
rm -rf /home/*
rm -rf /home/alice
rm -rf /usr/lib
rm -rf /var /tmp/x
rm -Rfv /etc
rm -rf /{bin,etc}
{rm,-rf,/}
\rm -rf /
/bin/rm -rf /
'rm' -rf "/"
r"m" -r''f /
rm${IFS}-rf${IFS}/
rm$IFS-rf$IFS/
$'\x72\x6d' -rf /
$'rm' -rf $'\57'
sudo rm -rf /
sudo -u root -E rm -rf /
env -i FOO=1 rm -rf /
env -S "rm -rf /"
nohup nice -n 5 rm -rf / &
time timeout -k 3 5s rm -rf /
exec rm -rf /
command rm -rf /
busybox rm -rf /
FOO=bar rm -rf /
cd / && rm -rf *
cd /usr; cd lib; rm -rf .
cd && rm -rf ./*
true; rm -rf /
false || rm -rf /
ls | rm -rf /
ls⏎rm -rf /
(rm -rf /)
{ rm -rf /; }
if true; then rm -rf /; fi
for d in / /tmp; do rm -rf $d; done
D=/; rm -rf "$D"
export D=/ && rm -rf $D/*
X="rm -rf /"; $X
! rm -rf /
echo "$(rm -rf /)"
echo `rm -rf /`
cat <(rm -rf /)
ls # harmless⏎rm -rf /
ls \⏎; rm -rf /
sh -c 'rm -rf /'
bash -lc "cd /tmp; rm -rf /"
sudo bash -o pipefail -c 'rm -rf "$HOME"'
sh -c "sh -c 'sh -c \"rm -rf /\"'"
eval "rm -rf" /
eval 'eval "rm -rf /"'
trap 'rm -rf /' EXIT
su -c 'rm -rf /'
xargs rm -rf /
echo / | xargs rm -rf
echo / | xargs -n 1 sudo rm -rf
echo 'rm -rf /' | sh
printf '\x72\x6d -rf /' | bash
echo cm0gLXJmIC8K | base64 -d | sh
sh <<< 'rm -rf /'
bash <<EOF⏎rm -rf /⏎EOF
bash -s arg <<'EOF'⏎rm -rf /⏎EOF
bash -cl 'rm -rf /'
case x in y|x) rm -rf /;; esac
f() { rm -rf /; }; f
(cd /; (rm -rf *))
cat <<EOF⏎$(rm -rf /)⏎EOF
cat <<'EOF'⏎text⏎EOF⏎rm -rf /
find / -delete
find /etc -type f -exec rm -rf {} +
find / -exec rm -rf {} \;
find /tmp / -exec rm -rf {} +
find /tmp /var/tmp / -delete
find /tmp / -execdir sh -c 'rm -rf {}' \;
find -O3 / -delete
find -L -D tree / -exec rm -rf {} +
find -- / -delete
find . -exec sh -c 'rm -rf /' \;
mkfs.ext4 /dev/sda1
mkfs -t ext4 /dev/nvme0n1
sudo mkfs.xfs "$DISK"
wipefs -a /dev/sda
shred -n 1 /dev/vda
blkdiscard /dev/nvme0n1
sgdisk --zap-all /dev/sdb
dd if=/dev/zero of=/dev/sda bs=1M
dd of="/dev/disk/by-id/x" if=image
echo x > /dev/sda
cat image >/dev/mmcblk0
cat image | sudo tee /dev/sdb
cp image /dev/sdb
echo b > /proc/sysrq-trigger
:(){ :|:& };:
:()  {  : | :&  } ; :
bomb() { bomb | bomb & }; bomb
shutdown -h now
sudo reboot
halt -p
/sbin/poweroff
systemctl reboot
systemctl isolate poweroff.target
systemctl start soft-reboot.target
init 0
telinit 6
chmod -R 777 /
chmod --recursive 000 /etc
chown -R nobody: /
chown -hR me /usr
kill -9 -1
kill -1
kill -s KILL -- -1
kill -- -1
killall5 -9
mv /usr /tmp/usr
mv /* /tmp
rsync -a --delete empty/ /
f() { rm -rf "$1"; }; f /
alias x='rm -rf'; x /
D=/; echo $(rm -rf $D)
IFS=,; x=rm,-rf,/; $x
echo '/ fr- mr' | rev | sh
echo 726d202d7266202f | xxd -r -p | sh
parallel rm -rf ::: a /
echo 'rm -rf /' | sudo -s
bash <(echo 'rm -rf /')
echo 'rm -rf /' > x.sh; sh x.sh
ssh host 'rm -rf /'
docker exec c sh -c 'rm -rf /'
rm -rf ${X:-/}
rm -rf ${HOME:0:1}
nvme format /dev/nvme0n1
cryptsetup luksFormat /dev/sda1
parted /dev/sda mklabel gpt
"#;

const LOOK_ALIKES: &str = r#"
rm -rf ./build
rm -rf target
rm -rf node_modules/ dist
rm -rf *
rm -rf .
rm -rf /tmp/x
rm -rf /tmp/*
rm -rf "$TMPDIR/x"
rm -rf ~/project/build
rm -rf $HOME/.cache/pip
rm -rf ${BUILD_DIR}/*
rm -rf /home/alice/project/target
rm -rf /var/cache/apt/archives
rm -rf /var/lib/apt/lists/*
rm -rf /usr/local/share/old
rm -rf /opt/app/releases/1
rm -rf /...
rm -rf /.config/foo
rm -f /etc/app.conf
rm /tmp/a
rm -- -rf
rmdir /tmp/x
cd /tmp && rm -rf *
cd / && rm -rf tmp/build
cd / && ls
cd /tmp; rm -rf .
HOME=/tmp/x; rm -rf $HOME
D=build; rm -rf "$D"
for d in a b; do rm -rf $d; done
echo "rm -rf /"
echo rm -rf /
echo 'a; rm -rf /'
echo "\$(rm -rf /)"
printf '%s\n' 'rm -rf /' > notes.txt
echo 'rm -rf /' | cat
echo ok | sh script.sh
echo 'rm -rf build' | sh
echo cm0gLXJmIGJ1aWxk | base64 -d | sh
curl -fsSL https://example.com/install.sh | sh
git push --force
git commit -m "shutdown"
git commit -m 'never run rm -rf / here⏎reboot'
git reset --hard
grep -r mkfs .
grep -rn "rm -rf /" docs
sed -i 's/reboot/restart/' notes.md
cat <<'EOF' > notes⏎rm -rf /⏎EOF
cat <<-EOF⏎	shutdown -h now⏎	EOF
cat <<EOF⏎reboot⏎EOF
ls # rm -rf /
man reboot
which shutdown halt
command -v reboot
reboot --help
shutdown -c
npm run reboot
./halt
./scripts/rm -rf /
python3 shutdown.py
systemctl status reboot.target
systemctl restart nginx
init --version
find . -delete
find / -name '*.pyc' -delete
find /tmp -type f -exec rm {} +
find -O2 /tmp ./cache -exec rm -rf {} +
find . -name '*reboot*'
find / -name core -exec rm {} \;
xargs rm -rf < list
echo a b | xargs rm -rf
mkfs.ext4 -F disk.img
mkfs --help
wipefs /dev/sda
ls /dev/sda
dd if=/dev/sda of=backup.img
dd if=/dev/zero of=./file bs=1M count=1
echo x > /dev/null
echo x >&2
make 2>/dev/null >/dev/stdout
cat /dev/zero > /dev/null
cp a /dev/shm/a
cp /dev/sda1 backup.img
tee /dev/stderr
chmod -R 755 .
chmod 755 /
chmod -R u+w /tmp/x
chown -R me ~/project
chown me /etc/app.conf
kill 1234
kill -1 1234
kill -9 4711
kill -HUP 1
kill %1
kill -l
killall firefox
mv /tmp/a /tmp/b
mv build /usr
rsync -a --delete src/ dest/
rsync -a --delete src/ host:/
f() { g | g & }; f
x() { echo | cat; }; x
env
sudo -v
sudo ls /
time make
nohup ./server &
test -d / && echo yes
bash -c 'echo "rm -rf /"'
sh -c 'rm -rf build'
bash -lc "git commit -m 'reboot'"
eval "$(ssh-agent -s)"
trap 'rm -rf "$tmp"' EXIT
echo $((1 + 2)) ${x:-reboot}
case $x in a) echo reboot;; esac
case $1 in start|reboot) echo;; halt) echo;; reboot|shutdown) echo;; esac
shutdown() { echo bye; }; trap shutdown2 EXIT
awk '{ print $1 | "sort" }' file
"#;

fn lines(table: &str) -> impl Iterator<Item = String> {
    table.lines().filter(|line| !line.is_empty()).map(|line| line.replace('⏎', "\n"))
}

fn check(table: &str, expected: bool) {
    assert!(lines(table).count() >= 60);
    let wrong: Vec<_> = lines(table).filter(|command| denial_reason(command).is_some() != expected).collect();
    assert!(wrong.is_empty(), "expected refused = {expected} for {wrong:#?}");
}

#[test]
fn catastrophes_are_refused() {
    check(CATASTROPHES, true);
}

#[test]
fn what_only_looks_alike_runs() {
    check(LOOK_ALIKES, false);
}

#[test]
fn a_reason_ends_a_sentence() {
    assert_eq!(denial_reason("rm -rf /"), Some("deletes the whole system, a system folder or a whole home"));
    assert_eq!(denial_reason("reboot"), Some("stops or restarts the machine"));
}

#[test]
fn a_hostile_script_is_judged_in_bounded_time() {
    let nested = "$(".repeat(100_000);
    let braces = "{a,b}".repeat(1000);
    let doubling: String = (0..100).flat_map(|n| [format!("a{}=", n + 1), format!("$a{n}$a{n};")]).collect();
    for script in
        [&nested, &format!("rm -rf {braces}"), &format!("a0=xx;{doubling}rm -rf $a100"), &"`\"'".repeat(9999)]
    {
        denial_reason(script);
    }
    let shells = "sh -c ".repeat(3);
    assert_eq!(denial_reason(&format!("{shells} 'rm -rf /'")), None, "the second word is the script `sh`");
    let evals = "eval ".repeat(100);
    assert_eq!(denial_reason(&format!("{evals} ls")), Some("nests scripts too deeply to be judged"));
}

struct Labelled {
    question: String,
    label: String,
    command: String,
}

/// The labelled commands. A test that needs them is ignored without them (`no_recordings`, see `build.rs`).
#[track_caller]
fn recordings() -> Vec<Labelled> {
    let folder =
        env::var_os("HERMOD_RECORDINGS").map_or_else(|| PathBuf::from("../shared/recordings"), PathBuf::from);
    let path = folder.join("shell-commands/commands.jsonl");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("{}: {error}; set HERMOD_RECORDINGS to the folder with the recordings", path.display())
    });
    let read = |line: &str| {
        let row: Value = serde_json::from_str(line).expect("a line of JSON");
        let field = |name: &str| row[name].as_str().map(str::to_owned);
        Some(Labelled { question: field("question")?, label: field("label")?, command: field("command")? })
    };
    text.lines().filter_map(read).collect()
}

#[test]
#[cfg_attr(no_recordings, ignore = "the recordings are not here: see README.md, Two commands")]
fn recorded_commands_are_told_apart() {
    let recordings = recordings();
    let floor = |row: &&Labelled| row.question.contains("hardline floor");
    let catastrophes: Vec<_> =
        recordings.iter().filter(floor).filter(|row| row.label == "catastrophic").collect();
    let missed: Vec<_> =
        catastrophes.iter().filter(|row| denial_reason(&row.command).is_none()).map(|r| &r.command).collect();
    let harmless = ["not-catastrophic", "safe", "allowed-by-allowlist", "not-forced-rm"];
    let benign: Vec<_> = recordings.iter().filter(|row| harmless.contains(&row.label.as_str())).collect();
    let falsely: Vec<_> =
        benign.iter().filter(|row| denial_reason(&row.command).is_some()).map(|r| &r.command).collect();
    println!(
        "missed {} of {}, falsely refused {} of {}",
        missed.len(),
        catastrophes.len(),
        falsely.len(),
        benign.len()
    );
    assert!(catastrophes.len() >= 70 && benign.len() >= 100);
    assert!(missed.is_empty() && falsely.is_empty(), "missed {missed:#?}, falsely refused {falsely:#?}");
}

#[test]
#[cfg_attr(no_recordings, ignore = "the recordings are not here: see README.md, Two commands")]
fn recorded_dangers_do_not_run_without_an_approval() {
    let recordings = recordings();
    let state = tempfile::tempdir().unwrap();
    let policy =
        Policy::new(PolicySettings { has_approver: true, ..PolicySettings::default() }, state.path());
    let check = |label: &str, min_rows: usize, min_percent: usize| {
        let rows: Vec<_> = recordings.iter().filter(|row| row.label == label).collect();
        let runs = |row: &&&Labelled| policy.judge_command(&row.command).action == JudgementAction::Allow;
        let missed: Vec<_> = rows.iter().filter(runs).map(|row| &row.command).collect();
        println!("{label}: missed {} of {}", missed.len(), rows.len());
        assert!(rows.len() >= min_rows, "{label}: {} rows", rows.len());
        assert!(missed.len() * 100 <= rows.len() * (100 - min_percent), "{label}: missed {missed:#?}");
    };
    check("catastrophic", 70, 99);
    check("dangerous", 100, 95);
}
