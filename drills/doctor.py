"""`hermod doctor` on broken installations: it names what is broken, and its remedy works.

Each one is broken in another way. The check that fails must name it; then what the remedy says is done, and all is well."""

import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading

from common import Drill, table

KEY = "sk-live-0123456789abcdef"
MODELS = {"data": [{"id": "m"}]}


class Endpoint(http.server.BaseHTTPRequestHandler):
    """A list of models, for those that have the key."""

    def do_GET(self):
        known = self.headers.get("authorization") == f"Bearer {KEY}"
        body = json.dumps(MODELS if known else {"error": {"message": "no"}}).encode()
        self.send_response(200 if known else 401)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Installation:
    """A state, a configuration and an environment in which all is well."""

    def __init__(self, binary, address):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="drill-"))
        self.state, self.config, self.programs = self.root / "state", self.root / "hermod.toml", self.root / "bin"
        self.programs.mkdir()
        (self.programs / "hermod").symlink_to(pathlib.Path(binary).resolve())
        self.variables = {
            "PATH": f"{self.programs}:{os.environ['PATH']}", "HERMOD_HOME": str(self.state),
            "HERMOD_CONFIG": str(self.config), "ACME_KEY": KEY, "HOME": str(self.root),
        }
        self.well = f'model = "acme/m"\n[providers.acme]\nbase_url = "http://{address}/v1"\ncredential = "env:ACME_KEY"\n'
        self.config.write_text(self.well)
        script = {"name": "t", "scripts": [{"steps": [{"say": "hi"}]}]}
        (self.root / "script.json").write_text(json.dumps(script))
        self.run("hermod", "run", f"--rehearse={self.root / 'script.json'}", "hi")

    def run(self, *command):
        done = subprocess.run(command, cwd=self.root, env=self.variables, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise RuntimeError(f"{command}: exit {done.returncode}: {done.stderr}")
        return done.stdout

    def failures(self):
        """What the doctor finds broken: its exit code and the findings."""
        done = subprocess.run(["hermod", "doctor", "--json"], cwd=self.root, env=self.variables, capture_output=True, text=True, timeout=120)
        findings = json.loads(done.stdout)["checks"]
        if KEY in done.stdout + done.stderr:
            raise RuntimeError("the doctor shows the key")
        return done.returncode, [one for one in findings if one["result"] == "fail"]

    def add(self, text):
        self.config.write_text(self.well + text)

    def apply(self, remedy, which=0):
        """Runs a command of a remedy, which is between backticks."""
        self.run("sh", "-c", re.findall("`([^`]*)`", remedy)[which])


def executable(installation):
    hook = installation.root / "hook.sh"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o644)
    installation.add(f'[hooks.guard]\non = ["pre_tool_call"]\ncommand = "{hook} --strict"\n')


def well(installation, _):
    installation.config.write_text(installation.well)


def variable(name, value):
    return lambda installation, *_: installation.variables.update({name: value})


# What is broken: how, the check, a part of what it says, and how the remedy is carried out.
CASES = {
    "a misspelled key": (lambda i: i.add("[agent]\nmax_turn = 5\n"), "configuration", "did you mean `agent.max_turns`", lambda i, _: i.add("[agent]\nmax_turns = 5\n")),
    "a line that is no TOML": (lambda i: i.add("this is not a setting\n"), "configuration", "hermod.toml:5", well),
    "a missing file": (lambda i: i.config.unlink(), "configuration", "does not exist", lambda i, remedy: (i.variables.update(OPENAI_API_KEY=KEY, OPENAI_BASE_URL=i.well.split('"')[3]), i.apply(remedy))),
    "a key that is not set": (lambda i: i.variables.pop("ACME_KEY"), "secrets", "env:ACME_KEY", variable("ACME_KEY", KEY)),
    "a key that is refused": (variable("ACME_KEY", "sk-live-old"), "keys", "refuses the key", variable("ACME_KEY", KEY)),
    "a provider that is down": (lambda i: i.config.write_text(re.sub("http://[^/]*", "http://127.0.0.1:1", i.well)), "keys", "network", well),
    "a state that others read": (lambda i: i.state.chmod(0o755), "state", "open to other users", lambda i, remedy: i.apply(remedy)),
    "a reserve that no disk has": (lambda i: i.add('[store]\nreserve = "1000TiB"\n'), "space", "runs begin only with", lambda i, _: i.add('[store]\nreserve = "1KiB"\n')),
    "a damaged store": (lambda i: (i.state / "hermod.redb").write_text("no store"), "store", "cannot be used as a store", lambda i, remedy: i.apply(remedy, -1)),
    "a hook that may not run": (executable, "hooks", "may not be executed", lambda i, remedy: i.apply(remedy)),
    "a target without its folder": (lambda i: i.add(f'[targets.box]\nkind = "folder"\npath = "{i.root}/out/box"\n'), "targets", "is no folder", lambda i, remedy: i.apply(remedy)),
    "no provider": (lambda i: i.config.write_text('[ollama]\naddress = "127.0.0.1:1"\n'), "models", "no model provider", lambda i, _: i.variables.update(OPENAI_API_KEY=KEY, OPENAI_BASE_URL=i.well.split('"')[3])),
}


def main():
    drill = Drill(__doc__)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    rows = []
    for name, (break_it, check, part, mend) in CASES.items():
        installation = Installation(drill.options.binary, "{}:{}".format(*server.server_address))
        code, failures = installation.failures()
        drill.check(not failures and code == 0, f"{name}: it is not well before: {failures}")
        break_it(installation)
        code, failures = installation.failures()
        about = next((one for one in failures if one["check"] == check), None)
        if drill.check(about is not None and code == 1, f"{name}: {check} has not failed: exit {code}, {failures}"):
            said = f"{about['subject']}: {about['value']}"
            drill.check(part in said, f"{name}: `{part}` is not in: {said}")
            mend(installation, about["remedy"])
            code, failures = installation.failures()
            drill.check(not failures and code == 0, f"{name}: the remedy does not help: {failures}")
            rows.append([name, check, about["value"][:60], about["remedy"][:70]])
        shutil.rmtree(installation.root)
    table(["broken", "check", "found", "remedy"], rows)
    drill.counts["installations"] = len(rows)
    drill.end()


if __name__ == "__main__":
    main()
