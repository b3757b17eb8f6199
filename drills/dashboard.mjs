// The dashboard in a real browser: signs in by the keyboard, visits every view in light, dark and narrow, takes pictures, and
// counts what must be none: serious findings of axe, violations of the content security policy, texts that ran as code,
// errors of scripts, and views that are wider than the window.
//
// It needs Chromium, and playwright-core and axe-core of npm, found by NODE_PATH or in the folder in which it is started:
// `browser.mjs` drives the browser, `dashboard_inputs.mjs` uses the inputs.
//   node drills/dashboard.mjs URL TOKEN FOLDER [CHROMIUM]
// The service should have runs of all kinds; drills/dashboard.py makes them, kills the service under the page, and calls this.

import fs from "node:fs";
import path from "node:path";
import readline from "node:readline";

import { launch, require, settle, signIn, visit } from "./browser.mjs";
import { sendAgain, sendAway, useInputs } from "./dashboard_inputs.mjs";

const AXE = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const [url, token, folder, executablePath = "/usr/bin/chromium"] = process.argv.slice(2);
const VIEWS = ["", "new", "runs", "approvals", "tree", "schedules", "sessions", "providers", "usage"];
const TABS = ["timeline", "transcript", "records", "settings"];
const LOOKS = [["light", 1280, 900], ["dark", 1280, 900], ["light", 360, 780], ["dark", 320, 700]];
const counts = { views: 0, axe: 0, csp: 0, ran: 0, errors: 0, wide: 0, keyboard: 0, inputs: 0, restarts: 0 };
const findings = [];

const found = (kind, text) => { counts[kind] += 1; findings.push(`${kind}: ${text}`); };
const api = async (at) => (await fetch(`${url}/v1/${at}`, { headers: { Authorization: `Bearer ${token}` } })).json();

/** Reports of the page itself: what its policy has stopped, and what ran though it is only text. */
async function observe(page) {
  await page.exposeFunction("reportViolation", (text) => found("csp", text));
  await page.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => window.reportViolation(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
  });
  page.on("dialog", (dialog) => { found("ran", dialog.message()); dialog.dismiss(); });
  page.on("pageerror", (error) => found("errors", error.message));
  page.on("request", (request) => { if (!request.url().startsWith(url) && !/^(data|blob):/.test(request.url())) found("csp", `request to ${request.url()}`); });
}

async function checkRan(page, name) {
  if (await page.evaluate(() => Object.keys(window).some((key) => key.startsWith("__xss")))) found("ran", name);
}

async function checkAxe(page, name) {
  await page.evaluate(AXE);
  const result = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  for (const violation of result.violations) {
    if (["serious", "critical"].includes(violation.impact)) found("axe", `${name}: ${violation.id}: ${violation.nodes[0].html.slice(0, 160)} ${violation.nodes[0].failureSummary?.slice(0, 200)}`);
    else console.log(`axe, ${violation.impact}: ${name}: ${violation.id} ${violation.nodes[0].html.slice(0, 120)}`);
  }
}

/** What the inputs need of this drill. */
const drill = { url, api, found, checkRan, byKeyboard, counts, payloads: JSON.parse(process.env.DRILL_PAYLOADS ?? "[]") };

/** Checks a step that the keyboard alone must do. */
async function byKeyboard(name, isDone) {
  if (await isDone) counts.keyboard += 1; else found("errors", `keyboard: ${name}`);
}

async function useKeyboard(page) {
  const heading = () => page.evaluate(() => document.activeElement?.tagName === "H1" && document.activeElement.textContent);
  await page.keyboard.press("g");
  await page.keyboard.press("r");
  await settle(page);
  await byKeyboard("g r goes to the runs, and to their heading", (await heading()) === "Runs");
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => location.hash.startsWith("#/runs/"));
  await settle(page);
  await byKeyboard("j and Enter open a run", page.evaluate(() => location.hash.startsWith("#/runs/")));
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await byKeyboard("Enter opens a step", page.evaluate(() => document.querySelector(".step details[open]") !== null));
  await page.keyboard.press("?");
  await byKeyboard("? lists the keys", page.evaluate(() => document.querySelector("dialog[open]") !== null));
  await page.keyboard.press("Escape");
  await byKeyboard("Escape closes the list", page.evaluate(() => document.querySelector("dialog[open]") === null));
  await page.keyboard.press("g");
  await page.keyboard.press("c");
  await settle(page);
  await page.keyboard.press("/");
  await byKeyboard("/ goes to the search", page.evaluate(() => document.activeElement?.type === "search"));
  await page.keyboard.press("Escape");
  // Every control is reached by the tabulator, and shows that it is.
  await page.evaluate(() => { document.body.tabIndex = -1; document.body.focus(); });
  const seen = new Set();
  for (let n = 0; n < 25; n += 1) {
    await page.keyboard.press("Tab");
    seen.add(await page.evaluate(() => {
      const element = document.activeElement;
      const style = getComputedStyle(element);
      return `${element.tagName} ${element.textContent.slice(0, 20)} ${style.outlineStyle !== "none" || style.textDecorationLine === "underline"}`;
    }));
  }
  await byKeyboard("the tabulator moves", seen.size > 15);
  await byKeyboard("focus is visible", ![...seen].some((text) => text.endsWith("false")));
}

/** The fold of records into steps, whose cases are hard to make with a service. */
async function checkTimeline(page) {
  const wrong = await page.evaluate(async () => {
    const { commandOf, cost, scaleOf, spendOf, timelineOf } = await import("/dashboard/timeline.js");
    const wrong = [];
    const expect = (what, found, expected) => {
      if (JSON.stringify(found) !== JSON.stringify(expected)) wrong.push(`${what}: ${JSON.stringify(found)}, not ${JSON.stringify(expected)}`);
    };
    let seq = 0;
    const record = (second, kind, fields) => ({ seq: (seq += 1), at: new Date(Date.UTC(2026, 0, 1, 0, 0, second)).toISOString(), kind, ...fields });
    const price = { input: 1000, output: 2000, cache_read: 100 };
    const usage = { input_tokens: 1000, output_tokens: 500, cached_tokens: 400 };
    expect("cached tokens have their price", cost(usage, price), (600 * 1000 + 400 * 100 + 500 * 2000) / 1e9);
    expect("tokens of a cache that are counted apart", cost({ input_tokens: 10, output_tokens: 0, cached_tokens: 400 }, price), (10 * 1000 + 400 * 100) / 1e9);
    expect("an unknown price", cost(usage, undefined), null);
    const failure = (end, tool = "shell") => commandOf(tool, JSON.stringify({ signal: null, timed_out: false, stdout: "", stderr: "", ...end }))?.failure;
    expect("how commands end", [
      failure({ exit_code: 0 }), failure({ exit_code: 1 }), failure({ exit_code: 127 }), failure({ exit_code: 137 }), failure({ exit_code: null, signal: 15 }),
      failure({ exit_code: null, timed_out: true }), failure({ exit_code: null }), failure({ exit_code: 1 }, "read_file") ?? "none",
    ], [null, "exit 1", "exit 127 (command not found)", "exit 137 (SIGKILL)", "killed by SIGTERM", "timed out", "no exit code", "none"]);
    const records = [
      record(0, "run.accepted", { run: "r" }),
      record(0, "model.started", { call: "r.1.0", attempt: 1, model: "p/m", price }),
      record(1, "model.failed", { call: "r.1.0", attempt: 1, failure: { class: "overloaded", message: "busy" }, retry_at: Date.UTC(2026, 0, 1, 0, 0, 2) }),
      record(2, "model.started", { call: "r.1.0", attempt: 2, model: "p/m", price }),
      record(3, "model.answered", { call: "r.1.0", attempt: 2, usage, message: { calls: [{ name: "shell", arguments: "{\"command\":\"ls\"}" }] } }),
      record(3, "call.admitted", { call: "r.1.1", tool: "shell" }),
      record(3, "approval.requested", { call: "r.1.1", question: "May it?" }),
      record(1003, "approval.answered", { call: "r.1.1", verdict: "allow", by: "person" }),
      record(1003, "call.started", { call: "r.1.1", attempt: 1 }),
      record(1004, "session.revived", {}),
      record(1004, "call.started", { call: "r.1.1", attempt: 2 }),
      record(1005, "call.ended", { call: "r.1.1", attempt: 2, status: "failed", content: "no" }),
      record(1006, "run.ended", { outcome: "completed" }),
    ];
    const timeline = timelineOf(records);
    expect("steps", timeline.spans.map(({ kind, label, tone }) => [kind, label, tone]), [
      ["mark", "accepted", null], ["model", "model call 1", "bad"], ["wait", "pause before the next try", null], ["model", "model call 1, try 2", null],
      ["person", "waits for your approval", null], ["tool", "shell", "warn"], ["mark", "session opened again", null], ["tool", "shell", "bad"], ["end", "completed", null],
    ]);
    expect("a step that an end cuts off has an end", timeline.spans.every((span) => span.end !== null), true);
    expect("spend", spendOf(timeline).map(([, sum]) => sum), [cost(usage, price)]);
    const scale = scaleOf(timeline, 0);
    expect("the long wait is drawn short", scale.breaks.length, 1);
    expect("the scale begins at 0 and ends at 1", [scale.place(scale.start), scale.place(scale.end)], [0, 1]);
    const places = timeline.spans.map((span) => scale.place(span.start));
    expect("the scale keeps the order", places, [...places].sort((a, b) => a - b));
    expect("the work has its place", scale.place(Date.parse(records[4].at)) > 0.4, true);
    return wrong;
  });
  wrong.forEach((text) => found("errors", `timeline: ${text}`));
}

/** The service is killed and comes back while the page is open; the caller does it between two lines. */
async function surviveRestart(page) {
  await visit(page, "runs");
  const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  console.log("kill");
  await lines.next();
  await page.waitForSelector(".connection.bad", { timeout: 60_000 });
  await page.screenshot({ path: path.join(folder, "offline.png") });
  const before = (await page.locator("tbody tr").first().getAttribute("data-key")) ?? "";
  await sendAway(page);
  console.log("start");
  await lines.next();
  await page.waitForSelector(".connection.good", { timeout: 60_000 });
  await sendAgain(page, drill);
  await visit(page, "runs");
  // Runs that were accepted meanwhile are there.
  await page.waitForFunction((key) => document.querySelector("tbody tr")?.dataset.key !== key, before, { timeout: 60_000 });
  counts.restarts += 1;
}

fs.mkdirSync(folder, { recursive: true });
const browser = await launch(executablePath);
const runs = (await api("runs?max=200")).items;
const sessions = (await api("sessions?max=60")).items;
const schedules = (await api("schedules")).items;
const interesting = [...new Map(runs.map((run) => [`${run.outcome ?? run.state} ${run.input.slice(0, 6)}`, run])).values()].slice(0, 8);
const details = [
  ...interesting.flatMap((run) => TABS.map((tab) => `runs/${run.id}?tab=${tab}`)),
  ...sessions.slice(0, 3).map((session) => `sessions/${session.id}`), ...schedules.slice(0, 2).map((one) => `schedules/${encodeURIComponent(one.name)}`),
];

for (const [scheme, width, height] of LOOKS) {
  for (const bypassCSP of [false, true]) {
    const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, bypassCSP });
    const page = await context.newPage();
    // With axe in the page its own scripts would be counted.
    if (!bypassCSP) await observe(page);
    await signIn(page, url, token);
    for (const hash of [...VIEWS, ...details]) {
      const name = `${scheme}-${width}-${(hash || "overview").replace(/[^a-z0-9]+/gi, "-")}`;
      await visit(page, hash);
      // The field with a refusal is part of what is checked.
      if (hash === "new") await page.locator(".compose [data-key=send]").click();
      if (bypassCSP) { await checkAxe(page, name); continue; }
      counts.views += 1;
      await checkRan(page, name);
      const over = await page.evaluate(() => document.scrollingElement.scrollWidth - window.innerWidth);
      if (over > 0) found("wide", `${name} by ${over} px`);
      await page.screenshot({ path: path.join(folder, `${name}.png`) });
    }
    await context.close();
  }
}

// Every run on every tab: none of their texts may run.
const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
const page = await context.newPage();
await observe(page);
await signIn(page, url, token);
await useKeyboard(page);
await checkTimeline(page);
await useInputs(page, drill);
for (const run of runs.filter((one) => /xss/i.test(one.input)).slice(0, 60)) {
  for (const tab of TABS) {
    await visit(page, `runs/${run.id}?tab=${tab}`);
    await page.evaluate(() => document.querySelectorAll("main details").forEach((one) => { one.open = true; }));
    await checkRan(page, `run ${run.id} ${tab}`);
    counts.views += 1;
  }
}
for (const session of sessions) {
  await visit(page, `sessions/${session.id}`);
  await checkRan(page, `session ${session.id}`);
  counts.views += 1;
}
if (!process.stdin.isTTY && process.env.DRILL_RESTART) await surviveRestart(page);
await browser.close();

findings.slice(0, 60).forEach((text) => console.log(text));
console.log(JSON.stringify(counts));
const isOk = counts.axe + counts.csp + counts.ran + counts.errors + counts.wide === 0 && counts.keyboard > 0;
console.log(isOk ? "ok" : "NOT OK");
process.exit(isOk ? 0 : 1);
