// Requests to the service. The page has one half of the token, its key; the other half is in a cookie that no script reads.

const KEY = "hermod.key";

/** An error of the service, as its problem document tells it. */
class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

let onSignedOut = () => {};
export const whenSignedOut = (call) => { onSignedOut = call; };

export const hasKey = () => localStorage.getItem(KEY) !== null;

/** Headers with which a request presents the token. */
export function credentials() {
  const key = localStorage.getItem(KEY);
  return key ? { "X-Hermod-Key": key } : {};
}

async function problem(response) {
  let detail = `${response.status} ${response.statusText}`;
  try {
    detail = (await response.json()).detail ?? detail;
  } catch {
    // The answer is of a proxy, or broken off.
  }
  return new Problem(response.status, detail);
}

async function request(method, path, { body, signal, key } = {}) {
  const headers = { ...credentials() };
  if (key) headers["Idempotency-Key"] = key;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const init = { method, headers, signal, cache: "no-store", redirect: "error" };
  if (body !== undefined) init.body = JSON.stringify(body);
  let response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "the service cannot be reached");
  }
  if (response.status === 401 && path !== "/login") onSignedOut();
  if (!response.ok) throw await problem(response);
  return response;
}

/** The JSON at a path. `query` leaves out what is empty. */
export async function get(path, query = {}, signal) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") parameters.set(name, value);
  }
  const text = parameters.size ? `${path}?${parameters}` : path;
  return (await request("GET", text, { signal })).json();
}

/** Changes something; the answer is JSON, or null without a body. A repeat with the same `key` changes nothing more. */
export async function send(method, path, body, key) {
  const response = await request(method, path, { body, key });
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

/** A new idempotency key. */
export function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** A path with each part encoded. */
export const pathOf = (...parts) => `/v1/${parts.map(encodeURIComponent).join("/")}`;

/** Signs in: keeps the key, while the browser gets the cookie. */
export async function signIn(token, keep) {
  const { key } = await send("POST", "/login", { token, keep });
  localStorage.setItem(KEY, key);
}

/** Signs out: the cookie and the key are removed. */
export async function signOut() {
  try {
    await send("POST", "/logout");
  } finally {
    localStorage.removeItem(KEY);
  }
}

export const forgetKey = () => localStorage.removeItem(KEY);
export const KEY_NAME = KEY;

/** Saves the bytes at a path as a file. */
export async function download(path, name) {
  const response = await request("GET", path);
  const url = URL.createObjectURL(await response.blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
