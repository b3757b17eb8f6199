// Builds and updates the document. Every text becomes a text node: no text of a model, tool or task can become markup.

const SVG = "http://www.w3.org/2000/svg";
/** Properties that an update takes over from the new element. */
const HANDLERS = ["onclick", "onsubmit", "onchange", "oninput", "onkeydown"];
/** Attributes that belong to the person who reads: an update leaves them as they are. */
const KEPT = new Set(["open"]);

/** Control characters and marks of direction as visible symbols, so that no text can hide or reorder what is shown. */
export function visible(text) {
  return String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (char) => {
    const code = char.codePointAt(0);
    if (char === "\r") return "";
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    if (code === 0x7f) return "\u2421";
    return `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
  });
}

function append(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : document.createTextNode(visible(child)));
  }
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (HANDLERS.includes(name)) element[name] = value;
    else if (name === "class") element.setAttribute("class", Array.isArray(value) ? value.filter(Boolean).join(" ") : value);
    else element.setAttribute(name, value === true ? "" : visible(value));
  }
  append(element, children);
  return element;
}

/** An element. Attributes that are null, undefined or false are left out. */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An element of a drawing. */
export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Makes `old` like `fresh`, keeping elements, so that focus, selection, scrolling and open details stay. */
export function update(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || keyOf(old) !== keyOf(fresh)) {
    old.replaceWith(fresh);
    return fresh;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return old;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) return old;
  updateAttributes(old, fresh);
  updateChildren(old, fresh);
  if (document.activeElement !== old) updateChoice(old, fresh);
  return old;
}

/** What a filter has chosen follows the address, unless a person is at it. */
function updateChoice(old, fresh) {
  if (old.nodeName === "SELECT") old.value = fresh.value;
  else if (old.nodeName === "INPUT" && old.type === "search") old.value = fresh.getAttribute("value") ?? "";
  else if (old.nodeName === "INPUT" && old.type === "checkbox") old.checked = fresh.hasAttribute("checked");
}

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null;
}

function updateAttributes(old, fresh) {
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !KEPT.has(name)) old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value && !KEPT.has(name)) old.setAttribute(name, value);
  }
  for (const name of HANDLERS) if (old[name] !== fresh[name]) old[name] = fresh[name];
}

function updateChildren(old, fresh) {
  const keyed = new Map();
  for (const child of old.childNodes) if (keyOf(child) !== null) keyed.set(keyOf(child), child);
  let at = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const key = keyOf(child);
    const known = key === null ? null : keyed.get(key);
    if (known && known.nodeName === child.nodeName) {
      keyed.delete(key);
      if (known === at) at = at.nextSibling;
      else old.insertBefore(known, at);
      update(known, child);
    } else if (at && key === null && keyOf(at) === null && at.nodeName === child.nodeName) {
      const next = at.nextSibling;
      update(at, child);
      at = next;
    } else {
      old.insertBefore(child, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

/** Tells a screen reader something that has happened. */
export function announce(text) {
  const announcer = document.getElementById("announcer");
  announcer.textContent = "";
  setTimeout(() => { announcer.textContent = visible(text); }, 50);
}
