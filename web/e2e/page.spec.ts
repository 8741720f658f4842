import { execFileSync } from "node:child_process";
import { expect, test } from "@playwright/test";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { anyFlow, chance, everyPage, explained, goesOnWithoutLeader, noFault, open, problems, samples, seesKilledMux, shownPackets, signIn } from "./page";

const admin = process.env.WEIR_ADMIN ?? "";
const viewer = process.env.WEIR_VIEWER ?? "";
const sent = 1234; // packets a second to red-shop: test/webui sends them
const pages = everyPage({ vip: "red-shop", address: "203.0.113.10", egress: "red-out", mux: "mux1", host: "host1" });

test("every page is there, loads nothing from elsewhere, and has no fault of accessibility in either theme", async ({ page, baseURL }) => {
  const found = problems(page, baseURL);
  await signIn(page, admin);
  for (const [hash, title] of pages) {
    await open(page, hash, title);
    await expect(page.locator("main .sheet, main .warnings").first()).toBeVisible();
    await noFault(page, hash);
  }
  expect(found).toEqual([]);
});

test("markup in texts of nodes is text", async ({ page }) => {
  await signIn(page, admin);
  await expect(page.getByText("<img src=x onerror=").first()).toBeVisible();
  for (const [hash, title] of pages) {
    await open(page, hash, title);
    await expect(page.locator("main .sheet").first()).toBeVisible();
    expect(await page.evaluate(() => [(window as never as { ran?: number }).ran, document.querySelectorAll("main img, main script").length])).toEqual([undefined, 0]);
  }
  await open(page, "#/vips/red-shop", "red-shop");
  await expect(page.getByRole("cell", { name: "<img src=x onerror=" }).first()).toBeVisible();
});

test("a viewer of one tenant sees nothing of another", async ({ page }) => {
  // What streams bring is kept, to be looked through: they have no end.
  await page.addInitScript(() => {
    (window as never as { streamed: string }).streamed = "";
    const plain = window.fetch;
    window.fetch = async (to, init) => {
      const answer = await plain(to, init);
      if (!String(to).includes("Watch") || !answer.body) return answer;
      const [one, other] = answer.body.tee();
      void (async () => {
        const reader = other.getReader();
        for (;;) {
          const { done, value } = await reader.read().catch(() => ({ done: true, value: undefined }));
          if (done) return;
          (window as never as { streamed: string }).streamed += new TextDecoder().decode(value);
        }
      })();
      return new Response(one, { status: answer.status, headers: answer.headers });
    };
  });
  await signIn(page, viewer);
  const answers: string[] = [];
  page.on("response", async (response) => {
    if (response.url().includes("/weir.v1.") && !response.url().includes("Watch")) answers.push(await response.text().catch(() => ""));
  });
  for (const [hash, title] of pages) {
    await open(page, hash, title);
    await expect(page.locator("main .sheet, main .warnings, main .empty, main [role=alert]").first()).toBeVisible();
    expect(await page.locator("body").innerText(), hash).not.toContain("blue");
  }
  await open(page, "#/vips/blue-shop", "blue-shop");
  await expect(page.getByRole("alert")).toContainText("there is no VIP");
  await open(page, "#/vips", "VIPs");
  await expect(page.getByRole("link", { name: "red-shop", exact: true })).toBeVisible();
  expect(answers.length).toBeGreaterThan(10);
  expect(answers.filter((a) => a.includes("203.0.113.20") || a.includes("10.3.1.20"))).toEqual([]);
  await open(page, "#/overview", "Overview");
  const streamed = () => page.evaluate(() => (window as never as { streamed: string }).streamed);
  await expect.poll(streamed, { timeout: 20_000 }).toMatch(/"vip":\s*"red-shop"/);
  const all = await streamed();
  for (const secret of ["blue", "203.0.113.20", "10.1.1.1", "drop_no_backend"]) expect(all).not.toContain(secret);
});

test("charts open with what has been, and rates are those that were sent", async ({ page }) => {
  await signIn(page, admin);
  await open(page, "#/vips/red-shop", "red-shop");
  await expect.poll(async () => Math.abs((await shownPackets(page)) / sent - 1), { timeout: 30_000 }).toBeLessThan(0.05);
  // Another page begins with the samples that this one waited for.
  const before = await samples(page);
  const other = await page.context().newPage();
  await open(other, "#/vips/red-shop", "red-shop");
  await expect.poll(() => samples(other), { timeout: 20_000 }).toBeGreaterThanOrEqual(before);
  await other.close();
});

test("packets are observed, and a capture is a file that tshark reads", async ({ page }) => {
  await signIn(page, admin);
  await open(page, "#/observe?mux=mux1&seconds=2", "Observe");
  await page.getByLabel("VIP's address").fill("203.0.113.10");
  await page.getByRole("button", { name: "Observe" }).click();
  await expect(page.getByText("Ended after 1 packets, 3 lost")).toBeVisible();
  const row = page.getByRole("row").filter({ hasText: "192.0.2.1:4000" });
  await expect(row).toContainText("203.0.113.10:80");
  await expect(row).toContainText("bucket 7, <img src=x onerror=");
  expect(await page.evaluate(() => (window as never as { ran?: number }).ran)).toBe(undefined);
  await expect(page.locator("code").first()).toHaveText("weir observe --mux mux1 --connections --vip 203.0.113.10 --duration 2s");
  const downloading = page.waitForEvent("download");
  await page.getByRole("button", { name: "Download a capture" }).click();
  const file = await downloading;
  expect(file.suggestedFilename()).toBe("mux1.pcapng");
  const fields = ["frame.interface_name", "frame.time_epoch", "frame.len", "ip.src", "tcp.dstport", "frame.comment"];
  const read = execFileSync("tshark", ["-r", await file.path(), "-T", "fields", ...fields.flatMap((name) => ["-e", name])], { encoding: "utf8" });
  const rows = read.trim().split("\n").map((line) => line.split("\t"));
  expect(rows.map(([side]) => side)).toEqual(["mux1 in", "mux1 out"]);
  expect(rows[0]?.[1]).toContain("1795000000.123456789");
  expect(rows[0]?.slice(2, 5)).toEqual(["54", "192.0.2.1", "80"]);
  expect(rows[0]?.[5]).toContain("forward_syn: bucket 7, <img");
});

test("a command of a page runs nothing that a link holds", async ({ page }) => {
  await signIn(page, admin);
  await open(page, "#/observe?vip=%24(id)%3Bid%27", "Observe");
  await expect(page.locator("code").first()).toContainText("--vip '$(id);id'\\'''");
  await open(page, "#/explain?from=%24(id)&fromPort=1&to=203.0.113.10&toPort=80", "Explain");
  await expect(page.locator("code", { hasText: "weir explain" })).toContainText("weir explain '$(id):1' 203.0.113.10:80");
});

test("a packet is followed through the programs", async ({ page }) => {
  await signIn(page, admin);
  await open(page, "#/explain?from=192.0.2.1&fromPort=4000&to=203.0.113.10&toPort=80", "Explain");
  await page.getByRole("button", { name: "Follow its first packet" }).click();
  await expect(page.getByRole("heading", { name: /^mux mux\d$/ })).toBeVisible();
  await expect(page.getByText("verdict drop_<img")).toBeVisible();
  await expect(page.locator("code", { hasText: "--hops" })).toHaveText("weir explain --hops 192.0.2.1:4000 203.0.113.10:80");
});

test("a killed mux is seen at once", async ({ page }) => {
  await signIn(page, admin);
  console.log(`a killed mux was seen after ${await seesKilledMux(page)} ms`);
  await open(page, "#/overview", "Overview");
  await expect(page.locator(".warnings")).toContainText("mux mux2: disconnected");
  await open(page, "#/topology", "Topology");
  await expect(page.locator("svg")).toContainText("disconnected");
});

test("explain says what the command line does, of any flow", async ({ page }) => {
  test.setTimeout(120_000);
  await signIn(page, admin);
  const any = chance();
  const backends = new Set<string>();
  for (let i = 0; i < 100; i++) backends.add(await explained(page, anyFlow(any, ["203.0.113.30", "203.0.113.10", "2001:db8:113::30", "2001:db8:113::30"])));
  expect(backends.size, "flows differ").toBeGreaterThan(8);
});

test("the keyboard alone suffices: sign in, a VIP, explain", async ({ page }) => {
  await page.goto("/ui/");
  const field = page.getByLabel("Your token");
  await expect(field).toBeVisible();
  const reach = async (name: string) => {
    for (let i = 0; i < 60; i++) {
      await page.keyboard.press("Tab");
      const at = await page.evaluate(() => document.activeElement?.textContent?.trim() || (document.activeElement as HTMLInputElement | null)?.name);
      if (at === name) return;
    }
    throw new Error(`Tab does not come to ${name}`);
  };
  await page.keyboard.press("Tab");
  await expect(field).toBeFocused();
  await page.keyboard.insertText(viewer);
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  await reach("VIPs");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("link", { name: "red-shop", exact: true })).toBeVisible();
  await reach("red-shop");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "red-shop" })).toBeVisible();
  await reach("Explain");
  await page.keyboard.press("Enter");
  for (const [name, value] of [["from", "192.0.2.1"], ["fromPort", "4000"], ["to", "203.0.113.10"], ["toPort", "80"]] as const) {
    await reach(name);
    await page.keyboard.insertText(value);
  }
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "Steps" })).toBeVisible();
});

test("forged cookies are nobody's", async ({ page, context }) => {
  await signIn(page, viewer);
  const cookie = (await context.cookies()).find((c) => c.name === "__Host-weir");
  if (!cookie) throw new Error("there is no session");
  const { value } = cookie;
  const middle = value.length >> 1;
  const other = value[middle] === "x" ? "y" : "x";
  const visit = async (forged: string) => {
    await context.addCookies([{ ...cookie, value: forged }]);
    await page.goto("about:blank");
    await page.goto("/ui/#/vips");
  };
  for (const forged of [value.slice(0, middle) + other + value.slice(middle + 1), value.slice(0, -1), value + value, "x".repeat(value.length), "admin"]) {
    await visit(forged);
    await expect(page.getByLabel("Your token")).toBeVisible();
    await expect(page.getByText("red-shop")).toHaveCount(0);
  }
  await visit(value);
  await expect(page.getByRole("link", { name: "red-shop", exact: true })).toBeVisible();
});

test("sessions end: signed out, no script reads the cookie", async ({ page, context }) => {
  await signIn(page, admin);
  expect(await page.evaluate(() => document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage))).toBe("{}{}");
  const cookie = (await context.cookies()).find((c) => c.name === "__Host-weir");
  expect(cookie).toMatchObject({ httpOnly: true, secure: true, sameSite: "Strict", path: "/" });
  await open(page, "#/access", "Access");
  await page.getByRole("button", { name: "Sign out" }).click();
  await expect(page.getByLabel("Your token")).toBeVisible();
  // The secret that was is worth nothing now.
  await context.addCookies([cookie!]);
  await page.goto("/ui/#/vips");
  await page.reload();
  await expect(page.getByLabel("Your token")).toBeVisible();
});

test("a page of another origin gets nothing and frames nothing", async ({ page, context, baseURL }) => {
  await signIn(page, admin);
  const other = createServer((_, answer) => answer.setHeader("Content-Type", "text/html").end(`<!doctype html><title>other</title><iframe src="${baseURL}/ui/"></iframe>`));
  await new Promise<void>((done) => other.listen(0, "127.0.0.1", done));
  try {
    const stranger = await context.newPage();
    await stranger.goto(`http://127.0.0.1:${(other.address() as AddressInfo).port}/`);
    const got = await stranger.evaluate(async (url) => {
      const ask = (path: string, init: RequestInit) => fetch(url + path, { credentials: "include", ...init }).then((r) => `${r.type} ${r.status}`, () => "refused");
      return [
        await ask("/v1/vips", {}),
        await ask("/v1/vips", { mode: "no-cors" }),
        await ask("/weir.v1.TrustService/WhoAmI", { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" }),
        await ask("/v1/vips", { method: "POST", mode: "no-cors", body: "{}" }),
        await ask("/ui/session", { method: "DELETE" }),
      ];
    }, baseURL);
    expect(got).toEqual(["refused", "opaque 0", "refused", "opaque 0", "refused"]);
    expect(stranger.frames().slice(1).map((f) => f.url())).toEqual(["chrome-error://chromewebdata/"]);
  } finally {
    other.close();
  }
  // The session is still there.
  await page.reload();
  await expect(page.getByRole("heading", { level: 1, name: "Overview" })).toBeVisible();
});

// The last: the cluster has one manager less afterwards.
test("a lost leader is passed over", async ({ page }) => {
  await signIn(page, admin);
  const { written, told, listed } = await goesOnWithoutLeader(page, "red-shop", "red-new");
  console.log(`the next leader took a write after ${written} ms, Events told of it after ${told} ms, the list had it after ${listed} ms`);
});
