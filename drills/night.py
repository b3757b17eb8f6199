"""A morning: 50 scheduled runs over a short night, with outages of the provider, a full disk, kills, an approval, a loop, a budget,
a wrong key, and an occurrence that downtime missed. `hermod report` is compared with the ledger of the model.

The full disk needs root, because the state directory is then a file system of its own; without root it is left out."""

import collections
import json
import os
import subprocess
import time
from datetime import datetime, timezone

from common import Drill, Service, table, until
from endpoints import Model

# Nano-dollars of a token, which is dollars of a thousand million of them.
INPUT, OUTPUT = 1_000, 7_000
# Most nano-dollars that one call reserves: a prompt of the night, and the longest answer.
RESERVATION = 20_000 * INPUT + 2_000 * OUTPUT
# What becomes of the tasks that are not like the others.
SPECIAL = {"approval": "unfinished", "loop": "loop_detected", "budget": "budget_exhausted", "badkey": "failed", "missed": None}
SETTINGS = {
    "budget": 'budget = "iterations=2"\n',
    "badkey": 'model = "locked/m"\n',
    "missed": 'misfire = "skip"\ngrace = "1s"\n',
}


class Night:
    """The model, and when it is out of order."""

    def __init__(self, seconds):
        self.seconds, self.began = seconds, time.time() + 6
        self.model = Model(self.decide)

    def at(self, part):
        """The time at this part of the night."""
        return self.began + part * self.seconds

    def is_out(self):
        return any(self.at(a) < time.time() < self.at(b) for a, b in ((0.2, 0.3), (0.6, 0.65)))

    def decide(self, texts, request):
        if request["model"] == "locked":
            return {"status": 401}
        if self.is_out():
            return {"status": 503}
        made = sum(message["role"] == "assistant" for message in request["messages"])
        kind = next(word for text in texts for word in text.split() if word in KINDS)
        step = {"say": f"part {made} ", "pause": 0.05, "usage": (sum(map(len, texts)) // 4, 40)}
        if kind == "approval":
            return {**step, "call": [("shell", {"command": "chmod -R 777 ."})]}
        if kind == "loop":
            return {**step, "call": [("read_file", {"path": "same.txt"})]}
        if kind == "budget" and request.get("tools"):
            return {**step, "call": [("todo", {"todos": [{"id": "1", "content": f"item {made}", "status": "pending"}]})]}
        return step if made else {**step, "call": [("shell", {"command": "sleep 0.3"})]}


KINDS = [*SPECIAL, "plain"]


class NightService(Service):
    """A service whose state has a file system of its own, if that can be had."""

    is_mounted = False

    def configure(self, text):
        super().configure(text)
        self.state.mkdir(mode=0o700)
        if os.geteuid() == 0:
            mount = ["mount", "-t", "tmpfs", "-o", "size=96m,mode=700", "night", str(self.state)]
            self.is_mounted = subprocess.run(mount, capture_output=True).returncode == 0

    def __exit__(self, *error):
        if self.process:
            self.kill()
        if self.is_mounted:
            subprocess.run(["umount", "-l", str(self.state)], check=True)
        super().__exit__(*error)

    def with_full_disk(self, seconds):
        """Fills the disk for a time."""
        filler = self.state / "filler"
        with filler.open("wb") as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
                    file.flush()
            except OSError:
                pass
        time.sleep(seconds)
        filler.unlink()


def config(night, kinds):
    """The configuration: one schedule for each run."""
    text = night.model.config(f"price = {{ input = {INPUT / 1000}, output = {OUTPUT / 1000} }}")
    text += (
        f'[providers.locked]\nbase_url = "{night.model.url}/v1"\nwire = "chat_completions"\ncredential = "env:MOCK"\n'
        '[models."locked/m"]\nname = "locked"\nwindow = 32000\nmax_output = 2000\n'
        '[approvals]\napprover = "person"\n[store]\nreserve = "4MiB"\n'
    )
    for number, kind in enumerate(kinds):
        part = 0.5 if kind == "missed" else number / len(kinds)
        at = datetime.fromtimestamp(round(night.at(part)), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        text += f'[schedules.r{number:02}]\nat = "{at}"\ntext = "task {number} {kind} please"\n' + SETTINGS.get(kind, "")
    return text


def live_through(night, service, drill):
    """Kills and fills the disk at their times."""
    kills = drill.options.kills
    events = [(drill.random.uniform(0.05, 0.95), service.restart) for _ in range(kills)]
    if service.is_mounted:
        events.append((0.75, lambda: service.with_full_disk(4)))

    def down():
        service.kill()
        time.sleep(max(0, night.at(0.5) + 4 - time.time()))
        service.start()

    events = [(part, act) for part, act in events if abs(part - 0.5) > 6 / night.seconds]
    for part, act in sorted([*events, (0.5 - 2 / night.seconds, down)], key=lambda event: event[0]):
        time.sleep(max(0, night.at(part) - time.time()))
        act()


def main():
    drill = Drill(__doc__, ("seconds", 90, "seconds of the night"), ("kills", 6, "kills meanwhile"))
    kinds = ["plain"] * 45
    for kind in SPECIAL:
        kinds.insert(drill.random.randrange(len(kinds)), kind)
    night = Night(drill.options.seconds)
    with NightService(drill.options.binary, config(night, kinds)) as service:
        live_through(night, service, drill)
        waiting = f"r{kinds.index('approval'):02}"

        def histories():
            return {f"r{n:02}": json.loads(service.cli("schedules", "history", f"r{n:02}", "--json")) for n in range(len(kinds))}

        def is_over():
            rows = histories()
            return all(rows[name] and (rows[name][0].get("outcome") or name == waiting or not rows[name][0].get("run")) for name in rows)

        until("all runs have ended", is_over, 120)
        until("no call is under way", lambda: not [one for one in service.get("/v1/tree") if one.get("state") == "running"])
        rows = histories()
        report = json.loads(service.cli("report", "--since", "1h", "--json"))
        print(service.cli("report", "--since", "1h"))
    check(drill, night, kinds, rows, report)
    drill.counts |= {"kills": service.kills, "full disk": service.is_mounted}
    drill.end()


def check(drill, night, kinds, rows, report):
    """Compares the report with the schedules and with the ledger."""
    expected, shown = collections.Counter(), []
    for number, kind in enumerate(kinds):
        name = f"r{number:02}"
        drill.check(len(rows[name]) == 1, f"{name} has {len(rows[name])} rows: {rows[name]}")
        row, outcome = rows[name][0], SPECIAL.get(kind, "completed")
        if outcome:
            expected[outcome] += 1
        drill.check(row["state"] == ("ran" if outcome else "missed"), f"{name} ({kind}) is {row}")
        drill.check(row.get("outcome") in (outcome, None), f"{name} ({kind}) ended as {row.get('outcome')}")
        if kind != "plain":
            shown.append([name, kind, row["state"], row.get("outcome") or "", row.get("reason") or ""])
    table(["schedule", "kind", "state", "outcome", "reason"], shown)
    drill.check(report["runs"]["outcomes"] == dict(expected), f"the report has {report['runs']['outcomes']}, and not {dict(expected)}")
    drill.check(report["runs"]["total"] == sum(expected.values()), f"the report has {report['runs']['total']} runs")
    schedules = report["schedules"]
    told = [schedules["ran"], schedules["missed"], schedules["skipped"]]
    drill.check(told == [sum(expected.values()), 1, 0], f"the report has these occurrences: {told}")
    failed = sorted(one["outcome"] for one in report["failed"]["items"])
    drill.check(failed == ["failed", "loop_detected"], f"the report has these failures: {failed}")
    waits = sorted(one["what"] for one in report["waiting"]["items"])
    drill.check(waits == ["approval", "budget"], f"the report has these waits: {waits}")
    ledger = night.model.ledger
    charged = sum(one["step"]["usage"][0] * INPUT + one["step"]["usage"][1] * OUTPUT for one in ledger if one["done"])
    cut = sum(not one["done"] and "status" not in one["step"] for one in ledger)
    refused = sum("status" in one["step"] for one in ledger)
    spent, cost = round(report["cost"]["spent_usd"] * 1e9), report["cost"]
    lost = cost["failed_requests"] - refused
    drill.check(charged <= spent <= charged + max(lost, 0) * RESERVATION, f"the report has {spent} nano-dollars, the ledger {charged}")
    drill.check(cost["requests"] >= len(ledger), f"the report has {cost['requests']} requests, the ledger {len(ledger)}")
    # A kill may come between the record of a start and the request.
    drill.check(cut <= lost <= cut + 3 * drill.options.kills + 3, f"{lost} requests were lost, and {cut} cut in the ledger")
    drill.counts = {"runs": sum(expected.values()), "requests": len(ledger), "refused": refused, "cut": cut}
    drill.counts |= {"charged": charged, "reported": spent, "requests reported": cost["requests"], "failed reported": cost["failed_requests"]}


main()
