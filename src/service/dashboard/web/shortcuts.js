// Keys: moving between views and among rows. They can be switched off, because some ways of typing send single letters.

import { announce, h } from "./dom.js";

const OFF = "hermod.shortcuts";
let isGoing = false;

const areOff = () => localStorage.getItem(OFF) === "off";

function takesText(target) {
  return target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
}

/** Focuses the next row or the one before. */
function move(step) {
  const rows = [...document.querySelectorAll("main [data-row]")].filter((row) => row.offsetParent !== null);
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const row = rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? 0 : at + step))];
  (row.matches("a, button, summary") ? row : row.querySelector("a, button, summary"))?.focus();
  row.scrollIntoView({ block: "nearest" });
}

/** Carries out the shortcut of a key, if it is one. */
export function shortcuts(event, pages, switchTheme) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (takesText(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  if (areOff()) return;
  if (isGoing) {
    isGoing = false;
    const page = pages.find(([, , key]) => key === event.key);
    if (page) { event.preventDefault(); location.hash = `#/${page[0]}`; }
    return;
  }
  const actions = {
    g: () => { isGoing = true; setTimeout(() => { isGoing = false; }, 1500); },
    j: () => move(1),
    k: () => move(-1),
    n: () => { location.hash = "#/new"; },
    d: switchTheme,
    "/": () => document.querySelector("main input[type=search]")?.focus(),
    "?": () => helpDialog(pages),
  };
  const action = actions[event.key];
  if (action) { event.preventDefault(); action(); }
}

/** Lists the keys. */
export function helpDialog(pages) {
  const opener = document.activeElement;
  const rows = [
    ...pages.map(([, title, key]) => [["g", key], title]),
    [["j"], "Next row"], [["k"], "Row before"], [["Enter"], "Open the row"],
    [["n"], "New run"], [["Ctrl + Enter"], "Send a text"], [["/"], "Search"], [["Esc"], "Leave the search, close this"], [["d"], "Light, dark or as the system"], [["?"], "This list"],
  ];
  const off = h("input", {
    type: "checkbox", id: "keys-on",
    onchange: () => {
      localStorage.setItem(OFF, off.checked ? "on" : "off");
      announce(off.checked ? "Shortcuts are on" : "Shortcuts are off");
    },
  });
  off.checked = !areOff();
  const dialog = h("dialog", { class: "help", "aria-labelledby": "help-title" },
    h("h2", { id: "help-title" }, "Keys"),
    h("dl", { class: "keys" }, rows.map(([keys, words]) => h("div", {},
      h("dt", {}, keys.flatMap((key, n) => [n > 0 && " then ", h("kbd", {}, key)])), h("dd", {}, words)))),
    h("div", { class: "check" }, off, h("label", { for: "keys-on" }, "Shortcuts of single letters")),
    h("form", { method: "dialog" }, h("button", { class: "primary" }, "Close")));
  dialog.addEventListener("close", () => { dialog.remove(); opener?.focus?.(); });
  document.body.append(dialog);
  dialog.showModal();
}
