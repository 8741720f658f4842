// VIPs that a page looks for among all of them.

import { call, pages } from "./api";
import type { VIPJson } from "../gen/v1/resource_pb";

export const most = 1000; // VIPs that are looked through, the first by name
const anew = 20; // reads after which all are looked through without news: an event may have been dropped
const atOnce = 200; // in one answer: large ones cost a manager memory

/** Of those that were looked through: VIPs that fit, names by address, and whether there are more. */
export type Found = { vips: VIPJson[]; names: Map<string, string>; more: boolean };

/** Looks for VIPs that fit. All are looked through at first, after news and now and then, else those that were found are read again. */
export class Finder {
  private last: Found | undefined;
  private due = true;
  private reads = 0;

  constructor(private readonly fits: (v: VIPJson) => boolean) {}

  /** Something was written: all are looked through next. */
  news(): void {
    this.due = true;
  }

  async read(signal: AbortSignal): Promise<Found> {
    if (++this.reads % anew === 0) this.due = true;
    if (!this.due && this.last) return (this.last = { ...this.last, vips: await this.again(this.last.vips, signal) });
    this.due = false; // news that come meanwhile hold
    try {
      return (this.last = await this.all(signal));
    } catch (err) {
      this.due = true;
      throw err;
    }
  }

  private async all(signal: AbortSignal): Promise<Found> {
    const { all, more } = await pages((pageToken) => call("WeirService/ListVIPs", { pageSize: atOnce, pageToken }, signal), (r) => r.vips, most);
    return { vips: all.filter(this.fits), names: new Map(all.map((v) => [v.address ?? "", v.name ?? ""])), more };
  }

  private async again(known: VIPJson[], signal: AbortSignal): Promise<VIPJson[]> {
    const fresh: VIPJson[] = [];
    for (let i = 0; i < known.length; i += atOnce) {
      const addresses = known.slice(i, i + atOnce).map((v) => v.address ?? "");
      fresh.push(...(await pages((pageToken) => call("WeirService/ListVIPs", { addresses, pageToken }, signal), (r) => r.vips)).all);
    }
    return fresh.filter(this.fits);
  }
}
