import { execFileSync } from "node:child_process";
import { expect, test, type Locator, type Page } from "@playwright/test";
import { open, signIn } from "./page";

const admin = process.env.WEIR_ADMIN ?? "";
const viewer = process.env.WEIR_VIEWER ?? "";
test.skip(!admin, "needs a manager");

test("a backend is drained, weighed and put back, each time after its dry run", async ({ page }) => {
  const writes: string[] = [];
  page.on("request", (request) => /PatchVIP|UpdateVIP|DeleteVIP/.test(request.url()) && writes.push(request.url()));
  await signIn(page, admin);
  await open(page, "#/vips/blue-shop", "blue-shop");
  const dialog = page.getByRole("dialog");
  const row = page.getByRole("row", { name: /^10\.3\.1\.20:80/ });
  await row.getByRole("button", { name: /^Drain/ }).click();
  await expect(dialog.getByRole("heading")).toContainText("Drain backend 10.3.1.20");
  await expect(dialog.getByText(/buckets move|no table of buckets/)).toBeVisible();
  await expect(dialog).toContainText("weir patch blue-shop --resource-version");
  await dialog.getByRole("button", { name: "Cancel" }).click();
  expect(writes, "a dry run writes nothing").toEqual([]);
  await row.getByRole("button", { name: /^Drain/ }).click();
  await dialog.getByRole("button", { name: "Do it" }).click();
  await expect(dialog).toBeHidden();
  await expect(row).toContainText("draining");
  await row.getByRole("button", { name: /^Undrain/ }).click();
  await dialog.getByRole("button", { name: "Do it" }).click();
  await expect(row.getByRole("button", { name: /^Drain/ })).toBeVisible();
  await row.getByLabel(/^Weight of/).fill("7");
  await row.getByRole("button", { name: /^Set/ }).click();
  await expect(dialog.getByRole("heading")).toContainText("weight 7");
  await dialog.getByRole("button", { name: "Do it" }).click();
  await expect(row.getByRole("cell", { name: "7", exact: true })).toBeVisible();
  expect(writes.length).toBe(3);
});

test("what has changed since it was shown is not overwritten", async ({ page, context }) => {
  await signIn(page, admin);
  await open(page, "#/vips/blue-shop", "blue-shop");
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: /^Drain 10.3.1.20/ }).click();
  await expect(dialog.getByRole("button", { name: "Do it" })).toBeEnabled();
  const other = await context.newPage();
  await other.goto("/ui/");
  const status = await other.evaluate(() =>
    fetch("/weir.v1.WeirService/PatchVIP", {
      method: "POST", headers: { "Content-Type": "application/json", "Connect-Protocol-Version": "1" }, body: JSON.stringify({ name: "blue-shop", patch: { labels: { touched: "yes" } } }),
    }).then((r) => r.status),
  );
  expect(status).toBe(200);
  await dialog.getByRole("button", { name: "Do it" }).click();
  await expect(dialog.getByRole("alert")).toContainText("version");
  await dialog.getByRole("button", { name: "Cancel" }).click();
});

test("a VIP is limited and the limit is taken away", async ({ page }) => {
  await signIn(page, admin);
  await open(page, "#/vips/blue-shop", "blue-shop");
  const dialog = page.getByRole("dialog");
  await page.getByLabel(/^Packets a second/).fill("1000");
  await page.getByRole("button", { name: "Limit it" }).click();
  await expect(dialog).toContainText('{"limits":{"packets":"1000"}}');
  await dialog.getByRole("button", { name: "Do it" }).click();
  await expect(page.getByText("1,000 packets a second")).toBeVisible();
  await page.getByRole("button", { name: "Take the limits away" }).click();
  await dialog.getByRole("button", { name: "Do it" }).click();
  await expect(page.getByText("1,000 packets a second")).toBeHidden();
});

test("a join line is made, and a node revoked", async ({ page }) => {
  await signIn(page, admin);
  await open(page, "#/nodes", "Nodes");
  const dialog = page.getByRole("dialog");
  await page.getByLabel("Name, if it is to be one alone").fill("mux9");
  await page.getByRole("button", { name: "Make a join line" }).click();
  await expect(dialog).toContainText("weir token create --role mux --name mux9");
  await dialog.getByRole("button", { name: "Do it" }).click();
  await expect(dialog).toContainText(/printf %s weir_join_\S+ \| sudo weir join mux --manager https:\/\/\S+ --ca-hash sha256:[0-9a-f]{64} --name mux9/);
  await dialog.getByRole("button", { name: "Close" }).click();
  await open(page, "#/nodes/host1", "host1");
  await page.getByRole("button", { name: "Revoke host1" }).click();
  await expect(dialog).toContainText("blue-shop");
  await dialog.getByRole("button", { name: "Do it" }).click();
  await expect(dialog).toBeHidden();
  await open(page, "#/access", "Access");
  await expect(page.getByRole("row", { name: /^host1 host .*revoked/ })).toBeVisible();
});

test("who may only look is shown no edit", async ({ page }) => {
  await signIn(page, viewer);
  await open(page, "#/vips/red-shop", "red-shop");
  await expect(page.getByRole("row", { name: /^10\.3\.1\.10:80/ })).toBeVisible();
  await expect(page.getByRole("button", { name: /Drain|Set|Limit/ })).toHaveCount(0);
  await open(page, "#/nodes", "Nodes");
  await expect(page.getByRole("button", { name: /join/ })).toHaveCount(0);
});

/** Runs a command that the page shows: its words are those that a shell makes of it. */
async function run(command: string): Promise<string> {
  const words = execFileSync("sh", ["-c", `weir() { printf '%s\\0' "$@"; }\n${command}`], { encoding: "utf8" }).split("\0").slice(0, -1);
  const args = [...words, "--manager", process.env.WEIR_URL ?? ""].map((word) => ["arg", word]);
  return (await fetch(`${process.env.WEIR_CONTROL}/weir?${new URLSearchParams(args)}`)).text();
}

/** What was written of a VIP. */
async function written(page: Page, name: string) {
  const vip = await page.evaluate(async (of) => {
    const answer = await fetch("/weir.v1.WeirService/GetVIP", {
      method: "POST", headers: { "Content-Type": "application/json", "Connect-Protocol-Version": "1" }, body: JSON.stringify({ name: of }),
    });
    return (await answer.json()).vip;
  }, name);
  for (const told of ["status", "createTime", "updateTime", "updatedBy", "resourceVersion"]) delete vip[told];
  for (const e of vip.endpoints) for (const b of e.backends ?? []) delete b.status;
  return vip;
}

test("the command of a dialog does what the dialog does", async ({ page }) => {
  await signIn(page, admin);
  await open(page, "#/vips/blue-shop", "blue-shop");
  const dialog = page.getByRole("dialog");
  const row = page.getByRole("row", { name: /^10\.3\.1\.20:80/ });
  const before = await written(page, "blue-shop");
  await row.getByRole("button", { name: /^Drain/ }).click();
  const command = await dialog.locator("pre").innerText();
  await dialog.getByRole("button", { name: "Do it" }).click();
  await expect(row).toContainText("draining");
  const done = await written(page, "blue-shop");
  expect(done).not.toEqual(before);
  expect(await run(command), "a command of what was shown before").toContain("version");
  await row.getByRole("button", { name: /^Undrain/ }).click();
  await dialog.getByRole("button", { name: "Do it" }).click();
  await expect(row.getByRole("button", { name: /^Drain/ })).toBeVisible();

  await row.getByRole("button", { name: /^Drain/ }).click();
  const again = await dialog.locator("pre").innerText();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await run(again);
  expect(await written(page, "blue-shop")).toEqual(done);
  await expect(row).toContainText("draining");
  await row.getByRole("button", { name: /^Undrain/ }).click();
  await dialog.getByRole("button", { name: "Do it" }).click();
  await expect(row.getByRole("button", { name: /^Drain/ })).toBeVisible();
});

test("the overload steps of a VIP are ended: its policy is taken away", async ({ page }) => {
  expect(await run(`weir patch blue-shop --patch '{"overload": {"steps": [{"action": "limit", "limits": {"packets": "1000"}}]}}'`)).toContain("blue-shop");
  await signIn(page, admin);
  await open(page, "#/vips/blue-shop", "blue-shop");
  const dialog = page.getByRole("dialog");
  const policy = page.locator("dt", { hasText: "When overloaded" });
  await expect(policy).toBeVisible();
  await page.getByRole("button", { name: "End the overload steps" }).click();
  await expect(dialog.getByRole("heading")).toHaveText("End the overload steps of blue-shop: take its policy away");
  await expect(dialog.locator("pre")).toContainText(`--patch '{"overload":null}'`);
  await expect(dialog).toContainText("The VIP changes; no table of buckets does.");
  expect((await written(page, "blue-shop")).overload.steps.length, "a dry run writes nothing").toBe(1);
  await dialog.getByRole("button", { name: "Do it" }).click();
  await expect(policy).toBeHidden();
  await expect(page.getByRole("button", { name: "End the overload steps" })).toHaveCount(0);
  expect((await written(page, "blue-shop")).overload).toBe(undefined);
});

test("a dialog that opens right after another closed stays open", async ({ page }) => {
  await signIn(page, admin);
  await open(page, "#/vips/blue-shop", "blue-shop");
  const dialog = page.getByRole("dialog");
  const drain = page.getByRole("button", { name: /^Drain 10.3.1.20/ });
  await drain.click();
  await expect(dialog.getByText(/buckets move|no table of buckets/)).toBeVisible();
  // The browser tells that a dialog closed in a task of its own: the next click comes before it.
  await drain.evaluate(async (button: HTMLElement) => {
    const cancel = [...document.querySelectorAll("dialog button")].find((b) => b.textContent === "Cancel") as HTMLElement;
    cancel.click();
    for (let i = 0; i < 20; i++) await null;
    button.click();
    await new Promise((passed) => setTimeout(passed, 0)).then(() => new Promise(requestAnimationFrame));
  });
  await expect(dialog.getByText(/buckets move|no table of buckets/)).toBeVisible();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await expect(dialog).toBeHidden();
});

test("the keyboard alone suffices to edit: a drain is cancelled, a weight is set", async ({ page }) => {
  await signIn(page, admin);
  await open(page, "#/vips/blue-shop", "blue-shop");
  const row = page.getByRole("row", { name: /^10\.3\.1\.20:80/ });
  const [drain, weight] = [row.getByRole("button", { name: /^Drain/ }), row.getByLabel(/^Weight of/)];
  const dialog = page.getByRole("dialog");
  const focused = (at: Locator) => at.evaluate((element) => element === document.activeElement);
  const reach = async (at: Locator) => {
    for (let i = 0; i < 60; i++) {
      await page.keyboard.press("Tab");
      if (await focused(at)) return;
    }
    throw new Error(`Tab does not come to ${at}`);
  };
  await expect(drain).toBeVisible();
  await reach(drain);
  await page.keyboard.press("Enter");
  await expect(dialog.getByText(/buckets move|no table of buckets/)).toBeVisible();
  await reach(dialog.getByRole("button", { name: "Cancel" }));
  await page.keyboard.press("Enter");
  await expect(dialog).toBeHidden();
  await expect(drain, "the focus is where it was").toBeFocused();
  await page.keyboard.press("Enter");
  await expect(dialog).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(dialog).toBeHidden();

  await reach(weight);
  await page.keyboard.type("9");
  await page.keyboard.press("Enter");
  await expect(dialog.getByRole("heading")).toContainText("weight 9");
  await expect(dialog.getByText(/buckets move|no table of buckets/)).toBeVisible();
  await reach(dialog.getByRole("button", { name: "Do it" }));
  await page.keyboard.press("Enter");
  await expect(dialog).toBeHidden();
  await expect(row.getByRole("cell", { name: "9", exact: true })).toBeVisible();
});
