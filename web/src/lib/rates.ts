// Rates of the counters that muxes report: the growth between a mux's last two reports, whenever they came. As "weir top".

import type { NodeJson } from "../gen/v1/resource_pb";

type Counters = Map<string, number>;
type Report = { at: number; packets: Counters; rates?: Counters };

/** Of one moment: packets a second that muxes forward, and drop. */
export type Sample = { at: number; forwarded: number; dropped: number };

export class Gauge {
  private muxes = new Map<string, Report>();
  samples: Sample[] = [];

  constructor(private readonly most = 450) {}

  /** Takes what nodes say now, and adds a sample once every mux has reported twice. */
  observe(nodes: NodeJson[], now: number): void {
    const seen = new Set<string>();
    for (const n of nodes) {
      const name = n.name ?? "";
      const mux = n.status?.mux;
      if (!mux || !n.status?.connected || !n.status.lastSeen) continue;
      seen.add(name);
      const at = Date.parse(n.status.lastSeen);
      const last = this.muxes.get(name);
      if (last && at <= last.at) continue;
      const packets = new Map((mux.verdicts ?? []).map((v) => [v.name ?? "", Number(v.packets ?? 0)]));
      this.muxes.set(name, { at, packets, rates: last && growth(last, { at, packets }) });
    }
    for (const name of this.muxes.keys()) if (!seen.has(name)) this.muxes.delete(name);
    const rates = this.verdicts();
    if (!rates) return;
    const sample = { at: now, forwarded: 0, dropped: 0 };
    for (const [verdict, rate] of rates) {
      if (verdict.startsWith("forward")) sample.forwarded += rate;
      else if (verdict.startsWith("drop")) sample.dropped += rate;
    }
    this.samples = [...this.samples.slice(1 - this.most), sample];
  }

  /** Of all muxes together, by verdict; undefined before there are any. */
  verdicts(of?: string): Counters | undefined {
    const sums: Counters = new Map();
    let known = false;
    for (const [name, report] of this.muxes) {
      if (of !== undefined && of !== name) continue;
      if (!report.rates) continue;
      known = true;
      for (const [verdict, rate] of report.rates) sums.set(verdict, (sums.get(verdict) ?? 0) + rate);
    }
    return known ? sums : undefined;
  }
}

/** A counter that went back, as with new tables, has no rate yet. */
function growth(from: Report, to: Report): Counters {
  const rates: Counters = new Map();
  for (const [name, n] of to.packets) {
    const before = from.packets.get(name) ?? 0;
    if (n >= before) rates.set(name, ((n - before) * 1000) / (to.at - from.at));
  }
  return rates;
}
