// What the tests do with a page, whatever it is a page of: managers with invented nodes, or a lab.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { expect, type Page } from "@playwright/test";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const control = process.env.WEIR_CONTROL ?? "";

/** Has the Go test that started the browser do something, and returns its answer. */
export async function order(what: string, query: string[][] = []): Promise<string> {
  const answer = await fetch(`${control}/${what}?${new URLSearchParams(query as [string, string][])}`);
  const text = await answer.text();
  expect(answer.status, `${what}: ${text}`).toBe(200);
  return text;
}

export async function signIn(page: Page, token: string) {
  await page.goto("/ui/");
  await page.getByLabel("Your token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("heading", { level: 1, name: "Overview" })).toBeVisible();
}

export async function open(page: Page, hash: string, title: string) {
  await page.goto(`/ui/${hash}`);
  await expect(page.getByRole("heading", { level: 1, name: title })).toBeVisible();
}

/** All pages with their headings, those of single objects for a VIP, one with source NAT, a mux and a host. */
export function everyPage(of: { vip: string; address: string; egress: string; mux: string; host: string }): [hash: string, title: string][] {
  return [
    ["#/overview", "Overview"], ["#/topology", "Topology"], [`#/topology?vip=${of.vip}`, "Topology"], ["#/vips", "VIPs"], [`#/vips/${of.vip}`, of.vip],
    ["#/nodes", "Nodes"], [`#/nodes/${of.mux}`, of.mux], [`#/nodes/${of.host}`, of.host],
    [`#/explain?protocol=TCP&from=192.0.2.1&fromPort=4000&to=${of.address}&toPort=80`, "Explain"],
    ["#/observe", "Observe"], ["#/egress", "Egress"], [`#/egress/${of.egress}`, of.egress], ["#/floods", "Floods"], ["#/placement", "Placement"], ["#/networks", "Networks"], ["#/events", "Events"], ["#/access", "Access"],
  ];
}

/** What goes wrong in a page from now on: errors, and requests to elsewhere. */
export function problems(page: Page, baseURL = "-"): string[] {
  const found: string[] = [];
  page.on("console", (message) => message.type() === "error" && !message.text().includes("401") && found.push(message.text()));
  page.on("pageerror", (err) => found.push(String(err)));
  page.on("request", (request) => request.url().startsWith(baseURL) || request.url().startsWith("data:") || found.push(`asks for ${request.url()}`));
  return found;
}

/** Holds that what is shown has no fault of accessibility, in either theme. */
export async function noFault(page: Page, what: string) {
  for (const scheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.evaluate(axe); // the debugger's, which the policy does not hold
    const found = await page.evaluate(async () => {
      const { violations } = await (window as never as { axe: { run(): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }> } }).axe.run();
      return violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(" ")}`);
    });
    expect(found, `${what}, ${scheme}`).toEqual([]);
  }
}

/** The packets a second that a VIP's page shows. */
export async function shownPackets(page: Page): Promise<number> {
  const [, n, unit] = /^([0-9.]+)(k?) packets/.exec(await page.locator("#packets").innerText().catch(() => "")) ?? [];
  return Number(n) * (unit ? 1000 : 1);
}

/** How many samples the page's chart has. */
export async function samples(page: Page): Promise<number> {
  return Number(await page.locator(".chart").getAttribute("data-samples").catch(() => 0));
}

/** Choices by chance, and the same ones again with the seed that is told. */
export function chance() {
  const seed = Number(process.env.WEIR_SEED ?? Math.floor(Math.random() * 2 ** 31));
  console.log(`again with WEIR_SEED=${seed}`);
  let state = seed;
  const below = (n: number) => { // mulberry32
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) % n;
  };
  return { below, of: <T>(all: T[]) => all[below(all.length)] as T };
}

export type Flow = { protocol: string; from: string; fromPort: number; to: string; toPort: number };

/** A flow to one of some addresses, now and then to a port that nobody serves. */
export function anyFlow(any: ReturnType<typeof chance>, addresses: string[]): Flow {
  const to = any.of(addresses);
  const from = to.includes(":") ? `2001:db8:${1 + any.below(9)}::${1 + any.below(9)}` : `192.0.2.${any.below(255)}`;
  return { protocol: any.of(["TCP", "UDP"]), from, fromPort: 1 + any.below(65535), to, toPort: any.of([80, 80, 80, 81]) };
}

/** Holds that Explain says of a flow what the command that it names says, and returns the backend, as address:port on host: "" is none. */
export async function explained(page: Page, flow: Flow): Promise<string> {
  const query = new URLSearchParams(Object.entries(flow).map(([key, value]) => [key, String(value)]));
  await page.evaluate((to) => void (location.hash = to), `#/explain?${query}`);
  const shown = page.locator("code", { hasText: "weir explain" });
  await expect(shown).toContainText(`:${flow.fromPort}`);
  const args = (await shown.innerText()).split(" ").slice(1).map((word) => ["arg", word.replaceAll("'", "")]);
  let told = "";
  // Buckets' moves end and health changes meanwhile, and the page asks each 5 s: both are asked until they say the same.
  await expect(async () => {
    told = await order("weir", args);
    const steps = told.split("\n").map((line) => /^ {2}\d+\. (.*)/.exec(line)?.[1] ?? "").filter((step) => step);
    if (steps.length === 0) expect(told).toContain(await page.getByRole("alert").innerText({ timeout: 2_000 }));
    else await expect(page.locator(".steps li")).toHaveText(steps, { timeout: 2_000 });
  }).toPass({ timeout: 30_000 });
  if (!/^ {2}\d+\. /m.test(told)) return "";
  const [, address, host] = / backend (\S+) on host (\S+) /.exec(told) ?? [];
  const backend = address ? `${address} on ${host}` : "";
  await expect(page.locator("section[aria-labelledby=answer] dd", { hasText: backend || "none: see the steps" })).toBeVisible();
  return backend;
}

/** Has mux2 killed, and returns how many milliseconds later Nodes showed it. */
export async function seesKilledMux(page: Page): Promise<number> {
  await open(page, "#/nodes", "Nodes");
  const row = nodeRow(page, "mux2");
  await expect(row).not.toContainText("disconnected");
  await stay(page);
  const began = Date.now();
  await order("kill-mux2");
  await expect(row).toContainText("disconnected", { timeout: 15_000 });
  const took = Date.now() - began;
  expect(await stayed(page)).toBe(true);
  return took;
}

export const nodeRow = (page: Page, name: string) => page.getByRole("row").filter({ has: page.getByRole("link", { name, exact: true }) });

/** Has the leader lost while pages are open, and the next one write another VIP. Returns how many milliseconds later that was written, how
 * many milliseconds later Events told of it, a stream, and the list of VIPs, which is read every five seconds. */
export async function goesOnWithoutLeader(page: Page, vip: string, next: string): Promise<{ written: number; told: number; listed: number }> {
  const [events, list] = [await page.context().newPage(), await page.context().newPage()];
  await open(events, "#/events", "Events");
  await open(list, "#/vips", "VIPs");
  await expect(list.getByRole("link", { name: vip, exact: true })).toBeVisible();
  await open(page, `#/vips/${vip}`, vip);
  await expect.poll(() => samples(page), { timeout: 30_000 }).toBeGreaterThan(0);
  const before = await page.locator(".chart").getAttribute("data-newest");
  for (const of of [page, events, list]) await stay(of);
  const began = Date.now();
  const after = async (what: Promise<unknown>) => what.then(() => Date.now() - began);
  const shows = (of: Page) => after(expect(of.getByRole("link", { name: next, exact: true }).first()).toBeVisible({ timeout: 30_000 }));
  const [written, told, listed] = await Promise.all([after(order("lose-leader")), shows(events), shows(list)]);
  await expect(page.locator(".chart")).not.toHaveAttribute("data-newest", before ?? "", { timeout: 30_000 });
  await expect(page.getByText("what is shown may be old")).toHaveCount(0);
  for (const of of [page, events, list]) expect(await stayed(of)).toBe(true);
  return { written, told, listed };
}

// A mark that a page which is loaded again does not have.
const stay = (page: Page) => page.evaluate(() => void ((window as never as { stays: boolean }).stays = true));
const stayed = (page: Page) => page.evaluate(() => (window as never as { stays?: boolean }).stays);
