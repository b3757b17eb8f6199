// Builds and updates the document. Every text becomes a text node: no text of a model, tool or task can become markup.

const SVG = "http://www.w3.org/2000/svg";
/** Properties that an update takes over from the new element. */
const HANDLERS = ["onclick", "onsubmit", "onchange", "oninput", "onkeydown"];
/** Attributes that belong to the person who reads: an update leaves them as they are. */
const KEPT = new Set(["open"]);

/** What a reader does not see, or what changes the order or the lines of a text: the same as in a terminal. */
const HIDDEN = /(?![\n\t])[\p{Cc}\p{DI}\u2028\u2029\ufff9-\ufffb\u{13430}-\u{13440}]/gu;
const EMOJI = /[\p{Extended_Pictographic}\p{Emoji_Modifier}\ufe0f]$/u;
const JOINED = /[\u0620-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u17d3\u1820-\u18aa\ua8e0-\ua8ff\uaa60-\uaa7f\ufb50-\ufdff\ufe70-\ufefc\u{11000}-\u{11fff}]$/u;

/** Whether ordinary text has the hidden character directly behind `before`: joiners and variation selectors. */
function belongsTo(char, before) {
  if (char === "\u200c") return JOINED.test(before);
  if (char === "\u200d") return JOINED.test(before) || EMOJI.test(before);
  if (char === "\ufe0e" || char === "\ufe0f") return /[\p{Extended_Pictographic}#*0-9]$/u.test(before);
  if (/[\u180b-\u180f]/.test(char)) return /[\u1820-\u18aa]$/.test(before);
  return /[\ufe00-\ufe02\u{e0100}-\u{e01ef}]/u.test(char) && /\p{Ideographic}$/u.test(before);
}

/** A text whose hidden characters are shown, as `␛` or `<U+200B>`. */
function visible(text) {
  return String(text).replace(HIDDEN, (char, at, whole) => {
    if (belongsTo(char, whole.slice(Math.max(0, at - 2), at))) return char;
    const code = char.codePointAt(0);
    if (char === "\r" && whole[at + 1] === "\n") return "";
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    if (code === 0x7f) return "␡";
    return `<U+${code.toString(16).toUpperCase().padStart(4, "0")}>`;
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
