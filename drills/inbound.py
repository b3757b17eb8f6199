"""Webhooks of GitHub, Stripe and Slack: a signed one is a message once, also if the service is killed meanwhile and it comes again.

One that is not signed opens nothing, and all wrong ones get the same answer."""

import hashlib
import hmac
import http.client
import itertools
import json
import threading
import time

from common import Drill, Service, table, until

SECRETS = {"GITHUB": "It is a secret of the hub", "STRIPE": "whsec_of_the_till", "SLACK": "8f742231b10e8888abcd99yyyzzz85a5"}
CONFIG = """
[inbound.github]
signature = "github"
secret = "env:GITHUB"
events = ["X-GitHub-Event=issues"]
session = "github-{{ repository.full_name }}"
text = "{{ headers.x_github_event }}: {{ issue.title }}"
[inbound.stripe]
signature = "stripe"
secret = "env:STRIPE"
session = "stripe-{{ data.object.customer }}"
text = "{{ type }} {{ data.object.note }}"
[inbound.slack]
signature = "slack"
secret = "env:SLACK"
session = "slack-{{ event.channel }}"
text = "{{ event.text }}"
mode = "followup"
"""
SCRIPT = [{"steps": [{"say": "Read: {{user}}"}]}]


def tag(secret, text):
    return hmac.digest(secret.encode(), text.encode(), hashlib.sha256).hex()


def github(mark, text, secret=SECRETS["GITHUB"], **_):
    body = json.dumps({"issue": {"title": text}, "repository": {"full_name": "a/b"}})
    return body, {"x-hub-signature-256": f"sha256={tag(secret, body)}", "x-github-delivery": mark, "x-github-event": "issues"}


def stripe(mark, text, secret=SECRETS["STRIPE"], late=0):
    body = json.dumps({"id": mark, "type": "invoice.paid", "data": {"object": {"customer": "c1", "note": text}}})
    at = int(time.time()) - late
    return body, {"stripe-signature": f"t={at},v1={tag(secret, f'{at}.{body}')}"}


def slack(mark, text, secret=SECRETS["SLACK"], late=0):
    event = {"type": "event_callback", "event_id": mark, "event": {"channel": "C1", "text": text}}
    return signed_slack(event, secret, late)


def signed_slack(value, secret=SECRETS["SLACK"], late=0):
    body, at = json.dumps(value), str(int(time.time()) - late)
    return body, {"x-slack-request-timestamp": at, "x-slack-signature": f"v0={tag(secret, f'v0:{at}:{body}')}"}


SENDERS = {"github": github, "stripe": stripe, "slack": slack}


class Webhooks:
    """What was sent, and the messages that it became."""

    def __init__(self, drill, service):
        self.drill, self.service, self.accepted, self.refusals, self.rows = drill, service, {}, set(), []
        self.lost = 0  # answers that did not come

    def post(self, name, body, headers):
        headers = {"content-type": "application/json", **headers}
        return self.service.call("POST", f"/v1/hooks/{name}", body.encode(), headers, token=False)

    def row(self, name, what, status, expected, more=True):
        is_right = self.drill.check(status == expected and more, f"{name}, {what}: {status}, not {expected}")
        self.rows.append([name, what, status, "ok" if is_right else "MISSED"])

    def refused(self, name):
        """Webhooks that are not signed as they must be."""
        send = SENDERS[name]
        body, headers = send("wrong-1", "hello")
        broken = {key: value[:-6] + "000000" if "signature" in key else value for key, value in headers.items()}
        cases = {
            "another secret": send("wrong-2", "hello", secret="another"), "a broken signature": (body, broken), "no signature": (body, {}),
            "another body": (body.replace("hello", "hullo"), headers), "no JSON": ("{ no JSON", headers),
            "a token of the service": (body, {"authorization": f"Bearer {self.service.token}"}),
        }
        if name != "github":
            cases["a time long ago"] = send("wrong-3", "hello", late=400)
            cases["a time to come"] = send("wrong-4", "hello", late=-400)
        for what, (body, headers) in cases.items():
            status, value = self.post(name, body, headers)
            self.refusals.add(json.dumps(value))
            self.row(name, what, status, 401)

    def taken(self, name, mark, how):
        """A signed webhook, with a kill right after its answer or while it is taken: then its sender tries again."""
        text = f"{name} {mark} of the drill."
        send = lambda: self.post(name, *SENDERS[name](mark, text))
        if how == "killed meanwhile":
            threading.Timer(self.drill.random.random() / 60, self.service.process.kill).start()
        try:
            status, first = send()
        except (OSError, http.client.HTTPException):
            status, first = None, None
            self.lost += 1
        if how != "signed":
            self.service.restart()
        if status is None:
            self.service.until_ready()
            status, first = send()
        self.row(name, f"{mark}, {how}", status, 202)
        self.accepted[text] = (name, mark, first)

    def repeated(self):
        """Repeats of all of them, of which some say something else under the same id."""
        same = True
        for text, (name, mark, first) in self.accepted.items():
            status, again = self.post(name, *SENDERS[name](mark, self.drill.random.choice([text, "other words"])))
            same &= self.drill.check((status, again) == (202, first), f"{name} {mark}: a repeat of {first} is {status} {again}")
        self.rows.append(["all", f"{len(self.accepted)} repeats", 202, "ok" if same else "MISSED"])


def checked(drill, service, webhooks):
    """Checks that each message was answered, and stands in its conversation once; the number of messages."""
    for text, (name, mark, first) in webhooks.accepted.items():
        fate = lambda: service.get(f"/v1/messages/{first['message']}")
        until(f"{name} {mark} is answered", lambda: fate()["state"] == "answered")
        page = service.get(f"/v1/sessions/{first['session']}/messages?max=1000")["items"]
        told = sum(json.dumps(one).count(text) for one in page if one["role"] == "user")
        drill.check(told == 1, f"{name} {mark}: its conversation has it {told} times")
    messages = {first["message"] for _, _, first in webhooks.accepted.values()}
    drill.check(len(messages) == len(webhooks.accepted), "two webhooks are one message")
    runs = service.get("/v1/runs?max=1000")["items"]
    drill.check({one["id"] for one in runs} <= messages, "a run is of no webhook")
    return len(messages), len(runs)


def main():
    drill = Drill(__doc__, ("webhooks", 12, "signed webhooks of each sender, of which half are killed"))
    with Service(drill.options.binary, CONFIG, SCRIPT, **SECRETS) as service:
        webhooks = Webhooks(drill, service)
        for name in SENDERS:
            webhooks.refused(name)
        drill.check(len(webhooks.refusals) == 1, f"answers tell what is wrong: {webhooks.refusals}")
        drill.check(not service.get("/v1/runs")["items"], "a webhook that is not signed has begun a run")
        challenge, headers = signed_slack({"type": "url_verification", "challenge": "3eZb"})
        status, value = webhooks.post("slack", challenge, headers)
        webhooks.row("slack", "url_verification", status, 200, value == {"challenge": "3eZb"})
        body, headers = github("ping", "hello")
        status, value = webhooks.post("github", body, {**headers, "x-github-event": "push"})
        webhooks.row("github", "an event that is left out", status, 200, value == {"ignored": "events"})
        sent = list(itertools.product(SENDERS, range(drill.options.webhooks)))
        drill.random.shuffle(sent)
        for at, (name, n) in enumerate(sent):
            service.until_ready()
            webhooks.taken(name, f"id-{n}", ["signed", "killed after it", "signed", "killed meanwhile"][at % 4])
        service.until_ready()
        webhooks.repeated()
        service.restart()
        service.until_ready()
        webhooks.repeated()
        messages, runs = checked(drill, service, webhooks)
        drill.counts = {"messages": messages, "runs": runs, "refused": sum(row[2] == 401 for row in webhooks.rows)}
        drill.counts |= {"answers lost": webhooks.lost, "kills": service.kills}
    table(["sender", "webhook", "status", ""], webhooks.rows)
    drill.end()


if __name__ == "__main__":
    main()
