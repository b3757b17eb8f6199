"""The chat in a terminal: what is seen of it, and how fast it is.

The first part drives `hermod` in tmux, if that is installed, and writes what is seen to files: streaming, a message meanwhile, an
interrupt, an approval, a diff, subagents, 40 columns, and kills of the service and of the terminal. The second part drives it on a
pseudo-terminal, and measures the first paint, the time from a key to its echo and from a delta to the screen, and CPU and memory
while 200 tokens a second stream.
"""

import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import termios
import threading
import time

from common import Drill, Service, until

TOKENS = 1_500
SCRIPTS = [
    {"when": "stream", "steps": [{"think": "I think about it.", "say": "# A list\n\nSome **bold** text with `code`, and a line that is long enough to be wrapped.\n\n"
        "- one\n- two\n\n```rust\nfn main() {\n    let x = \"text\"; // comment\n}\n```\n\n| name | value |\n| --- | --- |\n| a | 1 |\n| long name | 22 |\n\nThe end.",
        "chunk": 6, "chunk_delay": "40ms"}]},
    {"when": "change", "steps": [
        {"say": "I look.", "call": [{"tool": "shell", "arguments": {"command": "for i in 1 2 3 4 5 6 7 8; do echo line $i; done"}}]},
        {"call": [{"tool": "write_file", "arguments": {"path": "a.rs", "content": "fn main() {\n    let x = 1;\n}\n"}}]},
        {"call": [{"tool": "edit_file", "arguments": {"path": "a.rs", "edits": [{"old": "let x = 1;", "new": "let x = 2;"}]}}]},
        {"call": [{"tool": "shell", "arguments": {"command": "ls nothere"}}]},
        {"say": "Changed."}]},
    {"when": "split", "steps": [
        {"say": "Two helpers.", "call": [{"tool": "delegate_task", "arguments": {"goal": f"Count the words of {name}"}} for name in ("a.txt", "b.txt")]},
        {"say": "Both are done."}]},
    {"when": "/^Count the words/", "steps": [{"call": [{"tool": "shell", "arguments": {"command": "sleep 3; echo counted"}}]}, {"say": "42 words"}]},
    {"when": "long", "steps": [{"call": [{"tool": "shell", "arguments": {"command": "for i in $(seq 60); do echo tick $i; sleep 0.5; done"}}]}, {"say": "Over."}]},
    {"when": "danger", "steps": [{"call": [{"tool": "clarify", "arguments": {"question": "Shall I remove it?"}}]}, {"say": "You said {{result:1.1}}."}]},
    {"when": "fast", "steps": [{"say": " ".join(f"w{n:05}" for n in range(TOKENS)), "chunk": 14, "chunk_delay": "10ms"}]},
    {"steps": [{"say": "You said {{user}}."}]},
]


class Tmux:
    """A terminal in a server of its own."""

    def __init__(self, service, folder):
        self.name, self.service, self.folder = f"drill-{os.getpid()}", service, folder

    def run(self, *arguments):
        return subprocess.run(["tmux", "-L", self.name, *arguments], capture_output=True, text=True, check=False).stdout

    def open(self, *arguments):
        variables = [part for name, value in self.service.variables.items() for part in ("-e", f"{name}={value}")]
        command = " ".join([self.service.binary, *arguments]) + "; cat"
        self.run("new-session", "-d", "-x", "100", "-y", "30", "-c", str(self.service.work), *variables, command)

    def press(self, *keys):
        self.run("send-keys", *keys)

    def shows(self, part, name):
        """Waits until the screen has a text, and keeps what is seen."""
        try:
            until(part, lambda: part in self.run("capture-pane", "-p"), 30)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; the screen has:\n{self.run('capture-pane', '-p')}") from None
        (self.folder / f"{name}.txt").write_text(self.run("capture-pane", "-p"))

    def pid(self):
        shell = self.run("display-message", "-p", "#{pane_pid}").strip()
        return int(subprocess.run(["pgrep", "-P", shell], capture_output=True, text=True, check=True).stdout.split()[0])

    def close(self):
        self.run("kill-server")
        until("tmux has ended", lambda: not self.run("list-sessions"))


def captures(service, folder):
    screen = Tmux(service, folder)
    screen.open()
    try:
        screen.shows("new conversation", "1-first")
        screen.press("stream it", "Enter")
        screen.shows("• one", "2-streaming")
        screen.shows("The end.", "3-streamed")
        screen.press("change it", "Enter")
        screen.shows("Changed.", "4-tools-and-diff")
        screen.press("split it", "Enter")
        screen.shows("└─", "5-subagents")
        screen.shows("Both are done.", "6-subagents-ended")
        screen.press("long one", "Enter")
        screen.shows("tick 2", "7-output")
        screen.press("look here", "Enter")
        screen.shows("» look here", "8-steered")
        screen.press("Escape")
        screen.shows("✗ stopped", "9-stopped")
        screen.press("danger", "Enter")
        screen.shows("? Shall I remove it?", "10-question")
        screen.press("no", "Enter")
        screen.shows("You said no.", "11-answered")
        screen.run("resize-window", "-x", "40", "-y", "24")
        screen.shows("You said no.", "12-narrow")
        screen.run("resize-window", "-x", "100", "-y", "30")
        screen.press("stream again", "Enter")
        screen.shows("• one", "13-before-the-kill")
        service.kill()
        screen.shows("waits for the service", "14-service-killed")
        service.start()
        screen.shows("connected again", "15-connected-again")
        screen.shows("The end.", "16-whole-again")
        until("nothing runs", lambda: "Esc stops" not in screen.run("capture-pane", "-p"), 30)
        screen.press("long two", "Enter")
        screen.shows("tick 1", "17-before-the-terminal-dies")
        os.kill(screen.pid(), signal.SIGKILL)
        screen.close()
        screen.open("attach")
        screen.shows("tick", "18-attached")
        screen.press("Escape")
        screen.shows("✗ stopped", "19-stopped-after-attach")
    finally:
        screen.close()


class Terminal:
    """A chat on a pseudo-terminal."""

    def __init__(self, service, *arguments):
        self.begun = time.monotonic()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(service.work)
            os.execve(service.binary, [service.binary, *arguments], {**service.variables, "TERM": "xterm-256color"})
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.seen = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        while True:
            try:
                piece = os.read(self.fd, 65536)
            except OSError:
                return
            if not piece:
                return
            self.seen.append((time.monotonic(), piece))

    def when(self, part, since=0):
        """When a text was written whole, after this many pieces."""
        return until(part, lambda: next((at for at, piece in self.seen[since:] if part.encode() in piece), None), 30)

    def press(self, keys):
        os.write(self.fd, keys.encode())

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self):
        lines = pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))

    def close(self):
        os.kill(self.pid, signal.SIGTERM)
        os.waitpid(self.pid, 0)


def follow(service, session, deltas):
    """Notes when each delta of a session comes at another client of the control socket."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(service.state / "control.sock"))
        greeting = {"token": (service.state / "control.token").read_text().strip()}
        request = {"verb": "sessions.follow", "session": session}
        client.sendall((json.dumps(greeting) + "\n" + json.dumps(request) + "\n").encode())
        for line in client.makefile():
            event = json.loads(line).get("followed", {})
            if event.get("event") == "text_delta":
                deltas.append((time.monotonic(), event["delta"]))


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] * 1000


def measured(service):
    first = []
    for _ in range(10):
        terminal = Terminal(service, "chat")
        first.append(terminal.when("Hermod") - terminal.begun)
        terminal.close()
    terminal = Terminal(service, "chat")
    terminal.when("conversation")
    terminal.press("hello\r")
    terminal.when("You said")
    echoes = []
    for n in range(200):
        key, place, pressed = "abcdefghij"[n % 10], len(terminal.seen), time.monotonic()
        terminal.press(key)
        echoes.append(terminal.when(key, place) - pressed)
        time.sleep(0.02)
    terminal.press("\x15")
    session = json.loads(service.cli("sessions", "list", "--json"))[-1]["id"]
    deltas = []
    threading.Thread(target=follow, args=(service, session, deltas), daemon=True).start()
    time.sleep(0.5)
    place, cpu, begun = len(terminal.seen), terminal.cpu(), time.monotonic()
    terminal.press("fast\r")
    terminal.when(f"w{TOKENS - 1:05}", place)
    seconds, spent = time.monotonic() - begun, terminal.cpu() - cpu
    times, written = [], b"".join(piece for _, piece in terminal.seen[place:])
    for at, delta in deltas:
        for word in re.findall(r"w\d{5}", delta):
            if word.encode() in written:
                times.append(terminal.when(word, place) - at)
    result = {
        "first_paint_ms": {"median": percentile(first, 0.5), "worst": max(first) * 1000},
        "key_to_echo_ms": {"p50": percentile(echoes, 0.5), "p99": percentile(echoes, 0.99)},
        "delta_to_screen_ms": {"p50": percentile(times, 0.5), "p99": percentile(times, 0.99), "deltas": len(times)},
        "tokens_per_second": TOKENS / seconds,
        "cpu_percent_while_streaming": 100 * spent / seconds,
        "resident_mib": terminal.memory(),
    }
    terminal.close()
    return result


def main():
    drill = Drill(__doc__)
    folder = pathlib.Path("target/chat-captures")
    folder.mkdir(parents=True, exist_ok=True)
    config = 'approvals.approver = "person"\n'
    if shutil.which("tmux"):
        with Service(drill.options.binary, config, SCRIPTS) as service:
            captures(service, folder)
        drill.counts["captures"] = len(list(folder.glob("*.txt")))
    with Service(drill.options.binary, config, SCRIPTS) as service:
        drill.counts.update(measured(service))
    drill.check(drill.counts["first_paint_ms"]["median"] <= 50, "the first paint takes longer than 50 ms")
    drill.check(drill.counts["tokens_per_second"] >= 150, "the model streams too slowly to tell anything")
    drill.check(drill.counts["delta_to_screen_ms"]["deltas"] > 0, "no delta was found on the screen")
    drill.end()


if __name__ == "__main__":
    main()
