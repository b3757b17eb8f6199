// Providers: whether their models may be called, and how they have answered.

import { h } from "./dom.js";
import { get } from "./api.js";
import { clock, count, duration, state } from "./format.js";
import { code, empty, facts, loading, section, table } from "./parts.js";

const KINDS = new Set(["model.answered", "model.failed", "model.waiting", "aside.answered", "aside.failed", "summary.answered", "summary.failed"]);

const breaker = ({ state: name, until }) => [state(name), until && h("span", { class: "soft" }, " until ", clock(until))];
const failureWords = (failure) => failure && `${failure.class}: ${failure.message}`;

export function providers(view) {
  let items = null;
  return {
    title: "Providers",
    async load() { items = await get("/v1/providers", {}, view.signal); },
    onEvent: (event) => KINDS.has(event.kind),
    draw() {
      if (!items) return loading();
      if (!items.length) return empty("No provider is in use yet.", "They appear with the first run; ", code("hermod providers list"), " shows the configured ones.");
      return items.map((provider) => section(provider.name, { tools: h("span", {}, breaker(provider.breaker)) },
        facts([
          ["Answered", count(provider.answered)],
          ["Failed", count(provider.failed)],
          ["Credentials", count(provider.credentials)],
          ["Requests a minute", provider.requests_per_minute === null ? "no limit set" : count(provider.requests_per_minute)],
          ["Tokens a minute", provider.tokens_per_minute === null ? "no limit set" : count(provider.tokens_per_minute)],
          ["Usage that is not believed", provider.usage_anomalies ? count(provider.usage_anomalies) : null],
          ["Last failure", failureWords(provider.last_failure), "wide"],
        ]),
        provider.models.length > 0 && table({
          caption: `Models of ${provider.name}`, rows: provider.models, key: (model) => `${model.model} ${model.credential}`,
          columns: [
            ["Model", "main", (model) => [model.model, provider.credentials > 1 && h("span", { class: "soft" }, ` with credential ${model.credential}`)]],
            ["Breaker", "", (model) => breaker(model.breaker)],
            ["Answered", "number", (model) => count(model.answered)],
            ["Failed", "number", (model) => h("span", { title: Object.entries(model.failures).map(([name, number]) => `${name}: ${number}`).join(", ") || null }, count(model.failed))],
            ["First word", "number", (model) => (model.first_delta_ms === null ? "–" : duration(model.first_delta_ms))],
            ["Answer", "number", (model) => (model.answer_ms === null ? "–" : duration(model.answer_ms))],
            ["Tokens/s", "number", (model) => (model.output_tokens_per_second === null ? "–" : count(model.output_tokens_per_second))],
            ["Last failure", "soft", (model) => failureWords(model.last_failure) ?? ""],
          ],
        })));
    },
  };
}
