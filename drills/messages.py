"""Show 1: what becomes of a message to a session, for each mode, at each moment, with and without a kill right after its 202.

Each message has exactly one fate, which agrees with what the model has read, and its repeat is the same message."""

import itertools
import json
import time

from common import WAITING, Drill, Service, table, until
from endpoints import Model

MODES = ["steer", "followup", "collect", "interrupt"]
MOMENTS = ["idle", "model", "tool", "parked", "compression"]
LONG = "x" * 24_000  # bytes, above half of the window with what stands before it


class Held:
    """Calls that the model holds until they are released, by a word in the task."""

    def __init__(self):
        self.seen, self.go = set(), set()

    def hold(self, name):
        self.seen.add(name)
        end = time.monotonic() + 60
        while name not in self.go and time.monotonic() < end:
            time.sleep(0.01)


held = Held()


def word(texts, prefix):
    """The newest word with this prefix in the texts."""
    words = [part for text in texts for part in text.split() if part.startswith(prefix)]
    return words[-1] if words else ""


def decide(texts, request):
    if "tools" not in request or texts[-1].startswith("# The "):
        name = word(texts, "hold-summary-")
        if name:
            held.hold(name)
        return {"say": "Notes: so far so good."}
    last_user = max(at for at, message in enumerate(request["messages"]) if message["role"] == "user")
    task, answered = texts[last_user], request["messages"][last_user + 1 :]
    name = task.split()[0] if task.split() else ""
    if answered and not name.startswith("compression-"):
        return {"say": "done with " + name}
    if name.startswith("model-"):
        held.hold(name)
    elif name.startswith("tool-"):
        return {"call": [("shell", {"command": WAITING.format(name)})]}
    elif name.startswith("parked-"):
        return {"call": [("shell", {"command": f"echo {name} > asked-{name}"})]}
    return {"say": "done with " + name}


def post(service, session, text, mode, key):
    """Sends a message; the status and the answer."""
    body = {"text": text, "mode": mode}
    return service.call("POST", f"/v1/sessions/{session}/messages", body, {"idempotency-key": key})


def begin(service, moment, session):
    """Brings a session into the moment by a message, and returns its run, which has the same id."""
    count = itertools.count()
    first = lambda text: post(service, session, text, "followup", f"first-{next(count)}")[1]["message"]
    if moment == "compression":
        while f"hold-summary-{session}" not in held.seen:
            run = first(f"compression-{session} hold-summary-{session} {LONG}")
            ends = lambda: f"hold-summary-{session}" in held.seen or service.get(f"/v1/runs/{run}")["state"] == "ended"
            until("the run ends, or its view is summarised", ends)
        return run
    run = first(f"{moment}-{session}")
    if moment == "idle":
        service.ended(run)
    elif moment == "model":
        until("the model is called", lambda: f"model-{session}" in held.seen)
    elif moment == "tool":
        service.has_started(f"tool-{session}")
    else:
        until("it is asked", lambda: asked(service, run))
    return run


def asked(service, run):
    return [one["call"] for one in service.get("/v1/approvals") if one["run"] == run]


def release(service, moment, session, run):
    """Lets the moment end, unless the message has ended it."""
    held.go |= {f"model-{session}", f"hold-summary-{session}"}
    service.release(f"tool-{session}")
    if moment == "parked":
        for call in asked(service, run):
            service.call("POST", f"/v1/approvals/{call}/allow", {})


def settled(service, message):
    """The fate of a message, once it is final."""
    fate = lambda: service.get(f"/v1/messages/{message}")
    return until(f"message {message} has a fate", lambda: (found := fate())["state"] in ("answered", "dropped") and found)


def tries(drill, service, model, case):
    """Sends one message, checks what becomes of it, and returns its row of the table."""
    mode, moment, kill = case
    session = "-".join(case)
    run, marker = begin(service, moment, session), f"marker-{session}."
    send = lambda: post(service, session, marker, mode, "the message")
    status, sent = send()
    if kill == "killed":
        service.restart()
    if not drill.check(status == 202, f"{session}: {status} {sent}"):
        return [*case, status, "-", "-", "-", "-", "-"]
    message = sent["message"]
    at_once = service.get(f"/v1/messages/{message}")["state"]
    repeated = send()
    drill.check(repeated == (202, sent), f"{session}: a repeat of {sent} is {repeated}")
    release(service, moment, session, run)
    fates = [settled(service, message), settled(service, run)]
    service.restart()
    now = [service.get(f"/v1/messages/{one}") for one in (message, run)]
    drill.check(now == fates, f"{session}: the fates were {fates}, and are {now} after a restart")
    fate, first = fates
    repeated = send()
    drill.check(repeated == (202, sent), f"{session}: after the end a repeat of {sent} is {repeated}")
    drill.check(fate["state"] == "answered" and fate["run"] in (message, run), f"{session}: {fate}")
    expected = ("answered", None)
    if mode == "interrupt" and moment != "idle":
        expected = ("dropped", "stopped (by a newer message)")
    drill.check((first["state"], first.get("reason")) == expected, f"{session}: the message before it is {first}")
    page = service.get(f"/v1/sessions/{session}/messages?max=1000")["items"]
    told = sum(json.dumps(one).count(marker) for one in page if one["role"] != "assistant")
    drill.check(told == 1, f"{session}: the conversation has it {told} times")
    read = sum(any(marker in text for text in entry["texts"]) for entry in model.ledger if entry["done"])
    drill.check(read > 0, f"{session}: no model has read it")
    which = "its own" if fate["run"] == message else "under way"
    return [*case, at_once, fate["state"], fate.get("reason", "-"), which, first["state"], first.get("reason", "-")]


def main():
    drill = Drill(__doc__)
    model = Model(decide)
    config = model.config() + (
        '[compression]\nahead = false\n[policy]\nask = ["shell(echo parked*)"]\n[approvals]\napprover = "person"\n'
    )
    rows, kills = [], 0
    cases = list(itertools.product(MODES, MOMENTS, ["lives", "killed"]))
    drill.random.shuffle(cases)
    for case in cases:
        try:
            # Each case has a service of its own: after repeated crashes one refuses new work for a while.
            with Service(drill.options.binary, config) as service:
                rows.append(tries(drill, service, model, case))
                kills += service.kills
        except (TimeoutError, RuntimeError) as error:
            drill.check(False, f"{case}: {error}")
    drill.counts |= {"messages": 2 * len(rows), "kills": kills, "model_calls": len(model.ledger)}
    table(["mode", "moment", "kill", "at once", "state", "reason", "run", "one before", "its reason"], sorted(rows))
    drill.end()


if __name__ == "__main__":
    main()
