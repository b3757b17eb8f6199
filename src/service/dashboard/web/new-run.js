// The task of a new run: its text, its agent if there are several, and its folder.

import { get } from "./api.js";
import { composer } from "./compose.js";
import { scopeReason, section } from "./parts.js";

/** What can be chosen: the agents, and folders in which runs have worked. A view loads it once. */
export class RunChoices {
  constructor(view) {
    this.view = view;
    this.agents = [];
    this.folders = [];
  }

  async load() {
    if (this.agents.length) return;
    const [{ data }, { items }] = await Promise.all([get("/v1/models", {}, this.view.signal), get("/v1/runs", { max: 50, subagents: "false" }, this.view.signal)]);
    this.agents = data.map(({ id }) => id);
    this.folders = [...new Set(items.map((run) => run.workspace).filter(Boolean))];
  }

  form(rows = 2) {
    const { view, agents, folders } = this;
    const others = agents.filter((agent) => agent !== "default");
    const agent = { name: "agent", label: "Agent", options: [["", "default"], ...others.map((name) => [name, name])], remedy: "Choose another agent" };
    const folder = {
      name: "workspace", label: "Folder (optional)", placeholder: "as configured", suggestions: folders,
      remedy: "Name a folder of the service's machine that exists, from / on",
    };
    return composer(view, {
      name: "new run", label: "Task", placeholder: "What is to be done", verb: "Start run", rows,
      may: view.context.may("submit"), why: scopeReason("submit"),
      choices: [others.length > 0 && agent, folder].filter(Boolean),
      request: (input, values) => ({
        path: "/v1/runs",
        body: { input, ...(others.includes(values.agent) ? { agent: values.agent } : {}), ...(values.workspace?.trim() ? { workspace: values.workspace.trim() } : {}) },
      }),
      done: ({ run }) => { if (!view.signal.aborted) view.go(`#/runs/${run}`); return "The run has begun."; },
    });
  }
}

export function newRun(view) {
  const choices = new RunChoices(view);
  return {
    title: "New run",
    load: () => choices.load(),
    onEvent: () => false,
    // The first thing to do here is to write.
    focus: () => document.querySelector("main textarea")?.focus(),
    draw: () => section("What is to be done", { note: "It begins a conversation of its own. To go on with one, open its session." }, choices.form(6)),
  };
}
