"""Show 2: all hooks in one run that is killed, and hooks that misbehave.

A gate is asked once about what has its verdict in the journal, an observer is told of each record at least once and with one id, and a
gate that hangs, dies, floods or babbles refuses, while the service lives. `telegram.py` shows `command`, which comes from chats."""

import collections
import json
import time

from common import Drill, Service, table, until

PROMPT = ["session_bootstrap", "before_prompt_build"]
GATES = [
    "before_run", "pre_tool_call", "message_sending", "before_model_call", "post_tool_call", "tool_result_persist", "before_compaction",
]
OBSERVERS = [
    "session_start", "session_end", "run_end", "after_model_call", "after_compaction", "message_received", "message_sent",
    "subagent_start", "subagent_end", "approval_requested", "approval_answered", "service_start", "service_stop",
]
STEPS = 48
MISBEHAVIOURS = {"hangs": "sleep 60", "dies": "kill -9 $$", "floods": "yes", "babbles": "echo yes"}


def script(steps):
    """A run that meets every hook: its view is compacted, it has a subagent, sends messages, and asks a person."""

    def call(n):
        if n == 5:
            return "delegate_task", {"goal": "help with it"}
        if n % 3 == 0:
            return "message", {"target": "box", "text": f"message {n}"}
        return "shell", {"command": f"echo {n} >> done"}

    step = lambda say, tool, arguments: {"say": say, "call": [{"tool": tool, "arguments": arguments}]}
    told = [step(f"{n} " + "x" * 5_000, *call(n)) for n in range(steps)]
    told += [step("", "clarify", {"question": "Is it done?"}), {"say": "done"}]
    return [
        {"when": "/^# The (conversation|notes)/", "steps": [{"say": "Notes: so far so good."}]},
        {"when": "help with it", "steps": [{"say": "helped"}]},
        {"steps": told},
    ]


def config(ledger):
    """Each question and event is a file in the ledger, which has its name when it is whole."""
    keep = f"f=$(mktemp {ledger}/ask.XXXXXXXX) && cat > $f && mv $f $f.json || exit 1"
    text = f'[models.drill]\nwindow = 32000\n[approvals]\napprover = "person"\n[targets.box]\nkind = "folder"\npath = "{ledger}/box"\n'
    for name in PROMPT + GATES:
        text += f'[hooks.gate_{name}]\non = ["{name}"]\ncommand = "{keep}; echo \'{{\\"verdict\\":\\"allow\\"}}\'"\n'
    return text + f'[hooks.watcher]\non = {json.dumps(OBSERVERS)}\ncommand = "{keep}"\n'


class Ledger:
    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()

    def asked(self):
        """How often each id was asked about or told, by its name."""
        found = collections.defaultdict(collections.Counter)
        for path in self.folder.glob("*.json"):
            try:
                event = json.loads(path.read_text())
            except ValueError:
                continue  # the service was killed while it wrote
            found[event["name"]][event.get("id")] += 1
        return found

    def count(self):
        return len(list(self.folder.glob("*.json")))


def recorded(records):
    """The ids of the questions whose verdicts are in these records."""
    ids = set()
    for record in records:
        kind, call, attempt, hooks = record["kind"], record.get("call", ""), record.get("attempt"), record.get("hooks")
        if kind == "model.answered":
            ids.add(f"{call}/{attempt}/before_model_call")
        elif kind in ("call.admitted", "summary.started", "run.begun") and hooks:
            call = f"{record['run']}.0.0" if kind == "run.begun" else call
            ids |= {f"{call}/0/{one['point']}" for one in hooks["decisions"]}
        elif kind == "call.ended":
            ids |= {f"{call}/{attempt}/{one['point']}" for one in hooks or []}
    return ids


def events(session, records):
    """The ids of the events that these records of a session are."""
    is_child = any(record["kind"] == "run.accepted" and record.get("parent") for record in records)
    messages = {record["call"] for record in records if record["kind"] == "call.admitted" and record["tool"] == "message"}
    names = {
        "session.opened": ["session_start"], "run.accepted": ["subagent_start" if is_child else "message_received"],
        "model.answered": ["after_model_call"], "context.compacted": ["session_start", "session_end", "after_compaction"],
        "child.ended": ["subagent_end"], "approval.requested": ["approval_requested"], "approval.answered": ["approval_answered"],
        "run.ended": ["run_end"] if is_child else ["run_end", "message_sent"],
    }
    ids = set()
    for record in records:
        found = names.get(record["kind"], [])
        if record["kind"] == "call.ended" and record["call"] in messages and record["status"] == "ok":
            found = ["message_sent"]
        ids |= {f"{session}/{record['seq']}/{name}" for name in found}
    return ids


def killed_run(drill, kills):
    """Kills the service while its run goes on, and checks the ledger; the rows of the table."""
    with Service(drill.options.binary, "", script(STEPS)) as service:
        ledger = Ledger(service.root / "ledger")
        service.stop()
        service.configure(config(ledger.folder))
        service.start()
        run = service.submit({"input": "go", "timeout": "1h"})
        settled = {}
        for _ in range(kills):
            before = ledger.count()
            until("more is asked", lambda: ledger.count() > before + 1)
            time.sleep(drill.random.random() / 4)
            service.kill()
            asked = sum(ledger.asked().values(), collections.Counter())
            for one in recorded(service.journal(run)):
                settled.setdefault(one, asked[one])
            service.start()
        call = until("a person is asked", lambda: [one["call"] for one in service.get("/v1/approvals")], 120)[0]
        service.call("POST", f"/v1/approvals/{call}/answer", {"text": "yes"})
        end = service.ended(run)
        drill.check(end["outcome"] == "completed", f"the killed run is {end}")
        sessions = [one["id"] for one in json.loads(service.cli("sessions", "list", "--json"))]
        journals = {session: service.journal(session) for session in sessions}
        expected = set().union(*(events(session, records) for session, records in journals.items()))
        told = lambda: set().union(*ledger.asked().values())
        until("all is told", lambda: expected <= told())
        drill.check(service.stop() == 0, "the service does not end well")
        asked = ledger.asked()
        for records in journals.values():
            for one in recorded(records):
                times = asked[one.rsplit("/", 1)[1]][one]
                drill.check(times >= 1, f"{one} has a verdict, and was not asked about")
                drill.check(times == settled.get(one, times), f"{one} was asked about again after its verdict was recorded")
        unknown = [one for name in OBSERVERS for one in asked[name] if one not in expected and not one.startswith("service/")]
        drill.check(not unknown, f"these events are no records: {unknown[:3]}")
        done = "".join(f"{n}\n" for n in range(STEPS) if n % 3 and n != 5)
        drill.check((service.work / "done").read_text() == done, "a command was left out, or ran twice")
        drill.counts |= {"kills": service.kills, "verdicts kept over a kill": len(settled)}
        rows = []
        for name in PROMPT + GATES + OBSERVERS:
            repeats = sum(asked[name].values()) - len(asked[name])
            drill.check(asked[name], f"{name} was never asked or told")
            drill.check(name not in GATES or repeats <= service.kills, f"{name}: {repeats} repeats")
            rows.append([name, len(asked[name]), repeats])
        return rows


def misbehaving(drill):
    """A hook that misbehaves at each point: what became of the run, and what `hermod hooks list` says."""
    rows = []
    call = lambda tool, arguments, say="": {"say": say, "call": [{"tool": tool, "arguments": arguments}]}
    steps = [call("shell", {"command": "echo x"}), call("message", {"target": "box", "text": "x"}), {"say": "said"}]
    long = [call("shell", {"command": f"echo {n}"}, "x" * 5_000) for n in range(16)] + [{"say": "said"}]
    summary = {"when": "/^# The (conversation|notes)/", "steps": [{"say": "Notes: so far so good."}]}
    for how, command in MISBEHAVIOURS.items():
        with Service(drill.options.binary, "", [summary, {"when": "long", "steps": long}, {"steps": steps}]) as service:
            for point in [*PROMPT, *GATES, "run_end"]:
                service.configure(
                    f'[models.drill]\nwindow = 32000\n[targets.box]\nkind = "folder"\npath = "{service.root}/box"\n'
                    f'[hooks.bad]\non = ["{point}"]\ncommand = "{command}"\ndeadline = "200ms"\n'
                )
                service.cli("config", "reload")
                outcome, ruling = met_by_run(service, point)
                expected = {"before_run": "refused", "before_model_call": "refused"}.get(point, "completed")
                drill.check(outcome == ("rejected" if point in PROMPT else expected), f"{how} at {point}: the run is {outcome}")
                # A summary is made without the hook, and an observer decides nothing.
                expected = {"before_compaction": "failed", "run_end": "-"}.get(point, "refused")
                drill.check(ruling == expected, f"{how} at {point}: the ruling is {ruling}, not {expected}")
                drill.check(service.process.poll() is None, f"{how} at {point}: the service has ended")
                hook = lambda: json.loads(service.cli("hooks", "list", "--json"))[0]
                if (how, point) != ("babbles", "run_end"):  # what an observer answers does not matter
                    until(f"{how} at {point}: `hermod hooks list` tells it", lambda: hook()["failures"] and hook()["last_error"])
                told = hook()
                error = (told["last_error"] or "-")[:60].strip()
                rows.append([how, point, outcome, ruling, told["state"], f"{told['failures']}/{told['calls']}", error])
    return rows


def met_by_run(service, point):
    """The outcome of a new run, and what has become of the question: a ruling in its journal or in what is told of the run."""
    status, value = service.call("POST", "/v1/runs", {"input": "long" if point == "before_compaction" else "go"})
    if status != 202:
        return "rejected", "refused" if "the hook `bad` refuses" in value["detail"] else "-"
    end = service.ended(value["run"])
    found = [one["ruling"] for one in decisions(service.journal(value["run"])) if one["point"] == point]
    if "the hook `bad` refuses" in (end.get("reason") or ""):
        found.append("refused")
    return end["outcome"], found[0] if found else "-"


def decisions(value):
    """All decisions of hooks in these records."""
    if isinstance(value, dict):
        return ([value] if "ruling" in value else []) + decisions(list(value.values()))
    return [one for part in value for one in decisions(part)] if isinstance(value, list) else []


def main():
    drill = Drill(__doc__, ("kills", 20, "kills of the run"))
    rows = misbehaving(drill)
    table(["hook", "asked or told", "repeats"], killed_run(drill, drill.options.kills))
    print()
    table(["a hook that", "at", "the run is", "ruling", "state", "failures/calls", "last error"], rows)
    drill.counts["misbehaviours"] = len(rows)
    drill.end()


if __name__ == "__main__":
    main()
