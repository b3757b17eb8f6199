// A browser at the dashboard, for the scripts that drive it. It needs Chromium, and playwright-core of npm, found by NODE_PATH or in the
// folder in which the script is started.

import { createRequire } from "node:module";
import path from "node:path";

export const require = createRequire(path.join(process.cwd(), "none.js"));
const { chromium } = require("playwright-core");

const QUIET = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

export const launch = (executablePath) => chromium.launch({ executablePath, args: QUIET });

/** Signs in with the keyboard alone. */
export async function signIn(page, url, token) {
  await page.goto(`${url}/`);
  await page.waitForSelector("#token");
  await page.keyboard.type(token);
  await page.keyboard.press("Enter");
  await page.waitForSelector("main h1:has-text('Overview')");
}

/** Waits until a view has its content. */
export async function settle(page) {
  await page.waitForFunction(() => document.querySelector("main h1") && !/Loading…/.test(document.querySelector("main").textContent), null, { timeout: 30_000 });
  await page.waitForTimeout(150);
}

export async function visit(page, hash) {
  await page.evaluate((to) => { location.hash = to; }, `#/${hash}`);
  await settle(page);
}
