"""Show 7: expectations of a run that hold, fail, hold at the second try, or hang, also over a kill while they are checked.

A miss is told to the model once; if something misses again, the run is `failed` with the cause `expectation`, and never `completed`."""

import os

from common import WAITING, Drill, Service, table, until

WRITE = [{"tool": "write_file", "arguments": {"path": "report.json", "content": '{"count": 3}'}}]
SCHEMA = {"type": "object", "properties": {"count": {"type": "integer", "minimum": 1}}, "required": ["count"]}
SAY = {"say": "It is done.", "repeat": "forever"}


def scripts():
    return [
        {"when": "/^at once/", "steps": [{"call": WRITE}, SAY]},
        {"when": "/^second/", "steps": [{"say": "It is done."}, {"call": WRITE}, SAY]},
        {"steps": [SAY]},
    ]


REPORT = {"kind": "file", "path": "report.json", "not_empty": True, "newer": True}
CASES = {
    # A case: the task, what is expected, and the outcome, with the checks that the journal has and the ones that miss at the end.
    "all hold": ("at once", [REPORT, {"kind": "schema", "path": "report.json", "schema": SCHEMA}], "completed", 1, []),
    "a command holds": ("at once", [{"kind": "command", "command": "grep -q 3 report.json"}], "completed", 1, []),
    "the answer has a text": ("say", [{"kind": "text", "contains": "done"}], "completed", 1, []),
    "second try": ("second", [REPORT], "completed", 2, []),
    "no file": ("say", [{"kind": "file", "path": "none.txt"}], "failed", 2, [0]),
    "another text": ("say", [{"kind": "text", "contains": "done"}, {"kind": "text", "contains": "all green"}], "failed", 2, [1]),
    "a schema fails": ("at once", [{"kind": "schema", "path": "report.json", "schema": {"required": ["total"]}}], "failed", 2, [0]),
    "a command fails": ("say", [{"kind": "command", "command": "exit 3"}], "failed", 2, [0]),
    "a command hangs": ("say", [{"kind": "command", "command": "echo $$ >> pids; exec sleep 600", "timeout_s": 1}], "failed", 2, [0]),
    "killed in a check": ("say", [{"kind": "command", "command": WAITING.format("check")}], "completed", 1, []),
    "killed, and fails": ("say", [{"kind": "command", "command": WAITING.format("fail") + "; exit 1"}], "failed", 2, [0]),
}


def tries(drill, name, case):
    """Runs a case in a service of its own; its row of the table."""
    task, expects, outcome, checks, misses = case
    with Service(drill.options.binary, "", scripts()) as service:
        run = service.submit({"input": f"{task}: {name}", "expects": expects})
        kills = 0
        if name.startswith("killed"):
            file = "check" if outcome == "completed" else "fail"
            service.has_started(file)
            service.restart()
            again = lambda: (service.work / f"{file}.ran").read_text().count("once") >= 2
            until("the command checks again", again)
            service.release(file)
            kills = service.kills
        service.ended(run)
        result = service.get(f"/v1/runs/{run}/result")
        verified = [record for record in service.journal(run) if record["kind"] == "run.verified"]
        missed = [one["n"] for one in result.get("misses") or []]
        drill.check(result["outcome"] == outcome, f"{name}: the run is {result['outcome']}, not {outcome}")
        drill.check(missed == misses, f"{name}: {missed} miss, not {misses}")
        drill.check(len(verified) == checks, f"{name}: {len(verified)} checks are recorded, not {checks}")
        if outcome == "failed":
            drill.check(result["cause"] == "expectation", f"{name}: the cause is {result['cause']}")
        pids = service.work / "pids"
        for pid in pids.read_text().split() if pids.exists() else []:
            until("the command that hung is ended", lambda: not os.path.exists(f"/proc/{pid}"))
        reasons = [one["reason"] for one in result.get("misses") or []]
        return [name, result["outcome"], len(verified), kills, "; ".join(reasons)[:70] or "-"]


def main():
    drill = Drill(__doc__)
    names = list(CASES)
    drill.random.shuffle(names)
    rows = {name: tries(drill, name, CASES[name]) for name in names}
    table(["case", "the run is", "checks", "kills", "misses"], [rows[name] for name in CASES])
    drill.counts["cases"] = len(rows)
    drill.end()


if __name__ == "__main__":
    main()
