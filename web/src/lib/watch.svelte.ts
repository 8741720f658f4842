// What streams tell of: nodes, what needs attention, events, and rates of the last 15 minutes.

import { ApiError, stream } from "./api";
import { follow, heard } from "./live.svelte";
import type { EventJson, NodeJson } from "../gen/v1/resource_pb";
import type { GetStatusResponseJson, WarningJson, WatchEventsRequestJson, WatchRatesRequestJson, WatchRatesResponseJson } from "../gen/v1/weir_pb";

/** All nodes, or those of a role, by name. */
export class Nodes {
  value = $state.raw<NodeJson[]>();
  error = $state("");

  follow(role = ""): () => void {
    return follow(
      async (signal) => {
        const all = new Map<string, NodeJson>();
        let whole = false;
        let due = false;
        const show = () => {
          due = false;
          if (!signal.aborted) this.value = [...all.values()].sort((a, b) => ((a.name ?? "") < (b.name ?? "") ? -1 : 1));
        };
        await stream("WeirService/WatchNodes", { role }, (message) => {
          heard();
          this.error = "";
          const name = message.node?.name;
          if (name && message.type === "deleted") all.delete(name);
          else if (name && message.node) all.set(name, message.node);
          whole ||= message.type === "bookmark";
          // Many come at once: they are shown once.
          if (whole && !due) {
            due = true;
            queueMicrotask(show);
          }
        }, signal);
      },
      (why) => (this.error = why),
    );
  }
}

/** The sums of the installation, and what needs attention. */
export class Status {
  value = $state.raw<GetStatusResponseJson>();
  warnings = $state.raw<WarningJson[]>([]);
  more = $state(0); // warnings that are left out
  note = $state(""); // what is no warning and may be wrong all the same
  error = $state("");

  follow(): () => void {
    return follow(
      (signal) =>
        stream("WeirService/WatchStatus", {}, (message) => {
          heard();
          this.error = "";
          this.value = message.status ?? {};
          this.warnings = message.warnings ?? [];
          this.note = message.note ?? "";
          this.more = (message.warningsTotal ?? 0) - this.warnings.length;
        }, signal),
      (why) => (this.error = why),
    );
  }
}

const writes = new Set(["Created", "Updated", "Deleted"]); // reasons of events

/** Events, the newest first. A list of them is read from the store each time, so they are followed and not asked for again. */
export class Events {
  value = $state.raw<EventJson[]>([]);
  error = $state("");

  /** Keeps the newest that fit; news is called when one that fits, or a write, may have happened since the page asked first. A
   * stream that was lost goes on where it ended, or lists all anew if managers do not remember that; one of a request with a version
   * begins there. */
  follow(request: WatchEventsRequestJson, most: number, fits: (e: EventJson) => boolean = () => true, news: () => void = () => {}): () => void {
    let asked = Date.now();
    const all = new Map<string, EventJson>();
    let version = request.resourceVersion;
    return follow(
      async (signal) => {
        if (Date.now() - asked > 5000) news(); // a stream begins when the page is seen, which may be long after it asked first
        const from = version;
        let whole = Boolean(from);
        if (!whole) all.clear();
        const streamed = stream("WeirService/WatchEvents", { ...request, resourceVersion: from }, (message) => {
          heard();
          this.error = "";
          const e = message.event;
          const fit = !!e && fits(e);
          if (e && whole && (fit || writes.has(e.reason ?? ""))) news();
          if (e?.name && fit) {
            all.delete(e.name);
            all.set(e.name, e);
            const oldest = all.keys().next().value;
            if (all.size > most && oldest !== undefined) all.delete(oldest);
          }
          whole ||= message.type === "bookmark";
          if (!whole) return;
          version = message.resourceVersion ?? version;
          this.value = [...all.values()].reverse();
        }, signal);
        await streamed.catch((err) => {
          if (err instanceof ApiError && err.code === "out_of_range") {
            version = undefined;
            asked = 0; // what happened since is not told one by one
          }
          throw err;
        });
      },
      (why) => (this.error = why),
    );
  }
}

const keep = 180; // samples, as managers do

/** Samples of rates, the oldest first. */
export class Rates {
  samples = $state.raw<WatchRatesResponseJson[]>([]);
  error = $state("");

  follow(request: WatchRatesRequestJson): () => void {
    let all: WatchRatesResponseJson[] = [];
    return follow(
      async (signal) => {
        let whole = false;
        // A stream that was lost goes on where it ended.
        const since = all.at(-1)?.at ?? "1970-01-01T00:00:01Z";
        await stream("WeirService/WatchRates", { ...request, since }, (message) => {
          heard();
          this.error = "";
          if (message.type === "sample") all = [...all.slice(1 - keep), message];
          whole ||= message.type === "bookmark";
          if (whole) this.samples = all;
        }, signal);
      },
      (why) => (this.error = why),
    );
  }
}

const sum = (numbers: (number | undefined)[]) => numbers.reduce<number>((all, n) => all + (n ?? 0), 0);

/** Of all muxes of a sample, or of one: packets a second that are forwarded, and dropped; null: nothing is known of it. */
export function muxRates(s: WatchRatesResponseJson, mux?: string): { forwarded: number | null; dropped: number | null } {
  const muxes = (s.muxes ?? []).filter((m) => mux === undefined || m.mux === mux);
  if (!muxes.length) return { forwarded: null, dropped: null };
  return { forwarded: sum(muxes.map((m) => number(m.forwarded?.packets))), dropped: sum(muxes.map((m) => number(m.dropped?.packets))) };
}

/** Of a VIP in a sample; null: it may be among those that are too many to be told of. */
export function vipRate(s: WatchRatesResponseJson, vip: string): { packets: number; bits: number } | null {
  const rate = s.vips?.find((v) => v.vip === vip)?.rate;
  if (!rate) return s.other ? null : { packets: 0, bits: 0 };
  return { packets: number(rate.packets), bits: number(rate.bits) };
}

export const number = (n: number | string | undefined) => Number(n ?? 0);

export const seconds = (s: WatchRatesResponseJson) => Date.parse(s.at ?? "") / 1000;
