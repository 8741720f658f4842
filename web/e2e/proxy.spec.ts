import { expect, test } from "@playwright/test";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

const address = process.env.WEIR_PROXY ?? "";
test.skip(!address, "weir ui runs in a test of its own");

test("the address of weir ui leads to the page, in one browser, and no other server on loopback gets its cookie", async ({ page, browser }) => {
  await page.goto(address);
  await expect(page.getByRole("heading", { level: 1, name: "Overview" })).toBeVisible();
  expect(new URL(page.url()).pathname).toBe("/ui/");
  expect(await page.evaluate(() => document.cookie)).toBe("");
  await page.reload();
  await expect(page.getByText("user/admin")).toBeVisible();

  const thief = await (await browser.newContext()).newPage();
  expect((await thief.goto(address))?.status()).toBe(403);

  const cookies: (string | undefined)[] = [];
  const other = createServer((request, answer) => {
    cookies.push(request.headers.cookie);
    answer.setHeader("Content-Type", "text/html").end("<!doctype html><title>other</title>");
  });
  await new Promise<void>((done) => other.listen(0, "127.0.0.1", done));
  try {
    const port = (other.address() as AddressInfo).port;
    const stranger = await page.context().newPage();
    for (const name of ["127.0.0.1", "localhost", "other.localhost"]) {
      await stranger.goto(`http://${name}:${port}/`);
      await stranger.evaluate(() => fetch("/again"));
      const got = await stranger.evaluate(async (url) => {
        const ask = (path: string, init: RequestInit) => fetch(url + path, { credentials: "include", ...init }).then((r) => `${r.type} ${r.status}`, () => "refused");
        return [await ask("/ui/sessions", {}), await ask("/weir.v1.TrustService/WhoAmI", { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" })];
      }, new URL(address).origin);
      expect(got, name).toEqual(["refused", "refused"]);
    }
    expect(cookies.length).toBeGreaterThan(5);
    expect(cookies.filter((c) => c)).toEqual([]);
  } finally {
    other.close();
  }
});
