"""Show 5: many runs at once against a model with prices stay within `[limits] usd_per_day`, over kills: never a nano-dollar more.

The limit is compared with the ledger of the model, which charges every request that it got, and with `/v1/usage`. The simulation
(`just simulation`) shows what happens at midnight; a real process takes the system's day."""

import threading
import time

from common import Drill, Service, until
from endpoints import Model

# Nano-dollars of a token, which is dollars of a thousand million of them.
INPUT, OUTPUT = 1_003, 7_001
CALLS = 4  # of the model in a run that is not out of budget


def nano(dollars):
    """Nano-dollars of a number of dollars."""
    return round(dollars * 1e9)


def cost(entry):
    """What the vendor charges for a request, also if its answer was cut off."""
    read, written = entry["step"]["usage"]
    return read * INPUT + written * OUTPUT


class Load:
    """The model's steps, and how many of its calls are under way."""

    def __init__(self, random):
        self.random, self.lock = random, threading.Lock()
        self.model = Model(self.decide)

    def decide(self, texts, request):
        size = sum(map(len, texts)) // 4
        made = sum(message["role"] == "assistant" for message in request["messages"])
        with self.lock:
            written = self.random.randint(50, 1500)
        step = {"say": f"part {made} " * 5, "chunk": 10, "pause": 0.15, "usage": (size, written)}
        return step if made == CALLS - 1 else {**step, "call": [("todo", {})]}


class Watch(threading.Thread):
    """Asks for the account of the day all the time, and notes what is over the limit."""

    def __init__(self, service, limit, drill):
        super().__init__(daemon=True)
        self.service, self.limit, self.drill = service, limit, drill
        self.looks, self.highest, self.is_over = 0, 0, False

    def run(self):
        while not self.is_over:
            try:
                day = account(self.service)
            except (OSError, RuntimeError, AttributeError):
                continue  # the service is being killed
            self.looks += 1
            held = nano(day["spent"]) + nano(day["reserved"])
            self.highest = max(self.highest, held)
            self.drill.check(held <= self.limit, f"{held} nano-dollars are spent and reserved")
            self.drill.check(held + nano(day["left"]) == self.limit, f"the account does not add up: {day}")
            time.sleep(0.05)


def account(service):
    """The dollars of the day: `limit`, `spent`, `reserved` and `left`."""
    usage = service.get("/v1/usage")
    return next(one for one in usage["limits"] if one["period"] == "day")["dimensions"]["usd"]


def under_way(model):
    """How many of the model's answers are not complete."""
    return sum(not entry["done"] for entry in model.ledger)


def main():
    drill = Drill(__doc__, ("runs", 64, "runs at once"), ("kills", 4, "kills meanwhile"), ("cents", 600, "limit of the day"))
    limit, runs = drill.options.cents * 10_000_000, drill.options.runs
    load = Load(drill.random)
    config = load.model.config(f"price = {{ input = {INPUT / 1000}, output = {OUTPUT / 1000} }}") + (
        f'wait_for_reset_max = "1s"\n[limits]\nusd_per_day = {limit / 1e9}\n'
    )
    with Service(drill.options.binary, config) as service:
        watch = Watch(service, limit, drill)
        watch.start()
        ids = [service.submit({"input": f"task {n}"}) for n in range(runs)]  # kills meanwhile cost what their calls had reserved
        for _ in range(drill.options.kills):
            seen = len(load.model.ledger)
            until("calls are under way", lambda: len(load.model.ledger) > seen + runs // 4 or not service.get("/v1/tree"))
            time.sleep(drill.random.random() / 5)
            service.restart()
        ends = [service.ended(run) for run in ids]
        while all(end["outcome"] == "completed" for end in ends[-runs:]):
            ids = [service.submit({"input": f"task {n}"}) for n in range(runs)]
            ends += [service.ended(run) for run in ids]
        until("no call has a reservation", lambda: account(service)["reserved"] == 0)
        watch.is_over = True
        watch.join()
        outcomes = [end["outcome"] for end in ends]
        completed, exhausted = outcomes.count("completed"), outcomes.count("budget_exhausted")
        drill.check(completed + exhausted == len(ends), f"outcomes are {sorted(set(outcomes))}")
        drill.check(completed and exhausted, f"{completed} runs completed and {exhausted} are out of budget: the limit was not met")
        reasons = {end["reason"] for end in ends if end["outcome"] == "budget_exhausted"}
        drill.check(all("usd_per_day limit of" in reason for reason in reasons), f"reasons are {reasons}")
        charged, spent = sum(map(cost, load.model.ledger)), nano(account(service)["spent"])
        known = sum(cost(entry) for entry in load.model.ledger if entry["done"])
        drill.check(charged <= spent <= limit, f"the ledger has {charged} nano-dollars, the account {spent} of {limit}")
        cut = under_way(load.model)
        drill.check(cut or not service.kills, "no kill has cut off a call")
        models = service.get("/v1/usage")["models"]
        told = sum(nano(one["cost_usd"]) for one in models)
        drill.check(told <= spent, f"the models of /v1/usage cost {told}, more than {spent}")
        drill.counts = {"runs": len(ends), "completed": completed, "budget_exhausted": exhausted, "calls": len(load.model.ledger)}
        drill.counts |= {"cut by kills": cut, "limit": limit, "spent": spent, "highest": watch.highest}
        drill.counts |= {"charged": charged, "of whole answers": known, "told by models": told, "looks": watch.looks}
        drill.counts["kills"] = service.kills
    drill.end()


if __name__ == "__main__":
    main()
