import { expect, test, type Page } from "@playwright/test";

// scripts/screenshots.sh runs this in a lab with traffic.
const address = process.env.WEIR_PROXY ?? "";
const folder = process.env.WEIR_PICTURES ?? "";
test.skip(!folder, "make screenshots takes the pictures of the documents");
test.use({ viewport: { width: 1200, height: 720 }, colorScheme: "light" });
test.setTimeout(180_000);

async function picture(page: Page, hash: string, title: string, name: string) {
  await page.evaluate((to) => void (location.hash = to), hash);
  await expect(page.getByRole("heading", { level: 1, name: title })).toBeVisible();
  await expect(page.locator("main .sheet, main svg").first()).toBeVisible();
  await page.screenshot({ path: `${folder}/${name}.png` });
}

test("pictures", async ({ page }) => {
  await page.goto(address);
  await expect(page.getByRole("heading", { level: 1, name: "Overview" })).toBeVisible();
  await page.evaluate(() => void (location.hash = "#/vips/web"));
  // A chart of a minute.
  await expect.poll(() => page.locator(".chart").getAttribute("data-samples").catch(() => 0).then(Number), { timeout: 150_000 }).toBeGreaterThanOrEqual(14);
  await picture(page, "#/vips/web", "web", "vip");
  await picture(page, "#/overview", "Overview", "overview");
  await picture(page, "#/topology?vip=web", "Topology", "topology");
});
