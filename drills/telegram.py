"""Show 6: a conversation over a Telegram server that this drill plays: streaming by edits, a steer, an approval and a choice by buttons, a
photo, `/new`, `/stop` and other commands, and a kill while an answer is streamed. It prints what was missed: nothing."""

import base64
import itertools
import json
import re
import struct
import threading
import time
import zlib

from common import WAITING, Drill, Service, table, until
from endpoints import Model, Server

TOKEN, ANN = "4711:a-secret-of-the-bot", 17
WORDS = "one two three four five six seven eight nine ten. " * 8


def png():
    """A picture of one red point."""
    part = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = part(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + part(b"IDAT", zlib.compress(b"\0\xff\0\0")) + part(b"IEND", b"")


class Telegram:
    """The bot API, as far as a bot of one chat needs it. `shown` has the messages of the bot as a person sees them."""

    def __init__(self):
        self.lock, self.updates = threading.Condition(), []
        self.numbers, self.marks = itertools.count(500), itertools.count(100)
        self.shown, self.edits, self.calls, self.files = {}, {}, [], {"photo": png()}
        self.server = Server(self.answer)

    def answer(self, request):
        if request.path == f"/file/bot{TOKEN}/photos/photo":
            request.send_response(200)
            request.send_header("content-length", str(len(self.files["photo"])))
            request.end_headers()
            return request.wfile.write(self.files["photo"])
        method = request.path.removeprefix(f"/bot{TOKEN}/")
        body = json.loads(request.body or b"{}")
        with self.lock:
            self.calls.append(method)
        result = getattr(self, method, None)
        if result is None:
            return request.reply(200, {"ok": True, "result": True})
        value = result(body)
        if isinstance(value, str):
            return request.reply(400, {"ok": False, "error_code": 400, "description": value})
        request.reply(200, {"ok": True, "result": value})

    def getMe(self, _):
        return {"id": 4711, "is_bot": True, "first_name": "Hermod", "username": "hermod_bot"}

    def getUpdates(self, body):
        end = time.monotonic() + min(body.get("timeout", 0), 3)
        with self.lock:
            self.updates = [one for one in self.updates if one["update_id"] >= body.get("offset", 0)]
            while not self.updates and time.monotonic() < end:
                self.lock.wait(end - time.monotonic())
            return self.updates[:100]

    def getFile(self, body):
        name = body["file_id"]
        return {"file_id": name, "file_path": f"photos/{name}"} if name in self.files else "Bad Request: invalid file_id"

    def sendMessage(self, body):
        with self.lock:
            mark = next(self.marks)
            self.shown[mark], self.edits[mark] = body, 0
        return {"message_id": mark}

    def editMessageText(self, body):
        with self.lock:
            mark = body["message_id"]
            if mark not in self.shown:
                return "Bad Request: message to edit not found"
            if self.shown[mark]["text"] == body["text"] and "reply_markup" not in self.shown[mark]:
                return "Bad Request: message is not modified"
            self.shown[mark] = body
            self.edits[mark] += 1
        return {"message_id": mark}

    def deleteMessage(self, body):
        with self.lock:
            return self.shown.pop(body["message_id"], None) is not None or "Bad Request: message to delete not found"

    def update(self, **fields):
        with self.lock:
            self.updates.append({"update_id": next(self.numbers), **fields})
            self.lock.notify_all()

    def say(self, text=None, **fields):
        """A message of Ann."""
        sender = {"id": ANN, "is_bot": False, "first_name": "Ann"}
        message = {"message_id": next(self.marks), "date": 1, "chat": {"id": ANN, "type": "private"}, "from": sender, **fields}
        self.update(message=message | ({"text": text} if text else {}))

    def buttons(self):
        """The newest message with buttons, and its buttons by their labels."""
        for mark, body in sorted(self.shown.items(), reverse=True):
            rows = body.get("reply_markup", {}).get("inline_keyboard", [])
            if rows:
                return mark, {button["text"]: button["callback_data"] for row in rows for button in row}
        return None

    def press(self, mark, data):
        message = {"message_id": mark, "chat": {"id": ANN, "type": "private"}}
        self.update(callback_query={"id": "q", "from": {"id": ANN, "first_name": "Ann"}, "data": data, "message": message})

    def texts(self):
        return [re.sub("<[^>]*>", "", body["text"]) for _, body in sorted(self.shown.items())]


def decide(texts, request):
    """An answer for the newest task."""
    last = max(at for at, message in enumerate(request["messages"]) if message["role"] == "user")
    task, results = texts[last], [text for text in texts[last + 1 :] if text]
    if "stream" in task:
        return {"say": f"{task}: {WORDS}", "chunk": 12, "pause": 0.03}
    if results:
        read = [word for word in ("softly", "red") if word in results[-1]]
        return {"say": ", ".join([f"{task} is over", *read])}
    if "wait" in task:
        return {"call": [("shell", {"command": WAITING.format(task.split()[0])})]}
    if "approve" in task:
        return {"call": [("write_file", {"path": "made.txt", "content": "x"})]}
    if "choose" in task:
        return {"call": [("clarify", {"question": "Which colour?", "choices": ["red", "blue"]})]}
    return {"say": f"You said: {task}"}


def config(telegram, model, ledger):
    return model.config() + (
        f'[channels.home]\nkind = "telegram"\ntoken = "env:BOT"\nallow = [{ANN}]\nurl = "{telegram.server.url}"\nedit_interval = "60ms"\n'
        '[policy]\nask = ["write_file"]\n[approvals]\napprover = "person"\n[delivery]\nfirst_pause = "20ms"\nlongest_pause = "100ms"\n'
        f'[hooks.commands]\non = ["command"]\ncommand = "cat >> {ledger}"\n'
    )


class Conversation:
    """What Ann does, step by step, and how often each of it was answered."""

    def __init__(self, drill, service, telegram, model):
        self.drill, self.service, self.telegram, self.model, self.rows = drill, service, telegram, model, []

    def sees(self, *parts):
        """Waits until a message of the bot has these parts; false if none comes."""
        try:
            return until(f"Ann sees {parts}", lambda: any(all(part in text for part in parts) for text in self.telegram.texts()), 30)
        except TimeoutError:
            return False

    def step(self, name, holds):
        began, edits = len(self.telegram.shown), sum(self.telegram.edits.values())
        holds = self.drill.check(holds(), f"{name}: {self.telegram.texts()[-3:]}")
        self.rows.append([name, len(self.telegram.shown) - began, sum(self.telegram.edits.values()) - edits, "ok" if holds else "MISSED"])

    def streamed(self, task, is_killed=False):
        edits = sum(self.telegram.edits.values())
        self.telegram.say(task)
        until("it is streamed", lambda: sum(self.telegram.edits.values()) > edits + 2)
        if is_killed:
            self.service.restart()
        whole = f"{task}: {WORDS}".strip()
        if not self.sees(whole):
            return False
        until("it is delivered", lambda: not self.service.get("/v1/deliveries")["items"])
        return sum(task in text for text in self.telegram.texts()) == 1

    def steered(self):
        self.telegram.say("wait-steer please")
        self.service.has_started("wait-steer")
        self.telegram.say("softly")
        until("it is queued", lambda: not self.telegram.updates)
        self.service.release("wait-steer")
        return self.sees("wait-steer please is over, softly")

    def pressed(self, task, label, *parts):
        self.telegram.say(task)
        mark, buttons = until("it asks", self.telegram.buttons)
        self.telegram.press(mark, buttons[label])
        is_settled = lambda: "reply_markup" not in self.telegram.shown[mark] and self.telegram.buttons() is None
        return self.sees(*parts) and until("the buttons go", is_settled)

    def pictured(self):
        sizes = [{"file_id": "photo", "width": 1, "height": 1, "file_size": len(png())}]
        self.telegram.say(photo=sizes, caption="what is this")
        data = base64.b64encode(png()).decode()
        return self.sees("You said: what is this") and any(data in json.dumps(entry["request"]) for entry in self.model.ledger)

    def begun_anew(self):
        self.telegram.say("/new")
        until("it is taken", lambda: not self.telegram.updates)
        self.telegram.say("fresh")
        return self.sees("You said: fresh") and not any("wait-steer" in text for text in self.model.ledger[-1]["texts"])

    def stopped(self):
        self.telegram.say("wait-stop please")
        self.service.has_started("wait-stop")
        self.telegram.say("/stop")
        stopped = lambda: any(one["outcome"] == "stopped" for one in self.service.get("/v1/runs")["items"])
        return until("a run is stopped", stopped) and not any("wait-stop please is over" in text for text in self.telegram.texts())

    def commanded(self, command, part):
        self.telegram.say(command)
        return self.sees(part)


def main():
    drill = Drill(__doc__)
    telegram, model = Telegram(), Model(decide)
    with Service(drill.options.binary, "", BOT=TOKEN) as service:
        ledger = service.root / "ledger"
        service.stop()
        service.configure(config(telegram, model, ledger))
        service.start()
        ann = Conversation(drill, service, telegram, model)
        ann.step("an answer by edits", lambda: ann.streamed("stream one"))
        ann.step("a steer", ann.steered)
        ann.step("an approval", lambda: ann.pressed("approve", "Allow", "approve is over") and (service.work / "made.txt").exists())
        ann.step("a choice", lambda: ann.pressed("choose", "red", "choose is over, red"))
        ann.step("a photo", ann.pictured)
        ann.step("/new", ann.begun_anew)
        ann.step("/stop", ann.stopped)
        ann.step("/status", lambda: ann.commanded("/status", "Conversation telegram:home:17:g"))
        ann.step("/mode", lambda: ann.commanded("/mode followup", "followup"))
        ann.step("/help", lambda: ann.commanded("/help", "/status"))
        ann.step("a kill while it streams", lambda: ann.streamed("stream two", True))
        until("all updates are confirmed", lambda: not telegram.updates)
        until("no run is under way", lambda: not service.get("/v1/tree"))
        told = lambda: [json.loads(line)["command"] for line in ledger.read_text().splitlines()] if ledger.exists() else []
        until("hooks are told", lambda: {"new", "stop", "status", "mode", "help"} <= set(told()))
        drill.check(telegram.buttons() is None, "a question still has buttons")
        drill.check(TOKEN not in service.log.read_text(), "the log has the token")
        drill.counts = {"messages": len(telegram.shown), "edits": telegram.calls.count("editMessageText"), "kills": service.kills}
        drill.counts |= {"hooks told of": sorted(set(told())), "missed": len(drill.misses)}
        if drill.misses:
            print("\n".join(telegram.texts()))
    table(["Ann does", "new messages", "edits", "she sees"], ann.rows)
    drill.end()


if __name__ == "__main__":
    main()
