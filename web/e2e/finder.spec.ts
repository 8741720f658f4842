import { expect, test } from "@playwright/test";
import { Finder } from "../src/lib/vips";

// A manager with so many VIPs, of which every hundredth is sought; it notes what it is asked for.
function manager(count: number) {
  const asked: string[] = [];
  const vip = (i: number) => ({ name: `vip${i}`, address: `192.0.2.${i}`, fits: i % 100 === 7 });
  globalThis.fetch = async (_path, init) => {
    const r = JSON.parse(String(init?.body)) as { pageToken?: string; pageSize?: number; addresses?: string[] };
    asked.push(r.addresses ? `${r.addresses.length} by address` : `from ${r.pageToken || 0}`);
    const all = Array.from({ length: count }, (_, i) => vip(i));
    if (r.addresses) return Response.json({ vips: all.filter((v) => r.addresses?.includes(v.address)) });
    const from = Number(r.pageToken || 0), to = from + (r.pageSize ?? 0);
    return Response.json({ vips: all.slice(from, to), nextPageToken: to < count ? String(to) : "" });
  };
  return asked;
}

const real = globalThis.fetch;
test.afterEach(() => void (globalThis.fetch = real));

const finder = () => new Finder((v) => (v as { fits?: boolean }).fits === true);
const signal = new AbortController().signal;

test("all VIPs are looked through once, and again after news; else those that were found are read", async () => {
  const asked = manager(450);
  const f = finder();
  const first = await f.read(signal);
  expect(first.vips.map((v) => v.name)).toEqual(["vip7", "vip107", "vip207", "vip307", "vip407"]);
  expect([first.more, first.names.size, first.names.get("192.0.2.9")]).toEqual([false, 450, "vip9"]);
  const second = await f.read(signal);
  expect(second.vips.map((v) => v.name)).toEqual(["vip7", "vip107", "vip207", "vip307", "vip407"]);
  expect(second.names.size).toBe(450);
  f.news();
  await f.read(signal);
  expect(asked).toEqual(["from 0", "from 200", "from 400", "5 by address", "from 0", "from 200", "from 400"]);
});

test("of many VIPs the first thousand are looked through, and where none fits nothing is read again", async () => {
  const asked = manager(5000);
  const f = finder();
  expect((await f.read(signal)).more).toBe(true);
  expect(asked.length).toBe(5);
  const none = new Finder(() => false);
  await none.read(signal);
  await none.read(signal);
  expect(asked.length).toBe(10);
});

test("what could not be read is looked for again", async () => {
  manager(5);
  const working = globalThis.fetch;
  const f = finder();
  globalThis.fetch = () => Promise.reject(new Error("no manager"));
  await expect(f.read(signal)).rejects.toThrow("does not answer");
  globalThis.fetch = working;
  expect((await f.read(signal)).names.size).toBe(5);
});

test("without news all are looked through now and then, as an event may have been dropped", async () => {
  const asked = manager(5);
  const f = finder();
  for (let i = 0; i < 20; i++) await f.read(signal);
  expect(asked).toEqual(["from 0", "from 0"]);
});
