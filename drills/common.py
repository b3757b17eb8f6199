"""What the drills share: a world of temporary folders, a service that is killed, and the verdict."""

import argparse
import http.client
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

# A command that notes its start and waits for its file `NAME.go`; it ends by itself when the workspace is gone.
WAITING = "echo once >> {0}.ran; while [ -e {0}.ran ] && [ ! -e {0}.go ]; do sleep 0.02; done"


def until(what, holds, seconds=60):
    """Waits until `holds()` is true, and returns what it returned; raises `TimeoutError` after `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = holds()
        if found:
            return found
        time.sleep(0.02)
    raise TimeoutError(f"not within {seconds} s: {what}")


class Service:
    """`hermod serve` with a state, a workspace and a configuration of its own, in a temporary folder."""

    def __init__(self, binary, config, script=None, model="drill", **variables):
        self.binary, self.process = str(pathlib.Path(binary).resolve()), None
        self.kills, self.submitted = 0, 0
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="drill-"))
        self.work, self.state, self.log = self.root / "work", self.root / "state", self.root / "log"
        self.work.mkdir()
        self.variables = {
            "PATH": os.environ["PATH"], "HERMOD_HOME": str(self.state), "HERMOD_CONFIG": str(self.root / "hermod.toml"),
            "MOCK": "key-of-the-mock", **variables,
        }
        self.configure(config)
        self.options = []
        if script is not None:
            (self.root / "script.json").write_text(json.dumps({"name": model, "scripts": script}))
            self.options = [f"--rehearse={self.root / 'script.json'}"]
        self.token = self.cli("tokens", "create", "--name", "drill", "--scopes", "admin").split()[-1]
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.process:
            self.kill()
        if kind:
            print(self.log.read_text(errors="replace")[-3000:], file=sys.stderr)
        shutil.rmtree(self.root, ignore_errors=True)

    def configure(self, text):
        (self.root / "hermod.toml").write_text(text)

    def start(self):
        """Starts the service on its state, and waits until it is ready."""
        place = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            listen = [] if any(option.startswith("--listen") for option in self.options) else ["--listen", "127.0.0.1:0"]
            command = [self.binary, "serve", *listen, *self.options]
            self.process = subprocess.Popen(command, cwd=self.work, env=self.variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        def address():
            if self.process.poll() is not None:
                raise RuntimeError(f"the service ended with {self.process.returncode}")
            lines = self.log.read_bytes()[place:].decode(errors="replace").split("\n")[:-1]
            return next((line.split("://")[1].strip() for line in lines if line.startswith("serving")), None)

        self.address = until("the service serves", address)

    def until_ready(self):
        """Waits until it takes new work, which it refuses for a while after repeated crashes."""

        def is_ready():
            with self.open("GET", "/readyz") as response:
                return response.status == 200

        until("the service takes work", is_ready)

    def kill(self):
        """Ends it with SIGKILL."""
        self.process.kill()
        self.process.wait()
        self.process, self.kills = None, self.kills + 1

    def restart(self):
        self.kill()
        self.start()

    def stop(self):
        """Ends it with SIGTERM, and returns its exit code."""
        self.process.terminate()
        code, self.process = self.process.wait(60), None
        return code

    def cli(self, *arguments):
        """Runs a command to success, and returns what it printed."""
        done = subprocess.run([self.binary, *arguments], cwd=self.work, env=self.variables, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise RuntimeError(f"{arguments}: exit {done.returncode}: {done.stderr}")
        return done.stdout

    def open(self, method, path, body=None, headers=(), token=True):
        """Sends a request, and returns the response, whose body is not read yet."""
        connection = http.client.HTTPConnection(self.address, timeout=120)
        all_headers = dict(headers)
        if token:
            all_headers["authorization"] = f"Bearer {self.token}"
        if body is not None:
            all_headers.setdefault("content-type", "application/json")
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, body, all_headers)
        return connection.getresponse()

    def call(self, method, path, body=None, headers=(), token=True):
        """Sends a request, and returns the status and the JSON value of the answer."""
        with self.open(method, path, body, headers, token) as response:
            text = response.read().decode()
        return response.status, json.loads(text) if text else None

    def get(self, path):
        status, value = self.call("GET", path)
        if status != 200:
            raise RuntimeError(f"GET {path}: {status} {value}")
        return value

    def submit(self, body):
        """Submits a run, and returns its id. Repeated crashes close the service to new work for a while (503): then its key is sent
        again."""
        self.submitted += 1
        key = {"idempotency-key": f"run {self.submitted}"}

        def accepted():
            status, value = self.call("POST", "/v1/runs", body, key)
            if status not in (202, 503):
                raise RuntimeError(f"POST /v1/runs: {status} {value}")
            return value.get("run")

        return until("the run is accepted", accepted)

    def ended(self, run):
        """Waits for the end of a run, and returns it."""
        return until(f"run {run} ends", lambda: (end := self.get(f"/v1/runs/{run}/wait?timeout=60s"))["outcome"] and end)

    def journal(self, session):
        """The records of a session, or of the session of a run."""
        return [json.loads(line) for line in self.cli("journal", session).splitlines()]

    def has_started(self, name):
        """Waits until the command `WAITING` with this name runs."""
        until(f"the command {name} runs", (self.work / f"{name}.ran").exists)

    def release(self, name):
        (self.work / f"{name}.go").touch()


class Drill:
    """The options of a drill, and its verdict."""

    def __init__(self, description, *numbers):
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("binary", help="the program hermod")
        for name, default, text in numbers:
            parser.add_argument(name, nargs="?", type=int, default=default, help=f"{text} ({default})")
        parser.add_argument("--seed", type=int, default=1, help="of what is random (1)")
        self.options = parser.parse_args()
        self.random = random.Random(self.options.seed)
        self.counts, self.misses, self.began = {}, [], time.monotonic()

    def check(self, holds, text):
        """Notes `text` as missed unless `holds`."""
        if not holds:
            self.misses.append(text)
            print(f"missed: {text}", file=sys.stderr)
        return holds

    def end(self):
        """Prints the counts and the verdict, and ends the process with it."""
        self.counts["seed"], self.counts["seconds"] = self.options.seed, round(time.monotonic() - self.began, 1)
        print(json.dumps(self.counts))
        more = f"; and {len(self.misses) - 5} more" if len(self.misses) > 5 else ""
        print("ok" if not self.misses else "NOT OK: " + "; ".join(self.misses[:5]) + more)
        sys.exit(bool(self.misses))


def table(head, rows):
    """Prints rows below their head, in columns."""
    rows = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
