import { expect, test, type Locator, type Page } from "@playwright/test";
import { open, signIn } from "./page";

// What test/webui has of networks and switches: texts of nodes are markup there.
const admin = process.env.WEIR_ADMIN ?? "";
const viewer = process.env.WEIR_VIEWER ?? "";
test.skip(!admin, "needs a manager");
const markup = "<img src=x onerror=";

/** Holds that no text of the page has become an element, or has run. */
async function nothingRan(page: Page) {
  expect(await page.evaluate(() => [(window as never as { ran?: number }).ran, document.querySelectorAll("main img, main script, dialog img").length])).toEqual([undefined, 0]);
}

/** The texts of a row, once it is there. */
async function cells(within: Locator, name: RegExp): Promise<string[]> {
  const row = within.getByRole("row", { name });
  await expect(row).toBeVisible();
  return row.getByRole("cell").allInnerTexts();
}

test("networks show their VIPs, and connections that bypass the muxes", async ({ page }) => {
  await signIn(page, admin);
  await open(page, "#/networks", "Networks");
  const red = page.getByRole("region", { name: "red-net" });
  await expect(red).toContainText("tenant red · VNI 100 · 192.168.0.0/16 · 0 workloads");
  await expect(red.getByRole("row", { name: /^red-dock/ })).toContainText("2,222");
  expect((await cells(red, /^red-dock red/)).slice(0, -1)).toEqual(["red", "10.99.0.13", "bypass", "20", "70", "5", "6", "1,111", "2,222", "1.5 ms"]);
  await expect(page.getByRole("region", { name: "blue-net" }).getByRole("row", { name: /^blue-dock/ })).toContainText("23");

  const asked: string[] = [];
  page.on("request", (request) => request.url().includes("ListConnections") && asked.push(request.postData() ?? ""));
  await red.getByRole("button", { name: "Connections of red-dock in red-net" }).click();
  await expect(red.getByRole("row", { name: /^192\.168\.0\.5:40001/ })).toContainText("100.64.0.7:40001");
  expect(await cells(red, /^192\.168\.0\.5:40001/)).toEqual(["TCP", "10.99.0.13:80", "100.64.0.7:40001", "10.3.1.13:80", "host1", "open", "7s"]);
  expect(await cells(red, /^10\.3\.1\.13:80/)).toEqual(["host1", "TCP 80", "17", "70", "5", "6", "1,111", "2,222"]);
  await expect(red.locator("code").last()).toHaveText("weir connections --vip red-dock --network red-net");
  await expect(red.getByRole("rowheader", { name: markup })).toHaveCount(2); // a client and a backend
  await nothingRan(page);
  // Counts are read again meanwhile; hosts are asked by the button alone.
  await page.waitForResponse((answer) => answer.url().includes("GetVIP"));
  await page.waitForResponse((answer) => answer.url().includes("GetVIP"));
  expect(asked.map((body) => JSON.parse(body))).toEqual([{ vip: "red-dock", network: "red-net", pageSize: 100 }]);
  await red.getByRole("button", { name: "Ask again" }).click();
  await expect.poll(() => asked.length).toBe(2);
});

test("a host that does not answer is told of", async ({ page }) => {
  await page.route("**/ListConnections", (route) => route.fulfill({ json: { unanswered: [{ host: "host7", reason: "<img src=x onerror=window.ran=1>" }], nextPageToken: "2" } }));
  await signIn(page, admin);
  await open(page, "#/networks", "Networks");
  await page.getByRole("button", { name: "Connections of red-dock in red-net" }).click();
  await expect(page.getByText("host host7 did not answer: <img src=x")).toBeVisible();
  await nothingRan(page);
});

test("who may view a VIP and not the network sees its connections without clients", async ({ page }) => {
  await signIn(page, viewer);
  await open(page, "#/networks", "Networks");
  await expect(page.getByRole("region")).toHaveCount(1);
  const foreign = page.getByRole("row", { name: /^another tenant's green/ });
  await expect(foreign).toContainText("10.99.0.33");
  await expect(foreign.getByRole("button")).toHaveCount(0);
  await expect(foreign).not.toContainText("29");
  await open(page, "#/vips/red-dock", "red-dock");
  await expect(page.getByRole("row", { name: /^green-net/ })).toContainText("19");
  await page.getByRole("button", { name: "Connections of red-dock in green-net" }).click();
  await expect(page.getByRole("row", { name: /^not yours to see TCP/ })).toContainText("10.3.1.13:80");
  await expect(page.locator("body")).not.toContainText("192.168.0.5");
});

test("placement shows switches, what is at the ends of their links, and why a VIP is not in one", async ({ page }) => {
  await signIn(page, admin);
  await open(page, "#/placement", "Placement");
  expect((await cells(page.getByRole("region", { name: "Switches", exact: true }), /^tor1 /)).slice(1)).toEqual(["3", "250 of 1,000 (25 %)", "32 of 512 (6 %)", "48 of 64 (75 %)"]);
  await expect(page.getByRole("row", { name: /^tor1 Ethernet0 spine1 Ethernet8/ })).toContainText("80 %");
  await expect(page.getByRole("row", { name: /^tor1 <img/ })).toContainText("down");
  await expect(page.getByRole("cell", { name: markup }).first()).toBeVisible(); // the neighbour
  const placed = page.getByRole("row", { name: /^red-fast tor1/ });
  await expect(placed).toContainText(markup, { timeout: 30_000 }); // why: the host, or the switch, refuses it
  await nothingRan(page);
  await open(page, "#/nodes/tor1", "tor1");
  await expect(page.getByText(markup).first()).toBeVisible();
  await nothingRan(page);
  await open(page, "#/vips/red-fast", "red-fast");
  await expect(page.getByRole("row", { name: /^tor1 / })).toContainText(markup);
  await nothingRan(page);
});

test("each type of health check is named as it is", async ({ page }) => {
  await signIn(page, admin);
  await open(page, "#/vips/red-checks", "red-checks");
  for (const [port, text] of [
    [81, "HTTP check /alive"], [82, 'HTTPS check /<img/src=x/onerror="window.ran=1"> on port 8443'], [83, "gRPC check shop.Cart"], [84, "UDP check"], [85, "TCP check"],
  ] as const) {
    await expect(page.getByRole("region", { name: `TCP ${port}` }).getByRole("heading")).toHaveText(new RegExp(`· ${text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`));
  }
  await nothingRan(page);
});

test("markup in labels, in what browsers say they are, and in the audit log is text", async ({ page, browser, baseURL }) => {
  const stranger = await (await browser.newContext({ baseURL, ignoreHTTPSErrors: true, userAgent: '<img src=x onerror="window.ran=1">' })).newPage();
  await signIn(stranger, viewer);
  const status = await stranger.evaluate(() =>
    fetch("/weir.v1.WeirService/DeleteVIP", {
      method: "POST", headers: { "Content-Type": "application/json", "Connect-Protocol-Version": "1" }, body: JSON.stringify({ name: '<img src=x onerror="window.ran=1">' }),
    }).then((r) => r.status),
  );
  expect(status).toBe(403);
  await open(stranger, "#/access", "Access");
  await expect(stranger.getByRole("cell", { name: markup })).toBeVisible();
  await nothingRan(stranger);
  await stranger.context().close();
  await signIn(page, admin);
  await open(page, "#/access", "Access");
  await expect(page.getByRole("cell", { name: `vip/${markup}` })).toBeVisible({ timeout: 15_000 });
  await nothingRan(page);
  await open(page, "#/vips/red-shop", "red-shop");
  await expect(page.getByText(`note=${markup}`)).toBeVisible();
  await nothingRan(page);
});
