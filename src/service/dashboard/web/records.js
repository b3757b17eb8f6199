// The records of a run: those that are there, those that come, and the text of an answer while it is written.

import { get, pathOf } from "./api.js";

const ENDS_LIVE = new Set(["model.answered", "model.failed", "model.started", "run.ended"]);

export class RunLog {
  constructor(id) {
    Object.assign(this, { id, records: [], next: null, live: "", isLoaded: false, early: [] });
  }

  /** The number of the last record. */
  get last() {
    return this.records.at(-1)?.seq ?? 0;
  }

  get isEnded() {
    return this.records.at(-1)?.kind === "run.ended";
  }

  /** Reads what is there behind what is known; `onPage` is told of each page but the last one. */
  async load(signal, onPage = () => {}) {
    for (;;) {
      const page = await get(pathOf("runs", this.id, "records"), { from: this.next }, signal);
      for (const record of page.items) this.add(record);
      if (page.next === null) break;
      this.next = page.next;
      onPage();
    }
    this.isLoaded = true;
    for (const record of this.early.splice(0)) this.add(record);
  }

  add(record) {
    if (record.seq <= this.last) return;
    this.records.push(record);
    this.next = record.seq + 1;
  }

  /** Takes an event of a stream; true if it changes what is shown. */
  take(event) {
    if (event.event === "record") {
      // What comes before the earlier ones are read follows them.
      if (this.isLoaded) this.add(event); else this.early.push(event);
      if (ENDS_LIVE.has(event.kind)) this.live = "";
    } else if (event.event === "text.delta") {
      this.live += event.delta;
    } else if (event.event === "retry") {
      this.live = "";
    } else {
      return false;
    }
    return true;
  }
}

/** Calls `work` soon, and once for many calls. */
export function coalesced(work, pause = 150) {
  let timer = null;
  return () => { timer ??= setTimeout(() => { timer = null; work(); }, pause); };
}
