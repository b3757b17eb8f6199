// The frame of the pages: sign-in, navigation, the live connection, shortcuts, and which view is shown.

import { announce, h, update } from "./dom.js";
import { KEY_NAME, forgetKey, get, hasKey, signIn, signOut, whenSignedOut } from "./api.js";
import { Stream } from "./stream.js";
import { helpDialog, shortcuts } from "./shortcuts.js";
import { overview } from "./overview.js";
import { runs } from "./runs.js";
import { run } from "./run.js";
import { approvals } from "./approvals.js";
import { tree } from "./tree.js";
import { schedules, schedule } from "./schedules.js";
import { providers } from "./providers.js";
import { sessions } from "./sessions.js";
import { session } from "./session.js";
import { usage } from "./usage.js";
import { newRun } from "./new-run.js";
import { forgetDrafts } from "./compose.js";

/** The views of the navigation: path, title, key of its shortcut. */
const PAGES = [
  ["", "Overview", "o"],
  ["runs", "Runs", "r"],
  ["approvals", "Approvals", "a"],
  ["tree", "Tree", "t"],
  ["schedules", "Schedules", "s"],
  ["sessions", "Sessions", "c"],
  ["providers", "Providers", "p"],
  ["usage", "Usage", "u"],
];
const LISTS = { "": overview, new: newRun, runs, approvals, tree, schedules, sessions, providers, usage };
const DETAILS = { runs: run, schedules: schedule, sessions: session };
/** Least milliseconds between two updates of a view by events, and between two without any. */
const COALESCE = 600;
const IDLE_UPDATE = 30_000;

const root = document.getElementById("app");
const context = { token: null, approvals: 0, isLive: null, may: (scope) => may(scope) };
let view = null;
let feed = null;

function may(scope) {
  const scopes = context.token?.scopes ?? [];
  return scopes.includes(scope) || scopes.includes("admin");
}

/** The path of the address: its parts, and its query. */
function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map((part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
  return { page: parts[0] ?? "", name: parts.slice(1).join("/") || null, query: new URLSearchParams(query) };
}

// --- Sign-in -------------------------------------------------------------------------------------------------------

function showSignIn(message) {
  stopAll();
  document.title = "Sign in – Hermod";
  const error = h("p", { class: "error", role: "alert", id: "sign-in-error" }, message ?? "");
  const input = h("input", {
    id: "token", name: "token", type: "password", autocomplete: "current-password", required: true, spellcheck: "false",
    "aria-describedby": "token-hint sign-in-error",
  });
  const keep = h("input", { id: "keep", type: "checkbox" });
  const button = h("button", { class: "primary" }, "Sign in");
  const form = h("form", {
    class: "sign-in",
    onsubmit: async (event) => {
      event.preventDefault();
      button.disabled = true;
      error.textContent = "";
      try {
        await signIn(input.value.trim(), keep.checked);
        input.value = "";
        await start();
      } catch (problem) {
        error.textContent = problem.message;
        input.focus();
      }
      button.disabled = false;
    },
  },
  h("h1", {}, logo(), "Hermod"),
  h("label", { for: "token" }, "Access token"), input,
  h("p", { id: "token-hint", class: "hint" }, "Make one on the machine of the service: ",
    h("code", {}, "hermod tokens create --name me --scopes read,submit,steer,approve")),
  h("div", { class: "check" }, keep, h("label", { for: "keep" }, "Stay signed in for 30 days on this device")),
  error, button);
  root.replaceChildren(h("main", { id: "main", class: "sign-in-page", tabindex: "-1" }, form));
  input.focus();
}

function logo() {
  return h("img", { src: "/dashboard/icon.svg", alt: "", width: 28, height: 28 });
}

// --- Frame ---------------------------------------------------------------------------------------------------------

function navigation() {
  const { page } = route();
  const items = PAGES.map(([path, title, key]) => {
    const waits = path === "approvals" && context.approvals > 0;
    return h("li", { "data-key": path },
      h("a", { href: `#/${path}`, "aria-current": page === path ? "page" : null, title: `g ${key}` }, title,
        waits && h("span", { class: "badge" }, String(context.approvals), h("span", { class: "visually-hidden" }, " wait for you"))));
  });
  return h("nav", { "aria-label": "Views" }, h("ul", {}, items));
}

function header() {
  return h("header", { class: "bar" },
    h("a", { class: "brand", href: "#/" }, logo(), h("span", {}, "Hermod")),
    navigation(),
    h("div", { class: "tools" },
      connection(),
      h("button", { class: "quiet", onclick: switchTheme, title: "Light, dark, or as the system" }, themeWord()),
      h("button", { class: "quiet", onclick: () => helpDialog(PAGES), title: "?" }, "Keys"),
      h("button", { class: "quiet", onclick: leave, title: context.token ? `Signed in with the token ${context.token.name}` : null }, "Sign out")));
}

function connection() {
  const [tone, words] = context.isLive === false ? ["bad", "offline"] : context.isLive ? ["good", "live"] : ["calm", "connecting"];
  return h("span", { class: ["connection", tone] }, h("span", { class: "lamp", "aria-hidden": "true" }), words);
}

function banner() {
  return h("div", { class: "banner", role: "status", hidden: context.isLive !== false },
    context.isLive === false && "The connection to the service is lost. What you see may be old; it goes on by itself once the service is back.");
}

function frame() {
  return h("div", { class: "frame" }, header(), banner());
}

function drawFrame() {
  const present = root.querySelector(".frame");
  if (present) update(present, frame());
}

const THEMES = { light: "dark", dark: "system", system: "light" };
const theme = () => document.documentElement.dataset.theme ?? "system";
const themeWord = () => ({ light: "Light", dark: "Dark", system: "Auto" })[theme()];

function switchTheme() {
  const next = THEMES[theme()];
  if (next === "system") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem("hermod.theme");
  } else {
    document.documentElement.dataset.theme = next;
    localStorage.setItem("hermod.theme", next);
  }
  drawFrame();
  announce(`Colours: ${themeWord()}`);
}

async function leave() {
  forgetDrafts();
  try { await signOut(); } catch { /* The cookie is worth nothing without the key, which is gone. */ }
  showSignIn("You are signed out.");
}

function drawTitle() {
  const waits = context.approvals > 0 ? `(${context.approvals}) ` : "";
  document.title = `${waits}${view ? `${view.instance.title} – ` : ""}Hermod`;
}

// --- Views ---------------------------------------------------------------------------------------------------------

/** A view on the page: loads, draws, and follows the events that concern it. */
class ViewOnPage {
  constructor(definition, place) {
    Object.assign(this, { definition, place, isGone: false, hasLoaded: false, wantsEnd: true, lastUpdate: 0, took: 0 });
    this.abort = new AbortController();
    this.main = h("main", { id: "main", tabindex: "-1" });
    this.handle = {
      context, place, signal: this.abort.signal,
      refresh: () => this.load(),
      refreshSoon: () => this.schedule(),
      redraw: () => this.draw(),
      go: (hash) => { location.hash = hash; },
      toEnd: () => { this.wantsEnd = true; },
      act: (work, done) => this.act(work, done),
    };
    this.instance = definition(this.handle);
    this.draw();
  }

  draw() {
    if (this.isGone) return;
    let content;
    try {
      content = this.hasLoaded || !this.problem ? this.instance.draw() : null;
    } catch (error) {
      console.error(error);
      content = h("p", { class: "error", role: "alert" }, `This view could not be drawn: ${error.message}`);
    }
    drawTitle();
    const page = document.documentElement;
    // A conversation is read from its end, as long as its reader is there.
    const staysAtEnd = this.hasLoaded && this.instance.followsEnd?.() && (this.wantsEnd || window.scrollY + window.innerHeight >= page.scrollHeight - 4);
    update(this.main, h("main", { id: "main", tabindex: "-1" },
      h("div", { class: "heading" }, h("h1", { tabindex: "-1" }, this.instance.heading?.() ?? this.instance.title), this.instance.tools?.()),
      this.problem && h("p", { class: "error", role: "alert" }, this.problem),
      content));
    if (!staysAtEnd) return;
    this.wantsEnd = false;
    window.scrollTo(0, page.scrollHeight);
  }

  async load() {
    if (this.isGone || this.isLoading) { this.isStale = true; return; }
    this.isLoading = true;
    this.isStale = false;
    const began = performance.now();
    try {
      await this.instance.load();
      this.hasLoaded = true;
      this.problem = null;
    } catch (error) {
      if (error.name === "AbortError" || this.isGone) return;
      this.problem = error.status === 0 ? null : error.message;
      if (error.status === 0) setConnected(false);
    } finally {
      this.isLoading = false;
      this.took = performance.now() - began;
      this.lastUpdate = performance.now();
    }
    this.draw();
    if (this.isStale) this.schedule();
  }

  /** Loads again soon, and not more often than the service can bear. */
  schedule() {
    if (this.timer || this.isGone) return;
    const pause = Math.max(COALESCE, 3 * this.took) - (performance.now() - this.lastUpdate);
    this.timer = setTimeout(() => { this.timer = null; this.load(); }, Math.max(50, pause));
  }

  onEvent(event) {
    if (this.instance.onEvent ? this.instance.onEvent(event) : true) this.schedule();
  }

  /** Carries out a change; its problem is shown. */
  async act(work, done) {
    if (this.isActing) return;
    this.isActing = true;
    try {
      await work();
      this.problem = null;
      if (done) announce(done);
    } catch (error) {
      this.problem = error.message;
    }
    const { problem } = this;
    await this.load();
    this.isActing = false;
    this.problem ??= problem;
    this.draw();
    // What was used may be gone.
    if (document.activeElement === document.body) this.main.querySelector("h1")?.focus({ preventScroll: true });
  }

  close() {
    this.isGone = true;
    this.abort.abort();
    clearTimeout(this.timer);
    this.instance.close?.();
  }
}

function unknown(handle) {
  return { title: "Not found", load: async () => {}, draw: () => h("p", {}, `There is no view “${handle.place.page}”. `, h("a", { href: "#/" }, "Go to the overview.")) };
}

function show(isFirst) {
  const place = route();
  const same = view && view.place.page === place.page && view.place.name === place.name;
  if (same && view.instance.onQuery) {
    view.place.query = place.query;
    view.handle.place = place;
    view.instance.onQuery(place.query);
    drawFrame();
    view.load();
    return;
  }
  view?.close();
  const definition = place.name !== null ? DETAILS[place.page] : LISTS[place.page];
  view = new ViewOnPage(definition ?? unknown, place);
  drawTitle();
  const present = root.querySelector("main");
  if (present) present.replaceWith(view.main); else root.append(view.main);
  drawFrame();
  root.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  window.scrollTo(0, 0);
  if (!isFirst) view.main.querySelector("h1")?.focus({ preventScroll: true });
  const opened = view;
  opened.load().then(() => { if (!opened.isGone) opened.instance.focus?.(); });
}

// --- Live ----------------------------------------------------------------------------------------------------------

function setConnected(isLive) {
  if (context.isLive === isLive) return;
  const before = context.isLive;
  context.isLive = isLive;
  drawFrame();
  if (isLive === false) announce("The connection is lost.");
  if (isLive && before === false) {
    announce("The connection is back.");
    view?.load();
    countApprovals();
  }
}

const APPROVAL_KINDS = new Set(["approval.requested", "approval.answered", "run.ended", "run.stopping"]);

function followFeed() {
  feed?.close();
  feed = new Stream("/v1/events", {
    onState: setConnected,
    onEnd: (status) => { if (status === 401) signedOut(); },
    onEvent: (event) => {
      if (APPROVAL_KINDS.has(event.kind)) countApprovals();
      view?.onEvent(event);
    },
  });
}

let approvalTimer = null;
function countApprovals() {
  approvalTimer ??= setTimeout(async () => {
    approvalTimer = null;
    try {
      const { length } = await get("/v1/approvals");
      if (length > context.approvals) announce(`${length === 1 ? "1 call waits" : `${length} calls wait`} for you.`);
      context.approvals = length;
      drawFrame();
      drawTitle();
    } catch {
      // The view tells of it.
    }
  }, 300);
}

// --- Start ---------------------------------------------------------------------------------------------------------

function stopAll() {
  feed?.close();
  feed = null;
  view?.close();
  view = null;
  context.token = null;
  context.isLive = null;
}

function signedOut() {
  if (!hasKey()) return;
  forgetKey();
  showSignIn("Your sign-in has ended, or its token was revoked. Sign in again.");
}

async function start() {
  if (!hasKey()) return showSignIn();
  for (;;) {
    try {
      context.token = await get("/v1/token");
      break;
    } catch (error) {
      if (error.status === 401) return;
      if (error.status === 403) { forgetKey(); return showSignIn(`${error.message}; the dashboard needs the scope read`); }
      root.replaceChildren(h("main", { id: "main" }, h("p", { class: "banner", role: "status" }, "The service cannot be reached; trying again…")));
      await new Promise((resolve) => { setTimeout(resolve, 2000); });
    }
  }
  root.replaceChildren(frame());
  followFeed();
  countApprovals();
  show(true);
}

whenSignedOut(signedOut);
window.addEventListener("hashchange", () => { if (context.token) show(false); });
// Signing out in one window holds for all.
window.addEventListener("storage", (event) => {
  if (event.key === KEY_NAME && event.newValue === null) showSignIn("You are signed out.");
});
document.addEventListener("keydown", (event) => { if (context.token) shortcuts(event, PAGES, switchTheme); });
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  const heading = document.querySelector("main h1");
  (heading ?? document.getElementById("main"))?.focus();
});
setInterval(() => { if (view && !document.hidden) { view.draw(); if (performance.now() - view.lastUpdate > IDLE_UPDATE) view.load(); } }, 10_000);
start();
