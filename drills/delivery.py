"""Show 3: messages of models and results of runs leave over a webhook that fails, hangs and answers late, while the service is killed.

Each arrives or is a dead letter, none has two ids, those of a session arrive in their order, and a dead letter is sent again."""

import base64
import collections
import hashlib
import hmac
import json
import threading
import time

from common import Drill, Service, until
from endpoints import Server

SECRET = "a-secret-of-the-receiver"
A_RUN = 8  # messages of one run; its result is one more
SESSIONS = 10


class Receiver:
    """A webhook that verifies signatures, notes what comes, and does as it likes."""

    def __init__(self, random):
        self.random, self.lock = random, threading.Lock()
        # The id and the text of each attempt; also the session of each message that was taken, without repeats.
        self.attempts, self.taken, self.refused, self.unsigned = [], [], set(), 0
        self.refuses, self.kinds = True, collections.Counter()
        self.server = Server(self.answer)

    def answer(self, request):
        mark = request.headers["webhook-id"]
        signed = b".".join([mark.encode(), request.headers["webhook-timestamp"].encode(), request.body])
        tag = "v1," + base64.b64encode(hmac.digest(SECRET.encode(), signed, hashlib.sha256)).decode()
        data = json.loads(request.body)["data"]
        with self.lock:
            self.unsigned += tag != request.headers["webhook-signature"]
            self.attempts.append((mark, data["text"]))
            kind = self.random.choices(["takes", "fails", "hangs", "late", "breaks"], [88, 4, 2, 3, 3])[0]
            if self.refuses and data["text"].endswith("is bad"):
                kind = "refuses"
                self.refused.add(data["text"])
            self.kinds[kind] += 1
            if kind in ("takes", "late") and mark not in (one for one, _, _ in self.taken):
                self.taken.append((mark, data["session"], data["text"]))
        if kind == "hangs":
            time.sleep(1)
        elif kind == "late":
            time.sleep(0.4)
        if kind in ("hangs", "breaks"):
            request.close_connection = True
            return
        request.reply({"fails": self.random.choice([503, 429, 500]), "refuses": 400}.get(kind, 200))


def text(run, n):
    """The text of message `n` of a run, of which each 50th is one that the receiver refuses."""
    return f"run {run} message {n}" + (" is bad" if (run * A_RUN + n) % 50 == 7 else "")


def script(runs):
    """A step for each run; its answer is its result."""
    calls = lambda run: [{"tool": "message", "arguments": {"target": "ops", "text": text(run, n)}} for n in range(A_RUN)]
    return [{"when": f"/^run {run}$/", "steps": [{"call": calls(run)}, {"say": f"result {run}"}]} for run in range(runs)]


def config(receiver):
    return f"""
[targets.ops]
kind = "webhook"
url = "{receiver.server.url}/hook"
secret = "env:HOOK"
[delivery]
attempts = 1000
timeout = "300ms"
first_pause = "5ms"
longest_pause = "40ms"
"""


def deliveries(service, state=None):
    """What `hermod deliveries list` shows in this state; without one what is dead or waits."""
    return json.loads(service.cli("deliveries", "list", "--json", "--max", "1000", *(["--state", state] if state else [])))


def ordered(taken, sent):
    """Whether what came of each session came in the order in which it was sent."""
    place, last = {one: at for at, one in enumerate(sent)}, {}
    for _, session, one in taken:
        if place[one] < last.get(session, -1):
            return False
        last[session] = place[one]
    return True


def main():
    drill = Drill(__doc__, ("messages", 1000, "messages, besides results"), ("kills", 20, "kills meanwhile"))
    kills, runs = drill.options.kills, -(-drill.options.messages // A_RUN)
    sent = [one for run in range(runs) for one in [*(text(run, n) for n in range(A_RUN)), f"[rehearsal] result {run}"]]
    bad = sum(one.endswith("is bad") for one in sent)
    receiver = Receiver(drill.random)
    come = lambda: len({one for _, _, one in receiver.taken}) + len(receiver.refused)
    with Service(drill.options.binary, config(receiver), script(runs), HOOK=SECRET) as service:
        submitted = 0
        for kill in range(1, kills + 1):
            while submitted < runs * kill // kills:
                service.submit({"input": f"run {submitted}", "session": f"s{submitted % SESSIONS}", "deliver_to": ["ops"]})
                submitted += 1
            until("some have come", lambda: come() >= len(sent) * kill // (kills + 2), 120)
            time.sleep(drill.random.random() / 10)
            service.restart()
        until("all have come or are dead", lambda: come() == len(sent), 300)
        until("none waits", lambda: not deliveries(service, "pending"))
        ids = collections.defaultdict(set)
        for mark, one in receiver.attempts:
            ids[one].add(mark)
        drill.check(sorted(ids) == sorted(sent), f"{len(set(sent) ^ set(ids))} texts did not come, or were not sent")
        drill.check(all(len(marks) == 1 for marks in ids.values()), "a text has two ids")
        drill.check(len(set.union(*ids.values())) == len(sent), "an id has two texts")
        drill.check(receiver.unsigned == 0, f"{receiver.unsigned} are not signed")
        drill.check(ordered(receiver.taken, sent), "an order is not kept")
        arrived, dead = len(receiver.taken), deliveries(service, "dead")
        drill.check(len(dead) == bad == len(receiver.refused), f"{len(dead)} dead letters, not {bad}")
        drill.check(all(one["error"] == "status 400" for one in dead), "a dead letter has another error")
        drill.check([one["id"] for one in dead] == [one["id"] for one in deliveries(service)], "another list of what is dead or waits")
        send_again(drill, service, receiver, dead)
        drill.check(len(receiver.taken) == len(sent), f"{len(receiver.taken)} of {len(sent)} have come in the end")
        drill.counts = {"sent": len(sent), "arrived": arrived, "dead": len(dead), "sent again": len(receiver.taken) - arrived}
        drill.counts |= {"attempts": len(receiver.attempts), "answers": dict(receiver.kinds), "kills": service.kills}
    drill.end()


def send_again(drill, service, receiver, dead):
    """Sends one dead letter again, and then all of them."""
    receiver.refuses, before = False, len(receiver.taken)
    settled = lambda left: len(deliveries(service, "dead")) == left and not deliveries(service, "pending")
    service.cli("deliveries", "retry", dead[0]["id"])
    until("it is delivered", lambda: settled(len(dead) - 1))
    came = [mark for mark, _, _ in receiver.taken[before:]]
    drill.check(came == [dead[0]["id"]], f"{dead[0]['id']} was sent again, and {came} came")
    service.cli("deliveries", "retry", "--all")
    until("all are delivered", lambda: settled(0))


if __name__ == "__main__":
    main()
