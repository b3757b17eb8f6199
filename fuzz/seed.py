#!/usr/bin/env python3
"""Writes seeds for the fuzz targets: the bodies of recorded exchanges, whole and cut in two places.

Usage: fuzz/seed.py [RECORDINGS]   (else HERMOD_RECORDINGS, else ../shared/recordings)
"""

import json
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
FORMATS = {
    "anthropic": "anthropic_messages",
    "chat_completions": "chat_completions",
    "responses": "codex_responses",
}
# Longer bodies slow the fuzzer down more than they teach it.
LONGEST = 16 * 1024

given = sys.argv[1:2] or [os.environ.get("HERMOD_RECORDINGS", HERE.parent.parent / "shared/recordings")]
recordings = pathlib.Path(given[0])
count = 0
for index in ("index.json", "index-documented.json"):
    for entry in json.loads((recordings / index).read_text()):
        body = (recordings / entry["dir"] / "response.body").read_bytes()
        if entry["status"] != 200 or len(body) > LONGEST:
            continue
        third = (len(body) // 3).to_bytes(2, "little")
        for target in (FORMATS[entry["wire_format"]], "sse"):
            folder = HERE / "corpus" / target
            folder.mkdir(parents=True, exist_ok=True)
            (folder / entry["name"]).write_bytes(b"\x00" + body)
            (folder / (entry["name"] + "-cut")).write_bytes(b"\x02" + third + b"\x07\x00" + body)
            count += 2
print(f"{count} seeds in {HERE / 'corpus'}")
