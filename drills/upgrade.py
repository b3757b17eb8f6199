"""An upgrade and the way back, with runs under way: a store of an older build is opened by this one while a command of a run goes
on; the older build refuses what this one wrote, which goes on here; a backup leads back.

The older build is the program that the variable HERMOD_OLD names."""

import os
import pathlib
import subprocess
import sys

from common import WAITING, Drill, Service, table


def scripts():
    wait = {"call": [{"tool": "shell", "arguments": {"command": WAITING.format("first")}}]}
    later = {"call": [{"tool": "shell", "arguments": {"command": WAITING.format("second")}}]}
    return [
        {"when": "/^first/", "steps": [wait, {"say": "first is done"}]},
        {"when": "/^second/", "steps": [later, {"say": "second is done"}]},
        {"steps": [{"say": "hello"}]},
    ]


def starts(service, name):
    return (service.work / f"{name}.ran").read_text().count("once")


def main():
    drill = Drill(__doc__)
    old = os.environ.get("HERMOD_OLD")
    if not old:
        sys.exit("HERMOD_OLD is not set: it names the older program")
    new, rows = str(pathlib.Path(drill.options.binary).resolve()), []
    with Service(old, "", scripts()) as service:
        done = service.submit({"input": "hello"})
        service.ended(done)
        first = service.submit({"input": "first"})
        service.has_started("first")
        backup = service.root / "backup"
        service.cli("backup", "create", str(backup))
        service.kill()
        rows.append(["old", "killed while the command of a run goes on", "-"])

        service.binary = new
        service.start()
        service.release("first")
        outcome = service.ended(first)["outcome"]
        drill.check(outcome == "completed", f"the run under way ended as {outcome} after the upgrade")
        drill.check(starts(service, "first") == 1, "the command of the run under way was started again")
        drill.check(service.get(f"/v1/runs/{done}")["outcome"] == "completed", "the run of before is not to be read")
        rows.append(["new", "opens the store, takes the end of the command", outcome])
        service.cli("schedules", "add", "later", "--every", "1h", "--text", "hello")
        second = service.submit({"input": "second"})
        service.has_started("second")
        code = service.stop()
        drill.check(code == 0, f"the service ended with {code}")

        refused = subprocess.run([old, "runs", "list"], cwd=service.work, env=service.variables, capture_output=True, text=True, timeout=60)
        drill.check(refused.returncode == 74, f"the older build exits with {refused.returncode}: {refused.stdout[:200]}")
        drill.check("schema version" in refused.stderr, f"it does not name the schema: {refused.stderr}")
        rows.append(["old", "is refused", refused.stderr.strip().split(": ", 1)[-1][-70:]])

        service.start()
        service.release("second")
        outcome = service.ended(second)["outcome"]
        drill.check(outcome == "completed", f"the second run ended as {outcome}")
        drill.check(starts(service, "second") == 1, "the second command was started again")
        rows.append(["new", "goes on after the refusal", outcome])
        service.stop()

        service.binary = old
        service.cli("backup", "restore", "--replace", str(backup))
        service.start()
        outcome = service.ended(first)["outcome"]
        drill.check(outcome == "completed", f"after the way back the run ended as {outcome}")
        ends = [record for record in service.journal(first) if record["kind"] in ("call.ended", "call.lost")]
        rows.append(["old", "begins with the backup", f"{outcome}, {', '.join(one['kind'] for one in ends)}, {starts(service, 'first')} start"])
    table(["build", "does", "with"], rows)
    drill.counts["steps"] = len(rows)
    drill.end()


if __name__ == "__main__":
    main()
