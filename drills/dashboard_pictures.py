"""Takes the pictures of the dashboard for README.md and docs/dashboard.md: a service with runs as of one night, in Chromium.

    python3 drills/dashboard_pictures.py BINARY [FOLDER]

FOLDER is docs/pictures by default. It needs what the drill `dashboard` needs, but axe-core."""

import argparse
import os
import pathlib
import subprocess
import sys
import zlib

from common import Service, until

MODEL = "scripted"
CONFIG = """
[approvals]
approver = "person"
[policy]
ask = ["shell(git push *)", "shell(./publish *)"]
[agents.reviewer]
[agents.docs]
[models.scripted]
window = 200000
price.input = 2.5
price.output = 10
[schedules.backups]
cron = "0 6 * * mon-fri"
tz = "Europe/Berlin"
text = "Check the backups"
"""
RELEASE = "Release 1.4: run the tests, write the notes, and publish it"
UPDATE = "Update the dependencies and push the branch"
MAX_BYTES = 150_000
# What the commands do in the workspace.
PROGRAMS = {
    "test": "sleep 0.9; echo '412 passed, 3 skipped'", "build": "sleep 1.1; echo 'built 3 packages'", "publish": "sleep 0.6; echo published",
    "lint": "sleep 0.5; echo 'src/cart.ts: 2 warnings' >&2; exit 1", "start": "sleep 0.8; echo started",
    "changes": "sleep 0.3; echo 'src/start.ts: read the catalogue when it is first needed'",
}


def shell(command):
    return {"tool": "shell", "arguments": {"command": command}}


def delegate(*goals):
    return [{"tool": "delegate_task", "arguments": {"goal": goal}} for goal in goals]


def step(say, calls=(), read=4000, written=150, delay="400ms", **more):
    usage = {"input_tokens": read, "output_tokens": written}
    return {**({"say": say} if say else {}), **({"call": list(calls)} if calls else {}), "usage": usage, "delay": delay, **more}


def scripts():
    release = [
        step("I look at what is there first.", [{"tool": "list_files", "arguments": {"path": "."}}, shell("./test")], 5200, 180, "700ms",
             think="The tests come first; the notes need the list of changes."),
        step("The tests pass. I write the notes.", [{"tool": "write_file", "arguments": {"path": "RELEASE.md", "content": "# 1.4\n\n- faster start\n- fewer allocations\n"}}],
             9900, 520, "600ms", fault={"status": 529, "times": 1}),
        step(None, [shell("./build"), shell("./lint src")], 14200, 210, "500ms"),
        step("A helper checks the package.", delegate("Install the package on Debian and start it"), 16800, 260, "500ms"),
        step("It starts. I publish the release.", [shell("./publish v1.4")], 19100, 190, "600ms"),
        step("Release 1.4 is out: 412 tests pass, 3 packages are built, and start on Debian.\n\nThe linter has 2 warnings in src/cart.ts, which do not "
             "stop the release.\n\n```sh\ngit checkout v1.4\n```\n", (), 21400, 410, "700ms"),
    ]
    return [
        {"when": "/^Release 1.4/", "steps": release},
        {"when": "/^Install the package/", "steps": [step("I install it.", [shell("./start")], 6100, 90), step("It starts and answers.", (), 6900, 60)]},
        {"when": "/^Which change/", "steps": [step("It is in src/start.ts: the catalogue is read when it is first needed, not at the start.", [shell("./changes 1.3 1.4")], 22600, 210),
                                           step("The catalogue is now read when it is first needed. That saves 340 ms of 520 ms.", (), 23900, 160)]},
        {"when": "dependencies", "steps": [step("Nine packages have new versions; all tests pass.", [shell("git push origin deps/november")], 18400, 350), step("Pushed.", (), 9000, 40)]},
        {"when": "staging", "steps": [step("One thing is open.", [{"tool": "clarify", "arguments": {"question": "Which of the two staging clusters?", "choices": ["eu-west", "us-east"]}}], 7400, 120), step("Deployed.")]},
        {"when": "/^Review the open/", "steps": [step("Three are open: one helper each.", delegate("Review pull request 81", "Review pull request 84", "Review pull request 86"), 24800, 640), step("Done.")]},
        {"when": "/^Review pull/", "steps": [step("I read the changes.", [shell("sleep 600")], 11200, 170), step("Fine.")]},
        {"when": "customer list", "steps": [step("x", fault={"status": 400, "times": "forever", "body": "{\"error\": {\"message\": \"the tool crm_list has no valid schema\", \"type\": \"invalid_request_error\"}}"})]},
        {"when": "weekly report", "steps": [step("The report is written.", (), 31800, 1200)]},
        {"when": "slowest test", "steps": [step("I run them.", [shell("./test --slowest 1")], 12800, 160), step("checkout.spec.ts takes 18.2 s; it waits for a server that it does not need.", (), 14300, 180)]},
        {"steps": [step("Done: nothing needs you.", (), 15600, 420)]},
    ]


def compressed(png):
    """The same picture in fewer bytes: a browser compresses it for speed."""
    at, data, kept = 8, b"", []
    while at < len(png):
        length = int.from_bytes(png[at : at + 4])
        kind, chunk = png[at + 4 : at + 8], png[at : at + 12 + length]
        if kind == b"IDAT":
            data += chunk[8:-4]
        else:
            kept.append(chunk)
        at += 12 + length
    data = b"IDAT" + zlib.compress(zlib.decompress(data), 9)
    packed = (len(data) - 4).to_bytes(4) + data + zlib.crc32(data).to_bytes(4)
    return png[:8] + b"".join([*kept[:-1], packed, kept[-1]])


def make(service):
    for task in ("Summarise the support inbox", "Check the backups", "Find the slowest test", "Sort the new issues"):
        service.ended(service.submit({"input": task}))
    for _ in range(6):
        service.ended(service.submit({"input": "Sync the customer list"}))
    service.ended(service.submit({"input": "Write the weekly report", "agent": "docs", "expects": [{"kind": "file", "path": "report.md"}]}))
    release = service.submit({"input": RELEASE, "session": "release"})
    until("the release waits for an approval", lambda: service.get("/v1/approvals"))
    # The wait that the timeline draws short.
    asked = service.get("/v1/approvals")[0]
    until("it has waited for a while", lambda: not service.get(f"/v1/runs/{release}/wait?timeout=9s")["outcome"])
    service.call("POST", f"/v1/approvals/{asked['call']}/allow", {"scope": "once"})
    service.ended(release)
    service.ended(service.submit({"input": "Which change makes the start faster?", "session": "release"}))
    service.submit({"input": UPDATE})
    service.submit({"input": "Deploy the branch to staging"})
    service.submit({"input": "Review the open pull requests", "agent": "reviewer"})
    until("two wait", lambda: len(service.get("/v1/approvals")) == 2)
    until("the helpers work", lambda: sum(len(node["children"]) for node in service.get("/v1/tree")) == 3)
    session = service.get("/v1/sessions/release")["id"]
    return release, session


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", help="the program hermod")
    here = pathlib.Path(__file__).parent
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=here.parent / "docs" / "pictures", help="where the pictures are written")
    options = parser.parse_args()
    with Service(options.binary, CONFIG, scripts(), MODEL) as service:
        (service.work / "package.json").write_text('{ "name": "shop", "version": "1.3.2" }\n')
        (service.work / "src").mkdir()
        (service.work / "src" / "cart.ts").write_text("export const cart = [];\n")
        for name, script in PROGRAMS.items():
            program = service.work / name
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
        release, session = make(service)
        command = ["node", str(here / "dashboard_pictures.mjs"), f"http://{service.address}", service.token, str(options.folder), release, session]
        subprocess.run([*command, os.environ.get("CHROMIUM", "/usr/bin/chromium")], check=True)
    pictures = sorted(options.folder.glob("dashboard-*.png"))
    for path in pictures:
        path.write_bytes(compressed(path.read_bytes()))
        print(path.name, path.stat().st_size)
    large = [path for path in pictures if path.stat().st_size > MAX_BYTES]
    if large:
        sys.exit(f"larger than {MAX_BYTES} bytes: {', '.join(path.name for path in large)}")


main()
