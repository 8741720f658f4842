// What needs attention, the worst first: the lines of "weir status", with where to look.

import type { NodeJson } from "../gen/v1/resource_pb";
import type { GetStatusResponseJson } from "../gen/v1/weir_pb";
import { age } from "./format";
import { link } from "./route.svelte";

export type Warning = { text: string; to?: string };

export function warningsOf(s: GetStatusResponseJson): Warning[] {
  const nodes = s.nodes ?? [];
  const muxes = nodes.filter((n) => n.role === "mux");
  const lines: Warning[] = [];
  if (!muxes.length && s.vips) lines.push({ text: "no mux is registered: nothing forwards packets, start weir-mux" });
  else if (muxes.length && !muxes.some((n) => n.status?.connected)) {
    lines.push({ text: "no mux is connected: they forward with the tables they have, and learn of no change" });
  }
  for (const text of s.vipWarnings ?? []) {
    const name = /^vip ([a-z0-9-]+)/.exec(text)?.[1];
    lines.push({ text, to: name && link("vips", name) });
  }
  const untold = (s.vipWarningsTotal ?? 0) - (s.vipWarnings ?? []).length;
  if (untold > 0) lines.push({ text: `and ${untold} more of VIPs: weir get vips --with-warnings`, to: link("vips") });
  for (const n of nodes) for (const text of nodeWarnings(n, s)) lines.push({ text: `${n.role} ${n.name}: ${text}`, to: link("nodes", n.name) });
  return lines;
}

function nodeWarnings(n: NodeJson, s: GetStatusResponseJson): string[] {
  const lines: string[] = [];
  const status = n.status ?? {};
  if (status.rejection?.reason) lines.push(`refused generation ${status.rejection.generation}: ${status.rejection.reason}`);
  if (!status.connected) {
    const runs = Number(status.generation ?? 0) ? `works on with generation ${status.generation}` : "runs none";
    const since = status.lastSeen ? `disconnected, last heard ${age(status.lastSeen)} ago` : "disconnected";
    return [...lines, `${since}; it ${runs}: check the machine, or weir delete node ${n.name} if it is gone for good`];
  }
  if (!status.rejection?.reason && n.role === "mux" && Number(status.generation ?? 0) < Number(s.generation ?? 0)) {
    lines.push(`runs generation ${status.generation ?? 0}, the newest is ${s.generation}`);
  }
  if (status.mux) {
    const peers = status.mux.peers ?? [];
    if (!peers.length) lines.push("has no BGP peer: no router sends it packets");
    for (const p of peers) {
      if (p.state !== "established") lines.push(`BGP session with ${p.address} is ${p.state}${p.lastError ? ": " + p.lastError : ""}`);
      else if (p.bfd === "down") lines.push(`BFD with ${p.address} is down: a failure is noticed by the hold time alone`);
    }
  }
  return [...lines, ...(status.mux?.warnings ?? []), ...(status.host?.warnings ?? []), ...(status.switch?.warnings ?? [])];
}
