"""The dashboard in a real browser, over runs of all kinds: no text of a task, a tool, a file or a model becomes code.

It makes RUNS runs, 40 subagents, approvals, failures, schedules, and 50 texts that try to run as code, as tasks, file names, output of
tools, keys of sessions, and texts of each input. Then dashboard.mjs visits every view, and the service is killed and started again under an open page.
Pictures are left in the folder `dashboard` of the temporary folder that is printed. It needs Node, Chromium (in CHROMIUM, else
/usr/bin/chromium), and the packages playwright-core and axe-core of npm, which are found by NODE_PATH or in the folder in which it is
started."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from common import Drill, Service, until

MODEL = "<svg/onload=window.__xss=1>"
CONFIG = """
[approvals]
approver = "person"
[policy]
ask = ["shell(git push *)"]
[delegation]
max_children = 40
max_live = 60
[models."<svg/onload=window.__xss=1>"]
window = 200000
price.input = 2.5
price.output = 10
[schedules.pulse]
every = "5s"
text = "pulse"
[schedules.backups]
cron = "0 6 * * mon-fri"
tz = "Europe/Berlin"
text = "Check the backups"
[schedules."a-paused-one"]
every = "1h"
text = "Never mind"
"""
RAN = "window.__xss=1"
PAYLOADS = [
    *(
        form.format(RAN)
        for form in (
            "<script>{}</script>", "<ScRiPt>{}</sCrIpT>", "<script src=data:,{}></script>", "<img src=x onerror={}>", "<img src=x onerror='{}'>",
            "<svg onload={}>", "<svg><script>{}</script></svg>", "<svg/onload={}>", "<svg><animate onbegin={} attributeName=x dur=1s>",
            "<body onload={}>", "<iframe src=javascript:{}>", "<iframe srcdoc='<script>parent.{}</script>'>", "<object data=javascript:{}>",
            "<embed src=javascript:{}>", "<a href=javascript:{}>x</a>", "javascript:{}", "<details open ontoggle={}>x</details>",
            "<input autofocus onfocus={}>", "<select autofocus onfocus={}>", "<textarea autofocus onfocus={}>", "<video src=x onerror={}>",
            "<audio src=x onerror={}>", "<video><source onerror={}></video>", "<marquee onstart={}>", "<form action=javascript:{}><button>x</form>",
            "<button onclick={}>x</button>", "<math href=javascript:{}>x</math>", "<base href=javascript:{}//>", "<link rel=import href=data:,{}>",
            "<meta http-equiv=refresh content='0;url=javascript:{}'>", "<style onload={}></style>", "<table background=javascript:{}>",
            "\"><script>{}</script>", "'><script>{}</script>", "</title><script>{}</script>", "</textarea><script>{}</script>",
            "</script><script>{}</script>", "--><script>{}</script>", "]]><script>{}</script>", "\" onmouseover={} x=\"", "' onfocus={} autofocus '",
            "`${{{}}}`", "${{{}}}", "#{{{}}}", "<%= {} %>", "<xss onpointerenter={} style=position:fixed;inset:0>",
            "<template><script>{}</script></template>", "<noscript><p title=\"</noscript><img src=x onerror={}>\">",
        )
    ),
    f"\u202e\u2066{RAN}\u2069\u200b\u0007\u001b[31mred\u001b[0m",
    f"data:text/html,<script>{RAN}</script>",
]
TEXT = json.dumps([f"xss {n} {payload}" for n, payload in enumerate(PAYLOADS)])


def escaped(text):
    return text.replace("{{", "{{open}}")


def scripts():
    """A conversation for each task of the drill."""
    wait = [{"tool": "shell", "arguments": {"command": "sleep 600"}}]
    review = [{"tool": "delegate_task", "arguments": {"goal": f"Review module {n}"}} for n in range(40)]
    made = [
        {"when": "forty", "steps": [{"say": "Forty reviewers.", "call": review}, {"say": "All is reviewed."}]},
        {"when": "/^Review module/", "steps": [{"say": "I read.", "call": wait}, {"say": "Done."}]},
        {"when": "push", "steps": [{"say": "I push.", "call": [{"tool": "shell", "arguments": {"command": "git push origin main"}}]}, {"say": "Pushed."}]},
        {"when": "question", "steps": [{"call": [{"tool": "clarify", "arguments": {"question": "Which cluster?"}}]}, {"say": "Deployed."}]},
        {"when": "wait for messages", "steps": [{"say": "I wait.", "call": wait}, {"say": "Read."}]},
        {"when": "fail", "steps": [{"say": "x", "fault": {"status": 400, "times": "forever"}}]},
        {"when": "refuse", "steps": [{"say": "I will not.", "finish": "refused"}]},
        {
            "when": "deploy",
            "steps": [
                {"think": "First I look.", "say": "I look.", "call": [{"tool": "list_files", "arguments": {"path": "."}}], "delay": "300ms"},
                {
                    "say": "I write the notes.",
                    "call": [{"tool": "write_file", "arguments": {"path": "NOTES.md", "content": "# 1.4\n\n- faster\n"}}],
                    "fault": {"status": 529, "times": 2}, "delay": "200ms",
                },
                {"call": [{"tool": "shell", "arguments": {"command": "sleep 0.4; echo all well; echo cold cache >&2; exit 3"}}]},
                {"say": "Release 1.4 is out.\n\n```sh\ngit tag v1.4\n```\n", "delay": "200ms"},
            ],
        },
    ]
    for n, payload in enumerate(PAYLOADS):
        text = escaped(payload)
        name = "".join(c for c in text if c not in "/\0" and ord(c) >= 32)[:80]
        calls = [
            {"tool": "write_file", "arguments": {"path": f"{n} {name}", "content": text}},
            {"tool": "shell", "arguments": {"command": f"cat {n}\\ *; printf '\\033[31m\\a\\r'"}},
            {"tool": "list_files", "arguments": {"path": "."}},
        ]
        made.append({"when": f"xss {n} ", "steps": [{"think": text, "say": f"said {text}", "call": calls}, {"say": f"done {text}"}]})
    return [*made, {"steps": [{"say": "You said: {{user}}"}]}]


def make(service, drill):
    """Runs of all kinds; the ones to which the browser looks come last."""
    for n in range(drill.options.runs):
        service.submit({"input": f"task {n} of the night"})
    xss = [service.submit({"input": text, "session": f"s{n} {PAYLOADS[n]}".strip()[:200]}) for n, text in enumerate(json.loads(TEXT))]
    ended = [service.ended(run) for run in xss]
    drill.counts["payloads"] = len(ended)
    drill.check(all(end["outcome"] == "completed" for end in ended), "the runs with payloads complete")
    for task in ("please fail", "refuse this", "deploy release 1.4", "push it", "push it too", "a question", "forty modules"):
        service.submit({"input": task, "session": "team"} if task.startswith("deploy") else {"input": task})
    until("the reviewers work", lambda: any(len(node["children"]) == 40 for node in service.get("/v1/tree")), 120)
    until("three calls wait", lambda: len(service.get("/v1/approvals")) == 3)
    service.cli("schedules", "pause", "a-paused-one", "--reason", "<img src=x onerror=window.__xss=1>")


def main():
    drill = Drill(__doc__.splitlines()[0], ("runs", 300, "how many further runs there are"))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dashboard-"))
    print(f"pictures are in {folder}", file=sys.stderr)
    with Service(drill.options.binary, CONFIG, scripts(), MODEL) as service:
        make(service, drill)
        # The page keeps its address over the restart.
        service.options += [f"--listen={service.address}"]
        script = pathlib.Path(__file__).with_name("dashboard.mjs")
        command = ["node", str(script), f"http://{service.address}", service.token, str(folder), os.environ.get("CHROMIUM", "/usr/bin/chromium")]
        browser = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "DRILL_RESTART": "1", "DRILL_PAYLOADS": json.dumps(PAYLOADS)})
        for line in browser.stdout:
            line = line.strip()
            if line == "kill":
                service.kill()
            elif line == "start":
                service.start()
                service.until_ready()
                service.submit({"input": "accepted after the restart"})
            elif line.startswith("{"):
                drill.counts |= json.loads(line)
                continue
            else:
                print(line, file=sys.stderr)
                continue
            browser.stdin.write("done\n")
            browser.stdin.flush()
        drill.check(browser.wait() == 0, "the browser found nothing")
        drill.check(drill.counts.get("restarts") == 1, "the page goes on after a restart")
    drill.end()


main()
