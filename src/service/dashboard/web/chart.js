// Charts as drawings, each with a table of the same values for those who do not see it.

import { h, s } from "./dom.js";
import { shortDay } from "./format.js";

const HEIGHT = 120;

/** A round number that is not below this one. */
function ceiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= value * (1 - 1e-9));
}

/** Bars by day, the oldest first. `series` are `{ name, tone, value(day) }`, stacked from the bottom. */
export function dayBars({ title, days, series, format, width = 600 }) {
  const isNarrow = window.innerWidth < 760;
  const whole = isNarrow ? 330 : width;
  const total = (day) => series.reduce((sum, one) => sum + one.value(day), 0);
  const top = ceiling(Math.max(...days.map(total), 0));
  const step = whole / days.length;
  const thick = Math.min(34, step * 0.7);
  const bars = days.map((day, n) => {
    let y = HEIGHT;
    const x = n * step + (step - thick) / 2;
    const parts = series.map(({ tone, value }) => {
      const size = (value(day) / top) * HEIGHT;
      y -= size;
      return size > 0 && s("rect", { class: ["bar", tone], x: x.toFixed(1), y: y.toFixed(2), width: thick.toFixed(1), height: size.toFixed(2), rx: 1.5 });
    });
    const words = series.length > 1 ? series.map(({ name, value }) => `${name} ${format(value(day))}`).join(", ") : format(total(day));
    return s("g", {}, s("title", {}, `${shortDay(day.day)}: ${words}`), s("rect", { class: "hit", x: n * step, y: 0, width: step, height: HEIGHT }), parts);
  });
  const every = Math.ceil(days.length / (isNarrow ? 4 : 7));
  const labels = days.map((day, n) => (days.length - 1 - n) % every === 0
    && s("text", { class: "tick", x: n * step + step / 2, y: HEIGHT + 16, "text-anchor": "middle" }, shortDay(day.day)));
  const drawing = s("svg", { class: "chart", viewBox: `-48 -8 ${whole + 62} ${HEIGHT + 30}`, "aria-hidden": "true" },
    [0, 0.5, 1].map((part) => [
      s("line", { class: "grid", x1: 0, x2: whole, y1: HEIGHT * (1 - part), y2: HEIGHT * (1 - part) }),
      s("text", { class: "tick", x: -6, y: HEIGHT * (1 - part) + 4, "text-anchor": "end" }, format(top * part).replace(/\.00$/, "")),
    ]), bars, labels);
  return h("figure", { class: "chart-frame" }, drawing,
    series.length > 1 && h("p", { class: "legend" }, series.map(({ name, tone }) => h("span", { class: "legend-item" }, h("span", { class: ["swatch", tone], "aria-hidden": "true" }), name))),
    h("details", { class: "more", "data-key": `table ${title}` }, h("summary", {}, `${title} as a table`),
      h("table", {}, h("caption", { class: "visually-hidden" }, title),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Day (UTC)"), series.map(({ name }) => h("th", { scope: "col", class: "number" }, name)))),
        h("tbody", {}, [...days].reverse().map((day) => h("tr", {}, h("th", { scope: "row" }, day.day), series.map(({ value }) => h("td", { class: "number" }, format(value(day))))))))));
}
