"""Show 4: what a chat gets of a run over `GET /v1/runs/{run}/reply`, while a model streams in pieces of a few characters.

A small chat does what docs/service.md tells clients to do with each event; what it shows at the end is compared with the reply."""

import json
import threading

from common import Drill, Service, table, until
from endpoints import Model

SENT = "The build is green again."
CODE = "Here it is.\n\n```rust\n" + "".join(f"let number_{n} = {n};\n" for n in range(20)) + "```\n\nIt has twenty lines. All are alike.\n"
CUT = " ".join(f"This is sentence {n}, which is long enough to be a block of its own." for n in range(1, 6))
SHAPES = ["shape=deltas", "shape=blocks", "shape=blocks&block_break=message_end"]
READ_NONE = {"call": [("read_file", {"path": "none.txt"})]}
TELL = {"call": [("message", {"target": "box", "text": SENT})]}

# The steps of the model for each task, by its name.
TASKS = {
    "code": [{"say": CODE}],
    "reasoned": [{"think": "I should say so.", "say": "done"}],
    "silent": [{"say": "NO_REPLY"}],
    "lower": [{"say": " no_reply\n"}],
    "mixed": [{"say": "No_Reply"}],
    "alike": [{"say": "NO_RETRY was needed"}],
    "sent": [TELL, {"say": SENT}],
    "sent-spaces": [TELL, {"say": "The  build is\ngreen again. "}],
    "sent-else": [TELL, {"say": "The build is green, and I have told it."}],
    "error": [READ_NONE, {"say": "NO_REPLY"}],
    "error-told": [READ_NONE, TELL, {"say": "NO_REPLY"}],
    "error-answered": [READ_NONE, {"say": "It is not there."}],
    "cut": [{"say": CUT, "cut": 90}, {"say": CUT}],
    "summary": [{"say": "I look.", "call": [("shell", {"command": "echo found"})]}, {"say": "done"}],
    "fails": [{"status": 400}],
}


class Script:
    """The steps of the tasks; the first call of a task waits until its reply is read."""

    def __init__(self):
        self.attempts, self.reading = {}, {}
        self.model = Model(self.decide)

    def decide(self, texts, request):
        name, key = texts[1].split()[0], texts[1]
        self.reading[key].wait(60)
        made = sum(message["role"] == "assistant" for message in request["messages"])
        attempt = self.attempts[key, made] = self.attempts.get((key, made), 0) + 1
        steps = TASKS[name]
        step = steps[min(made + attempt - 1 if name == "cut" else made, len(steps) - 1)]
        return {"chunk": 3, "pause": 0.002, **step}


class Chat:
    """What a person sees: messages by the call with which they begin, each a list of pieces with their places in bytes."""

    def __init__(self):
        self.messages, self.names, self.final, self.seen = {}, [], None, None
        self.earlier, self.pieces, self.is_live = [], {}, False

    def take(self, name, event):
        self.names.append(name)
        self.pieces.setdefault(name, []).append(event.get("text"))
        if name == "delta":
            pieces = self.messages.setdefault(event["message"], [])
            pieces.append((sum(len(text.encode()) for _, text in pieces), event["text"]))
        elif name == "block":
            self.messages.setdefault(event["call"], []).append((event["at"], event["text"]))
        elif name == "retry":
            self.earlier.append(self.shown())
            self.void(event.get("message", event["call"]), event.get("at", 0))
        elif name == "final":
            self.final = event

    def void(self, message, place):
        kept = []
        for at, text in self.messages.get(message, []):
            if at < place:
                kept.append((at, text.encode()[: place - at].decode()))
        self.messages[message] = kept

    def shown(self):
        return "".join(text for pieces in self.messages.values() for _, text in pieces)


def read(response, chat, on_open=lambda: None):
    """Reads server-sent events until the end."""
    on_open()
    name = None
    for line in response:
        field, _, value = line.decode().rstrip("\n").partition(": ")
        if field == "event":
            name = value
        elif field == "id":
            chat.seen = value
        elif field == "data":
            chat.take(name, json.loads(value))


def same(one, other):
    """Whether two texts are alike without their spaces and fences, which a block closes and opens again."""
    strip = lambda text: "".join(line for line in text.split("\n") if not line.startswith("```")).replace(" ", "")
    return strip(one) == strip(other)


class Replies:
    """The table of this drill: each row is a task with a query."""

    def __init__(self, drill, service, script):
        self.drill, self.service, self.script, self.rows = drill, service, script, []

    def row(self, rule, task, query, holds, reply="optional"):
        """Reads a reply while it is made, and again from its records; both must hold."""
        number = len(self.rows)
        text = f"{task} {number}"
        event = self.script.reading[text] = threading.Event()
        run = self.service.submit({"input": text, "reply": reply})
        path, found = f"/v1/runs/{run}/reply?{query}", []
        for kind in ("live", "later"):
            chat = Chat()
            chat.is_live = kind == "live"
            with self.service.open("GET", path) as response:
                read(response, chat, event.set)
            ends = chat.final is not None and chat.names.count("final") == 1 and chat.names[-1] == "final"
            found.append(bool(ends and holds(chat)))
            if not found[-1]:
                seen = {"names": chat.names, "shown": chat.shown(), "earlier": chat.earlier, "final": chat.final}
                self.drill.check(False, f"{rule}: {task} with {query}, {kind}: {seen}")
        with self.service.open("GET", path, headers={"last-event-id": chat.seen}) as response:
            self.drill.check(response.status == 204, f"{rule}: a client that has seen the end gets {response.status}")
        self.rows.append([rule, task, query, chat.final and chat.final.get("source"), *("ok" if one else "MISSED" for one in found)])


def rows(replies):
    row = replies.row
    only_final = lambda chat: chat.names == ["final"]
    source = lambda name: lambda chat: only_final(chat) and chat.final["source"] == name and chat.shown() == ""
    for shape in SHAPES:
        whole = lambda text: lambda chat: same(chat.shown(), text) and chat.final["source"] == "answer"
        balanced = lambda chat: all(text.count("```") % 2 == 0 for text in chat.pieces["block"]) and len(chat.pieces["block"]) > 3
        streamed = lambda chat: len(chat.pieces["delta"]) > 10 or not chat.is_live
        is_code = lambda chat: whole(CODE.strip())(chat) and (streamed if shape == SHAPES[0] else balanced)(chat)
        row("a fence is not split", "code", shape, is_code)
        for task in ("silent", "lower", "mixed"):
            row("NO_REPLY is silent", task, shape, lambda chat: only_final(chat) and chat.final["silent"] and not chat.final["text"])
        row("what begins alike is shown", "alike", shape, whole("NO_RETRY was needed"))
        for task in ("sent", "sent-spaces"):
            row("no text twice", task, shape, lambda chat: source("sent")(chat) and not chat.final["text"])
        row("another text is shown", "sent-else", shape, whole(TASKS["sent-else"][1]["say"]))
        is_error = lambda chat: source("tool_error")(chat) and "none.txt" in chat.final["text"]
        row("a tool's error if nothing is left", "error", shape, is_error)
        row("no error if the tool message spoke", "error-told", shape, lambda chat: only_final(chat) and not chat.final["text"])
        row("no error if there is an answer", "error-answered", shape, whole("It is not there."))
        # Blocks of whole messages are never void; the others were shown, and are taken back.
        is_void = lambda chat: chat.earlier[:1] not in ([], [""]) if chat.is_live and shape != SHAPES[2] else not chat.earlier
        voids = lambda chat: whole(CUT)(chat) and chat.final["text"] in (CUT, None) and is_void(chat)
        row("a retry voids", "cut", shape, voids)
        row("a failure is told", "fails", shape, lambda chat: source("failure")(chat) and chat.final["text"] == chat.final["reason"])
        kind = "delta" if shape == SHAPES[0] else "block"
        row("reasoning is off", "reasoned", shape, lambda chat: "reasoning" not in chat.names and whole("done")(chat))
        for how in ("stream", "block"):
            first = lambda chat: chat.names.index("reasoning") < chat.names.index(kind)
            before = lambda chat: "".join(chat.pieces["reasoning"]) == "I should say so." and first(chat)
            row(f"reasoning is {how}", "reasoned", f"{shape}&reasoning={how}", before)
        row("no summary of tools", "summary", shape, lambda chat: "tool" not in chat.names and chat.shown() == "I look.done")
        for how in ("on", "full"):
            told = lambda chat: len(chat.pieces["tool"]) == 1 and ("found\\n" in chat.pieces["tool"][0]) == (how == "full")
            row(f"summaries of tools are {how}", "summary", f"{shape}&verbose={how}", told)


def main():
    drill = Drill(__doc__)
    script = Script()
    targets = "[targets.box]\nkind = \"folder\"\npath = \"{0}\"\n[replies]\nblock_min_chars = 40\nblock_max_chars = 120\n"
    with Service(drill.options.binary, script.model.config()) as service:
        box = service.root / "box"
        service.stop()
        service.configure(script.model.config() + targets.format(box))
        service.start()
        replies = Replies(drill, service, script)
        rows(replies)
        told = sum(row[1] in ("sent", "sent-spaces", "sent-else", "error-told") for row in replies.rows)
        texts = lambda: [json.loads(path.read_text())["data"]["text"] for path in box.glob("*.json")]
        until("all messages are delivered", lambda: len(texts()) >= told)
        drill.check(texts() == [SENT] * told, f"the folder has {texts()}")
        drill.counts = {"rows": len(replies.rows), "missed": len(drill.misses), "delivered": told}
    table(["rule", "task", "query", "source", "live", "later"], replies.rows)
    drill.end()


if __name__ == "__main__":
    main()
