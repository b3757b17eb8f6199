// The inputs of the dashboard: new runs, messages, answers. A text is accepted once, whatever happens to its request; it stays until
// then; and texts that try to run as code do not. `drill` is `{ url, api, found, checkRan, byKeyboard, payloads }`.

import { visit } from "./browser.mjs";

const send = (page) => page.locator(".compose [data-key=send]");
const field = (page) => page.locator(".compose textarea");
const error = (page) => page.locator(".compose .error");

/** Waits until the run page of a new run is shown, and returns its id. */
async function runShown(page) {
  await page.waitForFunction(() => /^#\/runs\/[0-9A-Z]{26}/.test(location.hash), null, { timeout: 30_000 });
  return page.evaluate(() => location.hash.split("/")[2].split("?")[0]);
}

async function runsWith(drill, text) {
  return (await drill.api("runs?max=200&subagents=false")).items.filter((run) => run.input === text);
}

/** A refusal is shown by its field, and a lost answer loses and repeats nothing. */
async function beginOnce(page, drill) {
  const text = "begun once";
  await visit(page, "new");
  await send(page).click();
  await drill.byKeyboard("an empty task is refused by its field", (await error(page).textContent()).includes("no text yet"));
  await field(page).fill(text);
  const folder = page.locator(".compose input");
  await folder.fill("/nowhere/<img src=x onerror=window.__xss=1>");
  await field(page).focus();
  await page.keyboard.press("Control+Enter");
  await page.waitForFunction(() => document.querySelector(".compose-choice .error")?.textContent.includes("/nowhere"));
  await drill.byKeyboard("the text stays after a refusal, and the field has the focus", page.evaluate((kept) => document.querySelector(".compose textarea").value === kept && document.activeElement.tagName === "INPUT", text));
  await folder.fill("");
  await page.route("**/v1/runs", async (route) => {
    if (route.request().method() !== "POST") return route.continue();
    await route.fetch();
    return route.abort();
  });
  await send(page).click();
  await page.waitForFunction(() => document.querySelector(".compose .error")?.textContent.includes("cannot be reached"));
  await page.unroute("**/v1/runs");
  await page.reload();
  await field(page).waitFor();
  await drill.byKeyboard("the text stays after a reload", (await field(page).inputValue()) === text);
  await send(page).dblclick();
  const run = await runShown(page);
  const found = await runsWith(drill, text);
  if (found.length !== 1 || found[0].id !== run) drill.found("errors", `a lost answer and a double click made ${found.length} runs`);
}

/** The keyboard alone begins a run, and goes on with its conversation. */
async function converse(page, drill) {
  await visit(page, "runs");
  await page.keyboard.press("n");
  await page.waitForFunction(() => location.hash === "#/new");
  await field(page).waitFor();
  await page.evaluate(() => document.querySelector("main h1").focus());
  await page.keyboard.press("Tab");
  await page.keyboard.type("begun by keys");
  await page.keyboard.press("Control+Enter");
  const run = await runShown(page);
  await drill.byKeyboard("n, Tab and Ctrl-Enter begin a run", (await drill.api(`runs/${run}`)).input === "begun by keys");
  await page.waitForFunction(() => document.querySelector(".dock")?.textContent.includes("Go on with this conversation"));
  await field(page).fill("and on");
  await field(page).press("Control+Enter");
  await page.waitForFunction(() => location.hash.startsWith("#/sessions/"));
  await page.waitForFunction(() => document.querySelector(".transcript:last-of-type") && document.querySelector("main").textContent.includes("You said: and on"), null, { timeout: 30_000 });
  await drill.byKeyboard("the conversation shows the next answer", (await field(page).inputValue()) === "");
}

/** Texts that try to run as code, through each input: as tasks, as next tasks, as messages to a run under way. */
async function sendPayloads(page, drill) {
  for (const [n, payload] of drill.payloads.entries()) {
    await visit(page, "new");
    await field(page).fill(payload);
    await field(page).press("Control+Enter");
    await runShown(page);
    await page.waitForFunction(() => document.querySelector(".dock"));
    await drill.checkRan(page, `task ${n} by the input`);
    drill.counts.inputs += 1;
  }
  const [run] = (await drill.api("runs?max=1&subagents=false")).items;
  await visit(page, `sessions/${run.session}`);
  for (const payload of drill.payloads) {
    await field(page).fill(payload);
    await field(page).press("Control+Enter");
    await page.waitForFunction(() => document.querySelector(".compose textarea").value === "", null, { timeout: 30_000 });
    drill.counts.inputs += 1;
  }
  await page.waitForTimeout(1000);
  await drill.checkRan(page, "messages to a session");
  await visit(page, "new");
  await field(page).fill("wait for messages");
  await field(page).press("Control+Enter");
  const steered = await runShown(page);
  await page.waitForFunction(() => document.querySelector("main").textContent.includes("Waits forthe tool shell"), null, { timeout: 240_000 });
  await visit(page, `runs/${steered}?tab=transcript`);
  for (const payload of drill.payloads) {
    await field(page).fill(payload);
    await field(page).press("Control+Enter");
    await page.waitForFunction(() => document.querySelector(".compose textarea").value === "" && document.querySelector(".dock").textContent.includes("is sent"), null, { timeout: 30_000 });
    drill.counts.inputs += 1;
  }
  await page.waitForFunction((count) => [...document.querySelectorAll(".who")].filter((who) => who.textContent === "Message").length === count, drill.payloads.length, { timeout: 30_000 });
  await drill.checkRan(page, "messages to a run");
}

/** Clicks at the place of the first answer, again and again: none answers another question. */
async function answerOnce(page, drill) {
  const posts = [];
  page.on("request", (request) => { if (request.method() === "POST" && request.url().includes("/v1/approvals/")) posts.push(request.url()); });
  await visit(page, "approvals");
  const before = await page.locator(".cards > li").count();
  const box = await page.locator("button:has-text('Allow once')").first().boundingBox();
  const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
  for (let n = 0; n < 20; n += 1) {
    await page.mouse.click(x, y);
    await page.waitForTimeout(200);
  }
  if (posts.length !== 1) drill.found("errors", `clicks at one place answered ${posts.length} questions`);
  if ((await page.locator(".cards > li").count()) !== before) drill.found("errors", "an answered card left its place");
  await drill.byKeyboard("the card shows its answer", (await page.locator(".verdict-answer").first().textContent()).includes("Allowed once"));
  const payload = drill.payloads[0];
  await page.locator(".verdict-ask textarea").first().fill(payload);
  await page.locator(".verdict-ask textarea").first().press("Control+Enter");
  await page.waitForFunction(() => [...document.querySelectorAll(".verdict-answer")].some((one) => one.textContent.includes("Answered:")), null, { timeout: 30_000 });
  await drill.checkRan(page, "an answer");
}

/** All inputs. */
export async function useInputs(page, drill) {
  await beginOnce(page, drill);
  await converse(page, drill);
  await sendPayloads(page, drill);
  await answerOnce(page, drill);
}

/** A text that is sent while the service is away stays, and counts once when it is back: the first half, then the second. */
export async function sendAway(page) {
  await page.evaluate(() => { location.hash = "#/new"; });
  await field(page).waitFor();
  await field(page).fill("sent while the service is away");
  await send(page).click();
  await page.waitForFunction(() => document.querySelector(".compose .error")?.textContent.includes("cannot be reached"));
}

export async function sendAgain(page, drill) {
  if ((await field(page).inputValue()) !== "sent while the service is away") drill.found("errors", "a text was lost while the service was away");
  await send(page).dblclick();
  await runShown(page);
  const { length } = await runsWith(drill, "sent while the service is away");
  if (length !== 1) drill.found("errors", `a text that was sent again made ${length} runs`);
}
