import { expect, test } from "@playwright/test";
import { noFault } from "./page";

// What is not a page of its own: page.spec.ts has those.
const admin = process.env.WEIR_ADMIN ?? "";
test.skip(!admin, "needs a manager");

test("signing in, an edit, notices of errors, and what opens in a page have no fault of accessibility in either theme", async ({ page }) => {
  await page.goto("/ui/");
  const token = page.getByLabel("Your token");
  await expect(token).toBeVisible();
  await noFault(page, "sign in");
  await token.fill("weir_user_0000");
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("alert")).toBeVisible();
  await noFault(page, "a token that is refused");
  await token.fill(admin);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("heading", { level: 1, name: "Overview" })).toBeVisible();

  await page.goto("/ui/#/vips/blue-shop");
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: /^Drain 10\.3\.1\.20/ }).click();
  await expect(dialog.getByText(/buckets move|no table of buckets/)).toBeVisible();
  await noFault(page, "an edit");
  await page.route("**/PatchVIP", (route) => route.fulfill({ status: 409, json: { code: "aborted", message: "it has changed" } }));
  await dialog.getByRole("button", { name: "Do it" }).click();
  await expect(dialog.getByRole("alert")).toBeVisible();
  await noFault(page, "an edit that is refused");
  await dialog.getByRole("button", { name: "Cancel" }).click();

  await page.goto("/ui/#/vips/nobodys");
  await expect(page.getByRole("alert")).toContainText("there is no VIP");
  await noFault(page, "an error");
  await page.route("**/weir.v1.*/**", (route) => route.abort());
  await expect(page.getByText("what is shown may be old")).toBeVisible({ timeout: 15_000 });
  await noFault(page, "a manager that does not answer");
  await page.unroute("**/weir.v1.*/**");

  await page.goto("/ui/#/networks");
  await page.getByRole("button", { name: "Connections of red-dock in red-net" }).click();
  await expect(page.getByRole("row", { name: /^192\.168\.0\.5:40001/ })).toBeVisible();
  await noFault(page, "connections");
  for (const [hash, title] of [["#/vips/red-dock", "red-dock"], ["#/vips/red-fast", "red-fast"], ["#/vips/red-checks", "red-checks"], ["#/nodes/tor1", "tor1"]] as const) {
    await page.goto(`/ui/${hash}`);
    await expect(page.getByRole("heading", { level: 1, name: title })).toBeVisible();
    await expect(page.locator("main .sheet").first()).toBeVisible();
    await noFault(page, hash);
  }
});
