// Where nodes stand in the drawing: a column each for routers, muxes, hosts and workloads, and the edges between them.

import type { NodeJson, VIPJson } from "../gen/v1/resource_pb";
import { addrPort, port } from "./format";
import type { Kind } from "./State.svelte";
import { healthState, nodeState, peerState } from "./state";

export type Box = { id: string; label: string; name: string; page: string; kind: Kind; word: string; x: number; y: number };
export type Edge = { from: string; to: string; kind: Kind; word: string; title: string; path: string };
export type Drawing = { columns: { title: string; x: number }[]; boxes: Box[]; edges: Edge[]; width: number; height: number };

const most = 40; // boxes in a column: the rest are one
const step = 56;
const columnWidth = 290;
const boxWidth = 190;

type Item = Omit<Box, "x" | "y">;

export function layers(nodes: NodeJson[], vip: VIPJson | undefined): Drawing {
  const routers = new Map<string, Item>();
  const muxes: Item[] = [];
  const hosts: Item[] = [];
  const workloads = new Map<string, Item>();
  const links: { from: string; to: string; kind: Kind; word: string }[] = [];
  const names = new Map<string, string>();
  const serving = vip && new Set((vip.endpoints ?? []).flatMap((e) => (e.backends ?? []).map((b) => b.host ?? "")));

  for (const n of nodes) {
    const item = { id: `node ${n.name}`, label: n.name ?? "", name: n.name ?? "", page: "nodes", ...nodeState(n) };
    if (n.role === "mux" || (n.role === "switch" && n.status?.switch?.programmed)) {
      muxes.push(item);
      for (const p of n.status?.mux?.peers ?? n.status?.switch?.peers ?? []) {
        const id = `router ${p.address}`;
        const told = n.status?.connected ? peerState(p.state, p.bfd) : { kind: "bad" as Kind, word: `${n.role} disconnected` };
        const known = routers.get(id);
        const kind = known && known.kind !== "bad" ? known.kind : told.kind;
        routers.set(id, { id, label: p.address ?? "", name: "", page: "", kind, word: kind === "bad" ? "no session" : `AS ${p.as}` });
        links.push({ from: id, to: item.id, ...told });
      }
    } else if (n.role === "host" && (!serving || serving.has(n.name ?? ""))) hosts.push(item);
  }
  for (const m of muxes) {
    for (const h of hosts) {
      const broken = m.kind === "bad" || h.kind === "bad";
      if (vip) links.push({ from: m.id, to: h.id, kind: broken ? "bad" : "ok", word: broken ? `${h.kind === "bad" ? h.label : m.label} ${h.kind === "bad" ? h.word : m.word}` : "forwards" });
    }
  }
  for (const e of vip?.endpoints ?? []) {
    for (const b of e.backends ?? []) {
      const id = `workload ${b.host} ${addrPort(b.address, b.port)}`;
      const told = healthState(b.status?.health, b.weight);
      workloads.set(id, { id, label: addrPort(b.address, b.port), name: "", page: "", ...told });
      links.push({ from: `node ${b.host}`, to: id, kind: told.kind, word: `${e.protocol} ${port(e.port)} ${told.word}` });
    }
  }
  return place([["Routers", [...routers.values()]], ["Muxes", muxes], ["Hosts", hosts], ["Workloads", [...workloads.values()]]], links, names);
}

function place(all: [string, Item[]][], links: { from: string; to: string; kind: Kind; word: string }[], names: Map<string, string>): Drawing {
  const columns = all.filter(([, items]) => items.length);
  const at = new Map<string, Box>();
  const boxes: Box[] = [];
  let rows = 0;
  columns.forEach(([, items], column) => {
    // Those that are not well are shown first where not all are.
    const sorted = items.length > most ? [...items].sort((a, b) => rank(a.kind) - rank(b.kind)) : items;
    const shown = sorted.slice(0, most);
    if (sorted.length > most) {
      const rest = sorted.length - most;
      shown.push({ id: `more ${column}`, label: `and ${rest} more`, name: "", page: "", kind: sorted[most]?.kind ?? "ok", word: "see Nodes" });
    }
    rows = Math.max(rows, shown.length);
    shown.forEach((item, row) => {
      const box = { ...item, x: 2 + column * columnWidth, y: 24 + row * step };
      boxes.push(box);
      at.set(item.id, box);
      names.set(item.id, item.label);
    });
  });
  const edges = links.flatMap((l) => {
    const a = at.get(l.from), b = at.get(l.to);
    if (!a || !b) return [];
    const x1 = a.x + boxWidth, y1 = a.y + 20, x2 = b.x, y2 = b.y + 20, mid = (x1 + x2) / 2;
    return [{ from: a.label, to: b.label, kind: l.kind, word: l.word, title: `${a.label} to ${b.label}: ${l.word}`, path: `M${x1} ${y1}C${mid} ${y1} ${mid} ${y2} ${x2} ${y2}` }];
  });
  return {
    columns: columns.map(([title], i) => ({ title, x: 2 + i * columnWidth })),
    boxes, edges, width: Math.max(1, columns.length) * columnWidth - (columnWidth - boxWidth) + 6, height: 30 + rows * step,
  };
}

const rank = (kind: Kind) => ["bad", "warn", "idle", "ok"].indexOf(kind);
