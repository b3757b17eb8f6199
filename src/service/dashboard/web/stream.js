// Server-sent events by fetch, because an EventSource cannot present the page's half of the token. A stream reconnects by
// itself, behind the last event that it has seen. A hidden page holds no connection and goes on where it was.

import { credentials } from "./api.js";

/** Milliseconds without a byte after which a connection counts as lost; the service sends a comment every 15 s. */
const SILENCE = 40_000;
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 10_000;
/** Milliseconds for which a hidden page keeps its connection. */
const HIDDEN = 30_000;

/** Takes the lines of a stream of events and passes each event to `each`. */
class EventParser {
  constructor(each) {
    this.each = each;
    this.rest = "";
    this.clear();
  }

  clear() {
    this.event = "message";
    this.id = null;
    this.data = [];
  }

  push(text) {
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop();
    for (const line of lines) this.take(line.endsWith("\r") ? line.slice(0, -1) : line);
  }

  take(line) {
    if (line === "") {
      if (this.data.length) this.each({ event: this.event, id: this.id, data: this.data.join("\n") });
      this.clear();
      return;
    }
    const at = line.indexOf(":");
    const [name, value] = at < 0 ? [line, ""] : [line.slice(0, at), line.slice(at + 1).replace(/^ /, "")];
    if (name === "event") this.event = value;
    else if (name === "id") this.id = value;
    else if (name === "data") this.data.push(value);
  }
}

export class Stream {
  /** `onEvent` gets each event with its JSON, `onState` true or false with each change of the connection. */
  constructor(path, { last = null, onEvent, onState = () => {}, onEnd = () => {} }) {
    Object.assign(this, { path, last, onEvent, onState, onEnd });
    this.pause = FIRST_PAUSE;
    this.isClosed = false;
    this.onVisibility = () => this.followVisibility();
    document.addEventListener("visibilitychange", this.onVisibility);
    this.run();
  }

  close() {
    this.isClosed = true;
    document.removeEventListener("visibilitychange", this.onVisibility);
    clearTimeout(this.hiding);
    this.abort?.abort();
    this.wake?.();
  }

  followVisibility() {
    clearTimeout(this.hiding);
    if (document.hidden) {
      this.hiding = setTimeout(() => { this.isResting = true; this.abort?.abort(); }, HIDDEN);
    } else if (this.isResting) {
      this.isResting = false;
      this.wake?.();
    }
  }

  async run() {
    while (!this.isClosed) {
      if (!this.isResting) {
        const isOver = await this.connect();
        if (isOver) return;
      }
      if (this.isClosed) return;
      if (!this.isResting) this.onState(false);
      await new Promise((resolve) => {
        this.wake = resolve;
        if (!this.isResting) setTimeout(resolve, this.pause * (0.75 + Math.random() / 2));
      });
      this.pause = Math.min(this.pause * 2, LONGEST_PAUSE);
    }
  }

  /** Reads until the connection ends; true if there is no more to read. */
  async connect() {
    this.abort = new AbortController();
    const headers = { Accept: "text/event-stream", ...credentials() };
    if (this.last !== null) headers["Last-Event-ID"] = this.last;
    try {
      const response = await fetch(this.path, { headers, signal: this.abort.signal, cache: "no-store" });
      if (response.status === 204 || response.status === 401 || response.status === 403 || response.status === 404) {
        this.onEnd(response.status);
        return true;
      }
      // The store is another one than before, such as after a restore: what was seen last means nothing to it.
      if (response.status === 400) this.last = null;
      if (!response.ok) return false;
      this.pause = FIRST_PAUSE;
      this.onState(true);
      await this.read(response.body.getReader());
    } catch {
      // Lost: the loop connects again.
    }
    return false;
  }

  async read(reader) {
    const decoder = new TextDecoder();
    const parser = new EventParser(({ event, id, data }) => {
      if (id !== null) this.last = id;
      if (event === "error") return;
      try {
        this.onEvent(JSON.parse(data), event);
      } catch (error) {
        console.error("an event could not be shown", error);
      }
    });
    let silence;
    const listen = () => {
      clearTimeout(silence);
      silence = setTimeout(() => this.abort.abort(), SILENCE);
    };
    try {
      for (listen(); ; listen()) {
        const { done, value } = await reader.read();
        if (done) return;
        parser.push(decoder.decode(value, { stream: true }));
      }
    } finally {
      clearTimeout(silence);
    }
  }
}
