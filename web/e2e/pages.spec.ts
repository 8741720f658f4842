import { expect, test } from "@playwright/test";
import { pages } from "../src/lib/api";

test("the pages of a list are read to the end, short ones too, or until there are enough", async () => {
  const list = [["a", "b"], ["c"], [], ["d", "e"]];
  const asked: string[] = [];
  const read = async (token: string) => {
    asked.push(token);
    const i = Number(token || 0);
    return { found: list[i], nextPageToken: i + 1 < list.length ? String(i + 1) : "" };
  };
  const first = (most?: number) => pages(read, (r) => r.found, most);
  expect(await first()).toEqual({ all: ["a", "b", "c", "d", "e"], more: false });
  expect(asked).toEqual(["", "1", "2", "3"]);
  expect(await first(3)).toEqual({ all: ["a", "b", "c"], more: true });
  expect(asked.length).toBe(6);
  expect(await first(4)).toEqual({ all: ["a", "b", "c", "d"], more: true });
  expect(await first(5)).toEqual({ all: ["a", "b", "c", "d", "e"], more: false });
});
