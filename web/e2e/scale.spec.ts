import { writeFileSync } from "node:fs";
import { expect, test, type Browser, type Page } from "@playwright/test";

// test/bench/manager runs this with a large cluster, which takes everybody for an admin.
const file = process.env.WEIR_SCALE ?? "";
const control = process.env.WEIR_CONTROL ?? "";
const count = Number(process.env.WEIR_PAGES ?? 0);
test.skip(!file, "the bench of managers opens these pages");
test.setTimeout(300_000);

const pages = [["#/overview", ".chart, .warnings"], ["#/vips", "tbody tr"], ["#/nodes", "tbody tr"], ["#/topology", "svg"], ["#/vips/vip7", "tbody tr"], ["#/egress", "main .sheet"], ["#/floods", "main .sheet"]];

// Each has a profile of its own: the pages of one share six connections.
async function open(browser: Browser, hash: string): Promise<Page> {
  const page = await (await browser.newContext()).newPage();
  await page.goto(`/ui/${hash}`);
  return page;
}

test("pages of a large cluster", async ({ browser }) => {
  const seen = [];
  for (const [hash, data] of pages) {
    const page = await open(browser, hash);
    await expect(page.locator(data).first()).toBeVisible({ timeout: 60_000 });
    seen.push(
      await page.evaluate((name) => {
        const at = performance.now();
        const of = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")] as PerformanceResourceTiming[];
        const own = of.filter((entry) => entry.name.includes("/ui/")).reduce((sum, entry) => sum + entry.transferSize, 0);
        return { page: name, paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0, data: at, kB: own / 1000 };
      }, hash),
    );
    await page.context().close();
  }
  const opened = await Promise.all(Array.from({ length: count }, (_, i) => open(browser, pages[i % pages.length][0])));
  for (const [i, page] of opened.entries()) await expect(page.locator(pages[i % pages.length][1]).first()).toBeVisible({ timeout: 60_000 });
  await fetch(`${control}/measure`);
  writeFileSync(file, JSON.stringify(seen));
});
