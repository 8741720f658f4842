import { expect, test } from "@playwright/test";
import { call, pages } from "../src/lib/api";

test("the pages of a list are read to the end, short ones too, or until there are enough", async () => {
  const list = [["a", "b"], ["c"], [], ["d", "e"]];
  const asked: (string | undefined)[] = [];
  const read = async (token?: string) => {
    asked.push(token);
    const i = Number(token || 0);
    return { found: list[i], nextPageToken: i + 1 < list.length ? String(i + 1) : "" };
  };
  const first = (most?: number) => pages(read, (r) => r.found, most);
  expect(await first()).toEqual({ all: ["a", "b", "c", "d", "e"], more: false });
  expect(asked).toEqual([undefined, "1", "2", "3"]);
  expect(await first(3)).toEqual({ all: ["a", "b", "c"], more: true });
  expect(asked.length).toBe(6);
  expect(await first(4)).toEqual({ all: ["a", "b", "c", "d"], more: true });
  expect(await first(5)).toEqual({ all: ["a", "b", "c", "d", "e"], more: false });
});

test("the first page is asked for without a token, a field that managers of the release before refuse", async () => {
  const real = globalThis.fetch, bodies: unknown[] = [];
  globalThis.fetch = async (_path, init) => {
    bodies.push(JSON.parse(String(init?.body)));
    return Response.json({ tenants: [{ name: "red" }], nextPageToken: bodies.length < 2 ? "2" : "" });
  };
  try {
    await pages((pageToken) => call("TrustService/ListTenants", { pageToken }), (r) => r.tenants);
  } finally {
    globalThis.fetch = real;
  }
  expect(bodies).toEqual([{}, { pageToken: "2" }]);
});
