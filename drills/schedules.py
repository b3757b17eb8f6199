"""A schedule under kills: each due time has one row in the history, each run one row, and no run is there without its row.

The service is killed KILLS times at random moments within SECONDS. What is due meanwhile runs late, is skipped because an earlier run
is under way, or is missed; the history says which."""

import datetime
import json
import time

from common import Drill, Service, until

INTERVAL_S = 2
SCRIPT = [{"steps": [{"say": "It is done.", "repeat": "forever"}]}]


def seconds(text):
    return round(datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp())


def rows(service):
    return json.loads(service.cli("schedules", "history", "tick", "--limit", "10000", "--json"))


def main():
    drill = Drill(__doc__.splitlines()[0], ("seconds", 120, "how long it takes"), ("kills", 30, "how often the service is killed"))
    options, counts = drill.options, drill.counts
    with Service(options.binary, "", SCRIPT) as service:
        service.cli("schedules", "add", "tick", "--every", f"{INTERVAL_S}s", "--misfire", "run_all", "--text", "tick")
        began = time.monotonic()
        moments = sorted(drill.random.uniform(0, options.seconds) for _ in range(options.kills))
        for moment in [*moments, options.seconds]:
            time.sleep(max(0.0, began + moment - time.monotonic()))
            if moment != options.seconds:
                service.restart()
        ran = len([row for row in rows(service) if row["state"] == "ran"])
        until("it still runs", lambda: len([row for row in rows(service) if row["state"] == "ran"]) > ran, 120)
        service.cli("schedules", "pause", "tick")
        until("all runs have ended", lambda: all(row.get("outcome") for row in rows(service) if row["state"] == "ran"))
        history = rows(service)
        listed = json.loads(service.cli("runs", "list", "--schedule", "tick", "--limit", "10000", "--json"))
        counts["kills"] = service.kills

    times = [seconds(row["at"]) for row in history]
    further = {time for row in history if "further" in row for time in range(seconds(row["at"]), seconds(row["further"]["until"]) + 1, INTERVAL_S)}
    due = set(range(min(times), max(times) + 1, INTERVAL_S))
    of_rows = [row["run"] for row in history if "run" in row]
    runs = {run["id"] for run in listed}
    counts["due"], counts["rows"] = len(due), len(history)
    for state in ("ran", "missed", "skipped"):
        counts[state] = len([row for row in history if row["state"] == state])
    counts["runs"], counts["duplicates"] = len(runs), len(times) - len(set(times)) + len(of_rows) - len(set(of_rows))
    counts["runs_without_row"], counts["rows_without_run"] = len(runs - set(of_rows)), len(set(of_rows) - runs)
    drill.check(not due - set(times) - further, f"due times without a row: {sorted(due - set(times) - further)[:5]}")
    drill.check(not set(times) - due, "rows at times that are not due")
    drill.check(counts["duplicates"] == 0, "a time or a run has two rows")
    drill.check(runs == set(of_rows), "runs and rows do not match")
    drill.check(all(row.get("reason") for row in history if row["state"] != "ran"), "a row that did not run has no reason")
    drill.check(all(row.get("outcome") == "completed" for row in history if row["state"] == "ran"), "a run has not completed")
    drill.end()


if __name__ == "__main__":
    main()
