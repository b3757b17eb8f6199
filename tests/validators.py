#!/usr/bin/env python3
"""Other people's code as judges of what Hermod sends and reads. Runs what is installed and says what it skipped.

1. The parameter types of the official SDKs (`openai`, `anthropic`; every unknown field is an error) judge requests of
   `hermod wire encode`: conversations with pictures, tools, levels of thinking and opaque state, all six switches of the
   wire format in mid-conversation, and a thousand tool schemas.
2. The rehearsal endpoint, which is as strict as the vendors' documentation, is sent the switches, too.
3. LiteLLM's proxy between `hermod run` and `hermod rehearse`: on one side it reads our requests and writes the answers
   that we decode, on the other its requests are read by the rehearsal endpoint.

    pip install openai anthropic 'litellm[proxy]'
    tests/validators.py [sdk] [rehearsal] [litellm]

HERMOD is the program (else target/release/hermod, else target/debug/hermod), HERMOD_RECORDINGS the recordings (else
../shared/recordings), LITELLM the folder into which LiteLLM was installed if it is not this Python's. Exit: 0 if nothing
failed, 1 if something did.
"""

import collections
import contextlib
import itertools
import json
import os
import pathlib
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import typing
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDINGS = pathlib.Path(os.environ.get("HERMOD_RECORDINGS", ROOT.parent / "shared/recordings"))
# Our names by those of the recordings.
FORMATS = {"chat_completions": "chat_completions", "anthropic": "anthropic_messages", "responses": "codex_responses"}
PIXEL = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs="
# For a proxy that lives as long as the check.
KEY = "sk-" + secrets.token_hex(32)
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

passed, failed, skipped = 0, [], []


def check(what, problem):
    """Counts a check; `problem` is None if all is well."""
    global passed
    if problem is None:
        passed += 1
    else:
        failed.append(what)
        print(f"FAILED  {what}: {problem}")


def skip(what, why):
    skipped.append(what)
    print(f"skipped {what}: {why}")


def program():
    given = os.environ.get("HERMOD")
    for path in [given] if given else [ROOT / "target/release/hermod", ROOT / "target/debug/hermod"]:
        if pathlib.Path(path).is_file():
            return str(path)
    sys.exit("no hermod program: run `cargo build`, or set HERMOD")


def known_formats():
    """The wire formats of this program."""
    refusal = subprocess.run([HERMOD, "wire", "decode", "--format", "?"], capture_output=True, text=True).stderr
    return [name for name in FORMATS.values() if name in refusal]


# --- 1. The SDKs' parameter types ---------------------------------------------------------------------------------------


def sdk_types():
    """A validator of JSON texts for each wire format whose SDK is installed."""
    sources = {
        "chat_completions": ("openai.types.chat.completion_create_params", "CompletionCreateParamsStreaming"),
        "codex_responses": ("openai.types.responses.response_create_params", "ResponseCreateParamsStreaming"),
        "anthropic_messages": ("anthropic.types.message_create_params", "MessageCreateParamsStreaming"),
    }
    # pydantic would look into an Iterable only when somebody reads it.
    iterable, typing.Iterable = typing.Iterable, typing.List
    types = {}
    for name, (module, params) in sources.items():
        try:
            types[name] = getattr(__import__(module, fromlist=[params]), params)
        except ImportError as error:
            skip(f"parameter types for {name}", f"{error}; pip install openai anthropic")
    typing.Iterable = iterable
    if not types:
        return {}
    import pydantic
    import typing_extensions

    models = set()
    for name, module in list(sys.modules.items()):
        if not name.startswith(("anthropic.types", "openai.types")):
            continue
        for value in list(vars(module).values()):
            if typing_extensions.is_typeddict(value):
                value.__pydantic_config__ = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=True)
            elif isinstance(value, type) and issubclass(value, pydantic.BaseModel) and value.model_fields:
                # A type of answers may stand in a request, too, and lets any field pass.
                value.model_config["extra"] = "forbid"
                models.add(value)
    for model in models:
        model.model_rebuild(force=True)
    adapters = {name: pydantic.TypeAdapter(params) for name, params in types.items()}

    def validator(name, adapter):
        def problem(text):
            try:
                adapter.validate_json(without_dialects(text) if name == "chat_completions" else text, strict=True)
            except pydantic.ValidationError as error:
                return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:4])
            return None

        return problem

    validators = {name: validator(name, adapter) for name, adapter in adapters.items()}
    for name, problem in validators.items():
        # A judge that lets everything pass is none.
        bad = [{"type": "text", "text": "x", "unknown": 1}]
        request = {"model": "m", "max_tokens": 1, "stream": True}
        request["input" if name == "codex_responses" else "messages"] = [{"role": "user", "content": bad}]
        assert problem(json.dumps(request)) is not None, name
    return validators


# What vendors other than OpenAI want to see again in an assistant message, and get from us only if it came from them.
DIALECTS = ("reasoning_content", "reasoning", "reasoning_details")


def without_dialects(text):
    """The request as OpenAI itself would get it."""
    request = json.loads(text)
    for message in request.get("messages", []):
        for field in DIALECTS:
            message.pop(field, None)
        for call in message.get("tool_calls", []):
            call.pop("extra_content", None)
    return json.dumps(request)


class Refused(Exception):
    pass


def hermod(args, text):
    run = subprocess.run([HERMOD, "wire", *args], input=text, capture_output=True)
    if run.returncode != 0:
        raise Refused(run.stderr.decode().strip())
    return run.stdout.decode()


def origin(wire):
    return ["--provider", f"vendor-of-{wire}", "--model", f"model-of-{wire}"]


def encode(wire, conversation):
    return hermod(["encode", "--format", wire, *origin(wire), "-"], json.dumps(conversation).encode())


def assistant(wire, decoded):
    """A decoded answer as a message of a conversation."""
    message = {"role": "assistant", "content": decoded["text"]}
    if decoded["reasoning"]:
        message["reasoning"] = decoded["reasoning"]
    if decoded["tool_calls"]:
        function = lambda call: {"name": call["name"], "arguments": call["arguments"]}
        message["tool_calls"] = [
            {"id": call["id"], "type": "function", "function": function(call)} for call in decoded["tool_calls"]
        ]
    if decoded["opaque"]:
        message["opaque"] = decoded["opaque"]
    return message


def user(text, pictures=0):
    picture = {"type": "image_url", "image_url": {"url": PIXEL}}
    return {"role": "user", "content": [{"type": "text", "text": text}] + [picture] * pictures}


def results(message):
    """A result for each call of a message; the first shows a picture."""
    picture = {"type": "image_url", "image_url": {"url": PIXEL}}
    for n, call in enumerate(message.get("tool_calls", [])):
        content = [{"type": "text", "text": f"result {n}"}] + [picture] * (n == 0)
        yield {"role": "tool", "tool_call_id": call["id"], "content": content}


def request(messages, **more):
    names = {call["function"]["name"] for message in messages for call in message.get("tool_calls", [])}
    names |= {"file.read", "x" * 80}
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    tools = [
        {"type": "function", "function": {"name": name, "description": "Does it.", "parameters": schema}}
        for name in sorted(names)
    ]
    base = {"model": "m", "max_tokens": 30000, "system": "Be kind.", "tools": tools, "messages": messages}
    return base | more


def recorded_answers(wires):
    """Decoded recordings with tool calls, by wire format: those that carry opaque state first."""
    answers = {wire: [] for wire in wires}
    for entry in json.loads((RECORDINGS / "index.json").read_text()):
        wire = FORMATS[entry["wire_format"]]
        if wire not in answers or entry["status"] != 200:
            continue
        body = (RECORDINGS / entry["dir"] / "response.body").read_bytes()
        decoded = json.loads(hermod(["decode", "--format", wire, *origin(wire), "-"], body))
        if decoded["outcome"] == "message" and decoded["tool_calls"]:
            answers[wire].append((entry["name"], assistant(wire, decoded)))
    for wire in wires:
        answers[wire].sort(key=lambda answer: "opaque" not in answer[1])
    return answers


def seals(message):
    """The texts that only their maker may see again."""
    found = []

    def walk(value):
        if isinstance(value, dict):
            for name, inner in value.items():
                if name in ("signature", "encrypted_content", "data") and isinstance(inner, str) and inner:
                    found.append(inner)
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(message.get("opaque", {}).get("parts", []))
    return found


def judged(judge, wire, what, conversation):
    """Encodes a conversation and has it judged; the request, if there is one."""
    try:
        body = encode(wire, conversation)
    except Refused as error:
        check(what, str(error))
        return None
    check(what, judge(body))
    return json.loads(body)


def judge_plain(judge, wire):
    call = {"id": "functions.read:0", "type": "function", "function": {"name": "file.read", "arguments": "{broken"}}
    broken = {"role": "assistant", "content": None, "tool_calls": [call]}
    talk = [user("Look.", 2), broken, *results(broken), {"role": "assistant", "content": "Seen."}, user("Thanks.")]
    judged(judge, wire, f"{wire}: a conversation", request(talk))
    judged(judge, wire, f"{wire}: without tools and system", {"model": "m", "max_tokens": 9, "messages": talk[:1]})
    judged(judge, wire, f"{wire}: a model that sees nothing", request(talk, images=False))
    noted = [{**message, "note": "\n[A note.]"} if message["role"] == "tool" else message for message in talk]
    judged(judge, wire, f"{wire}: a note behind a result", request(noted))
    for level in ("off", "minimal", "low", "medium", "high"):
        for style in ("effort", "budget", "adaptive"):
            thinking = {"level": level, "style": style}
            judged(judge, wire, f"{wire}: thinking {level} by {style}", request(talk, thinking=thinking))


def switches(answers):
    """What is said in one format and asked in another: both, a name, and the messages, with tools and pictures."""
    for one in answers:
        for other in answers:
            for name, here in answers[one][:40]:
                if one != other:
                    yield one, other, f"{one} -> {other}, {name}", [user("Look.", 1), here, *results(here)]


def judge_switches(judges, answers):
    """From each format to each other and back, with thinking, tools and pictures."""
    counts = collections.Counter()
    for one, other, what, talk in switches(answers):
        if other not in judges:
            continue
        body = judged(judges[other], other, what, request(talk, thinking=effort(other)))
        text = json.dumps(body, ensure_ascii=False)
        sealed = seals(talk[1])
        leaked = [seal for seal in sealed if json.dumps(seal, ensure_ascii=False)[1:-1] in text]
        check(f"{what}: what is sealed stays away", leaked[0][:60] if leaked else None)
        there = answers[other][0][1] if answers[other] else {"role": "assistant", "content": "Hello."}
        ended = {"role": "assistant", "content": "Seen."}
        back = [*talk, ended, user("And now?"), there, *results(there), user("Go on.")]
        if one in judges:
            judged(judges[one], one, f"{what}, and back", request(back, thinking=effort(one)))
        counts[one, other] += 1
        counts[one, other, "sealed"] += bool(sealed)
    for one, other in itertools.permutations(answers, 2):
        count, sealed = counts[one, other], counts[one, other, "sealed"]
        print(f"        {one} -> {other} and back: {count} conversations, {sealed} with sealed thinking")


def judge_seals(judges, answers):
    """What is sealed goes back to its maker while it works with tools."""
    for wire in answers:
        for name, here in answers[wire][:40]:
            talk = [user("Look.", 1), here, *results(here)]
            what = f"{wire} to itself, {name}"
            if wire not in judges:
                continue
            body = judged(judges[wire], wire, what, request(talk, thinking=effort(wire)))
            text = json.dumps(body, ensure_ascii=False)
            lost = [seal for seal in seals(here) if json.dumps(seal, ensure_ascii=False)[1:-1] not in text]
            check(f"{what}: what is sealed comes back", lost[0][:60] if lost else None)


def effort(wire):
    return {"level": "low", "style": "budget" if wire == "anthropic_messages" else "effort"}


def judge_tools(judge, wire):
    lines = (RECORDINGS / "tool-schemas/bfcl-tools.jsonl").read_text().splitlines()
    tools = [json.loads(line)["tool"] for line in lines]
    seen = 0
    while tools:
        batch, rest, names = [], [], set()
        for tool in tools:
            name = tool["function"]["name"]
            fits = len(batch) < 100 and name not in names
            (batch if fits else rest).append(tool)
            names.add(name)
        body = judged(judge, wire, f"{wire}: tools from {seen} on", request([user("Go.")], tools=batch))
        for tool in (body or {}).get("tools", []):
            name = tool.get("function", tool)["name"]
            check(f"{wire}: {name}", None if NAME.fullmatch(name) else "a name that the vendor refuses")
        seen, tools = seen + len(batch), rest
    print(f"        {wire}: {seen} schemas")


def run_sdk():
    judges = sdk_types()
    wires = [wire for wire in known_formats() if wire in judges]
    for wire in set(judges) - set(wires):
        skip(f"requests of {wire}", "this hermod does not have the format")
    for wire in wires:
        judge_plain(judges[wire], wire)
    if not RECORDINGS.is_dir():
        skip("switches and schemas", f"{RECORDINGS} does not exist; set HERMOD_RECORDINGS")
        return
    answers = recorded_answers(known_formats())
    judge_switches(judges, answers)
    judge_seals(judges, answers)
    for wire in wires:
        judge_tools(judges[wire], wire)


# --- 2. The rehearsal endpoint ------------------------------------------------------------------------------------------


def run_rehearsal():
    if not RECORDINGS.is_dir():
        skip("the rehearsal endpoint", f"{RECORDINGS} does not exist; set HERMOD_RECORDINGS")
        return
    wires = known_formats()
    with rehearsal() as base:
        spoken = [wire for wire in wires if get(base + BACKENDS[wire][0], {})[0] != 404]
        for wire in set(wires) - set(spoken):
            skip(f"switches to {wire} at the rehearsal endpoint", f"it has no {BACKENDS[wire][0]}")
        for one, other, what, talk in switches(recorded_answers(wires)):
            if other not in spoken:
                continue
            body = json.loads(encode(other, request(talk, thinking=effort(other))))
            status, text = get(base + BACKENDS[other][0], body)
            check(f"{what}, at the rehearsal endpoint", None if status == 200 else f"{status}: {text[:300]}")


@contextlib.contextmanager
def rehearsal():
    """The rehearsal endpoint; gives its base URL."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with running([HERMOD, "rehearse"], **pipes) as process:
        yield process.stdout.readline().strip()


# --- 3. LiteLLM's proxy -------------------------------------------------------------------------------------------------


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def get(url, body=None):
    """Status and text, or None if nobody answers."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}", "anthropic-version": "2023-06-01"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return None


@contextlib.contextmanager
def running(command, **more):
    """A process of its own group that ends with the block."""
    process = subprocess.Popen(command, start_new_session=True, **more)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def litellm_command():
    """The proxy's command and environment, or None."""
    folder = os.environ.get("LITELLM")
    env = dict(os.environ, LITELLM_LOG="ERROR", LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_MASTER_KEY=KEY)
    if folder:
        env["PYTHONPATH"] = folder
    start = "import sys; from litellm.proxy.proxy_cli import run_server; sys.exit(run_server())"
    probe = subprocess.run([sys.executable, "-c", "import litellm.proxy.proxy_cli"], env=env, capture_output=True)
    return ([sys.executable, "-c", start], env) if probe.returncode == 0 else None


# Backends of the proxy: a path of the rehearsal endpoint, and how LiteLLM is told to speak to it. With `openai/` it would
# ask for /responses whenever it is asked so itself.
BACKENDS = {
    "chat_completions": ("/chat/completions", "lm_studio/{model}", "{base}"),
    "anthropic_messages": ("/messages", "anthropic/{model}", "{host}"),
    "codex_responses": ("/responses", "openai/responses/{model}", "{base}"),
}


def backends(base, model):
    """The models of the proxy, one for each wire format that the rehearsal endpoint speaks."""
    models = []
    for wire, (path, name, api_base) in BACKENDS.items():
        answer = get(base + path, {})
        if answer is None or answer[0] == 404:
            skip(f"LiteLLM in front of {wire}", f"the rehearsal endpoint has no {path}")
            continue
        api_base = api_base.format(base=base, host=base.removesuffix("/v1"))
        parameters = {"model": name.format(model=model), "api_base": api_base, "api_key": "k"}
        models.append({"model_name": f"to-{wire}", "litellm_params": parameters})
    return models


def ask_through(proxy, wire, model, folder):
    """Runs a task through the proxy; what went wrong, or None."""
    home, work = folder / "home", folder / "work"
    work.mkdir(parents=True)
    (work / "a.txt").write_text("hello\n")
    config = folder / "hermod.toml"
    provider = f'[providers.litellm]\nbase_url = "{proxy}/v1"\nwire = "{wire}"\ncredential = "env:LITELLM_KEY"\n'
    config.write_text(provider)
    env = {
        "PATH": os.environ["PATH"],
        "HERMOD_HOME": str(home),
        "HERMOD_CONFIG": str(config),
        "LITELLM_KEY": KEY,
    }
    command = [HERMOD, "run", "--model", f"litellm/{model}", "--json", "take stock"]
    try:
        run = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return "no end within 120 s"
    if run.returncode != 0:
        return f"exit {run.returncode}: {run.stderr.strip()[-600:]}"
    result = json.loads(run.stdout)
    if not (result["answer"] or "").startswith("[rehearsal] "):
        return f"the answer is {result['answer']!r}"
    if not (work / "STOCK.md").is_file():
        return "the tools were not called as the script says"
    return None


def run_litellm():
    command = litellm_command()
    if command is None:
        skip("LiteLLM", "it is not installed; pip install 'litellm[proxy]', or set LITELLM to its folder")
        return
    (command, env), wires = command, known_formats()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        folder = pathlib.Path(folder)
        base = stack.enter_context(rehearsal())
        model = json.loads(get(base + "/models")[1])["data"][0]["id"]
        models = backends(base, model)
        config, port, log = folder / "litellm.yaml", free_port(), open(folder / "litellm.log", "w+")
        # What only one vendor has (`prompt_cache_key`) is refused at another unless it may be dropped.
        config.write_text(json.dumps({"model_list": models, "litellm_settings": {"drop_params": True}}))
        command += ["--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
        proxy = stack.enter_context(running(command, env=env, cwd=folder, stdout=log, stderr=log))
        url = f"http://127.0.0.1:{port}"
        if not alive(proxy, url):
            log.seek(0)
            skip("LiteLLM", f"its proxy does not start: {log.read()[-800:]}")
            return
        for entry in models:
            for wire in wires:
                name = entry["model_name"]
                what = f"hermod ({wire}) -> LiteLLM -> rehearsal ({name.removeprefix('to-')})"
                problem = ask_through(url, wire, name, folder / f"{wire}-{name}")
                check(what, problem)
                print(f"        {what}: {'failed' if problem else 'ok'}")


def alive(proxy, url):
    """Waits until the proxy answers; it takes long to begin."""
    until = time.monotonic() + 180
    while time.monotonic() < until and proxy.poll() is None:
        answer = get(url + "/health/liveliness")
        if answer and answer[0] == 200:
            return True
        time.sleep(0.5)
    return False


HERMOD = program()
PARTS = {"sdk": run_sdk, "rehearsal": run_rehearsal, "litellm": run_litellm}

if __name__ == "__main__":
    wanted = sys.argv[1:] or list(PARTS)
    if unknown := [name for name in wanted if name not in PARTS]:
        sys.exit(f"{unknown[0]}: no such part; there are: {', '.join(PARTS)}")
    for name in wanted:
        PARTS[name]()
    print(f"{passed} checks passed, {len(failed)} failed, {len(skipped)} parts skipped")
    sys.exit(1 if failed else 0)
