import { appendFileSync } from "node:fs";
import { expect, test } from "@playwright/test";
import { anyFlow, chance, everyPage, explained, goesOnWithoutLeader, nodeRow, open, order, problems, seesKilledMux, shownPackets, signIn, type Flow } from "./page";
import { addrPort } from "../src/lib/format";

// TestLabInBrowser runs this in a lab: managers, muxes and hosts are Weir's programs, and packets are real.
const file = process.env.WEIR_LAB ?? "";
test.skip(!file, "test/webui starts the lab");
test.beforeEach(({ page }) => signIn(page, process.env.WEIR_ADMIN ?? ""));

/** Writes down what was measured, for which the machine is to blame as much as the page. */
function measured(what: string, value: number, unit: string) {
  console.log(`${what}: ${value} ${unit}`);
  appendFileSync(file, `${JSON.stringify({ what, value, unit })}\n`);
}

test("every page is there, without an error", async ({ page, baseURL }) => {
  const found = problems(page, baseURL);
  for (const [hash, title] of everyPage({ vip: "shop", address: "203.0.113.10", egress: "out", mux: "mux1", host: "host1" })) {
    await open(page, hash, title);
    await expect(page.locator("main .sheet, main .warnings, main [role=alert]").first()).toBeVisible();
    await expect(page.locator("main [role=alert], main .notice.bad"), hash).toHaveCount(0);
  }
  expect(found).toEqual([]);
});

test("the rate of a VIP is the one that a client sends at", async ({ page }) => {
  await open(page, "#/vips/shop", "shop");
  await order("send");
  let shown = 0, sent = 0;
  await expect.poll(async () => {
    const { packets, seconds } = JSON.parse(await order("sent"));
    [shown, sent] = [await shownPackets(page), packets / seconds];
    return Math.abs(shown / sent - 1);
  }, { timeout: 45_000, message: "how far the rate that is shown is from the one that is sent" }).toBeLessThan(0.05);
  measured("sent", Math.round(sent), "packets/s");
  measured("shown", shown, "packets/s");
});

test("Explain says what the command line does, and where connections come to", async ({ page }) => {
  test.setTimeout(180_000);
  const any = chance();
  for (let i = 0; i < 100; i++) await explained(page, anyFlow(any, ["203.0.113.10", "203.0.113.11", "203.0.113.99", "2001:db8:113::10", "2001:db8:113::99"]));
  const met = new Set<string>();
  for (let i = 0; i < 20; i++) {
    const ends = i % 2 ? { from: "fd00:0:1::2", to: "2001:db8:113::10" } : { from: "10.0.1.2", to: "203.0.113.10" }; // from client1
    const flow: Flow = { protocol: "TCP", ...ends, fromPort: 2000 + 1000 * i + any.below(1000), toPort: 80 }; // each port once
    const backend = await explained(page, flow);
    const { client, server, host } = JSON.parse(await order("connect", [["port", String(flow.fromPort)], ["to", flow.to]]));
    expect(`${client} reached ${server} on ${host}`).toBe(`${addrPort(flow.from, flow.fromPort)} reached ${backend}`);
    met.add(backend);
  }
  expect(met.size, "backends differ").toBeGreaterThan(3);
});

test("a killed mux is seen, and that it is back", async ({ page }) => {
  measured("a killed mux is seen after", await seesKilledMux(page), "ms");
  await order("start-mux2");
  await expect(nodeRow(page, "mux2")).toContainText("current", { timeout: 30_000 });
});

// The last: the lab has one manager less afterwards.
test("the page goes on when the leader is killed", async ({ page }) => {
  const { written, told, listed } = await goesOnWithoutLeader(page, "shop", "new");
  measured("the leader is killed: the next one took a write after", written, "ms");
  measured("the leader is killed: Events told of that write after", told, "ms");
  measured("the leader is killed: the list of VIPs had it after", listed, "ms");
});
