#!/usr/bin/env python3
"""An editor in Python: the official SDK of ACP (PyPI `agent-client-protocol`), unmodified, drives `hermod acp`.

It needs that package: `pip install agent-client-protocol` in an environment of its own.
"""

import asyncio
import sys

from common import WAITING, Drill, Service

# The package has the name of this file, which must not be found first.
sys.path.pop(0)
try:
    import acp
    from acp import schema
except ImportError:
    sys.exit("this drill needs the package `agent-client-protocol`: install it with pip, and start the drill with that Python")

TEXT = "This answer comes in pieces, one after the other."


def script():
    def shell(command):
        return {"call": [{"tool": "shell", "arguments": {"command": command}}]}

    waiting = WAITING.format("slow")
    todo = [{"id": "1", "content": "Write a file", "status": "in_progress"}, {"id": "2", "content": "Check it", "status": "pending"}]
    files = [
        {"call": [{"tool": "todo", "arguments": {"todos": todo}}]},
        {"call": [{"tool": "write_file", "arguments": {"path": "a.txt", "content": "one\n"}}]},
        {"call": [{"tool": "edit_file", "arguments": {"path": "a.txt", "edits": [{"old": "one", "new": "two"}]}}]},
        {"say": "The file is there."},
    ]
    return [
        {"when": "stream", "steps": [{"think": "A thought.", "say": TEXT, "chunk": 4, "chunk_delay": "5ms"}]},
        {"when": "files", "steps": files},
        {"when": "touch", "steps": [shell("touch touched"), {"say": "Result: {{result:1.1}}"}]},
        {"when": "wait", "steps": [shell(waiting), {"say": "It ended."}]},
        {"when": "ask", "steps": [{"call": [{"tool": "clarify", "arguments": {"question": "Which?", "choices": ["red", "blue"]}}]}, {"say": "{{result:1.1}}"}]},
    ]


class Editor(acp.Client):
    """A client that keeps what it is shown, and chooses what it is told to choose."""

    def __init__(self):
        self.updates, self.choice, self.asked = [], None, asyncio.Queue()

    async def session_update(self, session_id, update, **_):
        self.updates.append(update)

    async def request_permission(self, session_id, tool_call, options, **_):
        await self.asked.put(tool_call)
        if self.choice is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        assert self.choice in [option.option_id for option in options], options
        outcome = schema.AllowedOutcome(outcome="selected", option_id=self.choice)
        return schema.RequestPermissionResponse(outcome=outcome)

    def of(self, kind):
        return [update for update in self.updates if isinstance(update, kind)]

    def text(self, kind):
        return "".join(update.content.text for update in self.of(kind))


class Agent:
    """`hermod acp` with a client of the SDK."""

    def __init__(self, service):
        self.service = service

    async def __aenter__(self):
        self.process = await asyncio.create_subprocess_exec(
            self.service.binary, "acp", cwd=self.service.work, env=self.service.variables,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 24,
        )
        self.editor = Editor()
        self.connection = acp.connect_to_agent(self.editor, self.process.stdin, self.process.stdout)
        await self.connection.initialize(
            protocol_version=acp.PROTOCOL_VERSION,
            client_capabilities=schema.ClientCapabilities(),
            client_info=schema.Implementation(name="drill", version="1"),
        )
        return self

    async def __aexit__(self, *_):
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def prompt(self, session, text, choice=None):
        self.editor.updates.clear()
        self.editor.choice = choice
        answer = await self.connection.prompt(session_id=session, prompt=[acp.text_block(text)])
        return answer.stop_reason


async def until(what, holds):
    for _ in range(3000):
        if holds():
            return
        await asyncio.sleep(0.02)
    raise TimeoutError(what)


async def first_editor(service, drill):
    check, counts = drill.check, drill.counts
    work = str(service.work)
    async with Agent(service) as agent:
        editor = agent.editor
        session = (await agent.connection.new_session(cwd=work, mcp_servers=[])).session_id
        check(await agent.prompt(session, "stream") == "end_turn", "a streamed answer")
        check(editor.text(schema.AgentMessageChunk) == f"[rehearsal] {TEXT}", "the text of the answer")
        counts["chunks"] = len(editor.of(schema.AgentMessageChunk))
        check(counts["chunks"] > 3 and editor.text(schema.AgentThoughtChunk) == "A thought.", "chunks and a thought")
        check(await agent.prompt(session, "files") == "end_turn", "calls of tools")
        counts["tool_calls"] = len(editor.of(schema.ToolCallStart))
        counts["plans"] = len(editor.of(schema.AgentPlanUpdate))
        diffs = [content for call in editor.of(schema.ToolCallStart) for content in call.content or [] if content.type == "diff"]
        counts["diffs"] = len(diffs)
        check(diffs[-1].old_text == "one" and diffs[-1].new_text == "two", "the difference of an edit")
        check(await agent.prompt(session, "touch", "deny") == "end_turn", "a denied call")
        check(not (service.work / "touched").exists(), "a denied call is not made")
        check(await agent.prompt(session, "touch", "allow") == "end_turn", "an allowed call")
        check((service.work / "touched").exists(), "an allowed call is made")
        check(await agent.prompt(session, "ask", "choice:1") == "end_turn", "a question of the model")
        check(editor.text(schema.AgentMessageChunk) == "[rehearsal] blue", "the answer to a question")
        counts["questions"] = editor.asked.qsize()
        waiting = asyncio.create_task(agent.prompt(session, "wait"))
        await until("the command runs", (service.work / "slow.ran").exists)
        await agent.connection.cancel(session_id=session)
        check(await waiting == "cancelled", "a cancelled prompt")
        (service.work / "slow.ran").unlink()
        waiting = asyncio.create_task(agent.prompt(session, "wait"))
        await until("the command runs again", (service.work / "slow.ran").exists)
        waiting.cancel()
    return session


async def second_editor(service, session, drill):
    check, counts = drill.check, drill.counts
    work = str(service.work)
    async with Agent(service) as agent:
        editor = agent.editor
        for unknown in ["none", "last"]:
            try:
                await agent.connection.load_session(session_id=unknown, cwd=work, mcp_servers=[])
                check(False, f"session {unknown} is loaded")
            except acp.RequestError as error:
                check("there is no session" in str(error), str(error))
                counts["unknown_sessions"] = counts.get("unknown_sessions", 0) + 1
        await agent.connection.load_session(session_id=session, cwd=work, mcp_servers=[])
        counts["loaded_updates"] = len(editor.updates)
        counts["loaded_prompts"] = len(editor.of(schema.UserMessageChunk))
        check(counts["loaded_prompts"] == 7, "the prompts of the first editor")
        (service.work / "slow.go").touch()
        await until("the run of the first editor ends", lambda: "It ended." in editor.text(schema.AgentMessageChunk))
        listed = await agent.connection.list_sessions(cwd=work)
        check([info.session_id for info in listed.sessions] == [session], f"the list: {listed}")
        # The owner is killed in the middle of a prompt.
        (service.work / "slow.go").unlink()
        (service.work / "slow.ran").unlink()
        waiting = asyncio.create_task(agent.prompt(session, "wait"))
        await until("the command runs", (service.work / "slow.ran").exists)
        await asyncio.to_thread(service.kill)
        (service.work / "slow.go").touch()
        await asyncio.to_thread(service.start)
        check(await waiting == "end_turn", "a prompt over a kill of the owner")
        check(editor.text(schema.AgentMessageChunk) == "[rehearsal] It ended.", "its answer")
        counts["kills"] = service.kills


def main():
    drill = Drill(__doc__)
    config = '[approvals]\napprover = "person"\n[policy]\nask = ["shell(touch *)"]\n'
    with Service(drill.options.binary, config, script()) as service:
        session = asyncio.run(first_editor(service, drill))
        asyncio.run(second_editor(service, session, drill))
    drill.end()


if __name__ == "__main__":
    main()
