// Takes the pictures of the dashboard; dashboard_pictures.py makes what they show, and calls this:
//   node drills/dashboard_pictures.mjs URL TOKEN FOLDER RUN SESSION [CHROMIUM]

import fs from "node:fs";
import path from "node:path";

import { launch, settle, signIn, visit } from "./browser.mjs";

const [url, token, folder, run, session, executablePath = "/usr/bin/chromium"] = process.argv.slice(2);
/** Name, address, colours, most pixels of the height, what is the last thing in it, and whether it shows the end of the page. */
const PICTURES = [
  ["dashboard-light", "", "light", 980, "section[data-key^='The last']", false],
  ["dashboard-dark", `sessions/${session}`, "dark", 900, ".dock", true],
  ["dashboard-run", `runs/${run}`, "light", 1100, ".dock", false],
];

fs.mkdirSync(folder, { recursive: true });
const browser = await launch(executablePath);
for (const [name, hash, colorScheme, most, last, showsEnd] of PICTURES) {
  const width = 1140;
  const context = await browser.newContext({ viewport: { width, height: most }, colorScheme, locale: "en-GB", reducedMotion: "reduce" });
  const page = await context.newPage();
  await signIn(page, url, token);
  await visit(page, hash);
  await page.waitForSelector(last);
  const bottom = await page.evaluate((selector) => Math.ceil(document.querySelector(selector).getBoundingClientRect().bottom + window.scrollY), last);
  if (!showsEnd) await page.setViewportSize({ width, height: Math.min(most, bottom + 8) });
  await settle(page);
  await page.waitForTimeout(1500);
  await page.evaluate((toEnd) => {
    document.activeElement.blur();
    if (toEnd) window.scrollTo(0, document.body.scrollHeight);
  }, showsEnd);
  await page.screenshot({ path: path.join(folder, `${name}.png`) });
  await context.close();
}
await browser.close();
