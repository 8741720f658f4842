// The words and kinds of states, of what the API says.

import type { ConditionJson, HealthCheckJson, NodeJson } from "../gen/v1/resource_pb";
import type { Kind } from "./State.svelte";

export type Told = { kind: Kind; word: string };

/** A node, by its stream and what it runs. */
export function nodeState(n: NodeJson): Told {
  const s = n.status;
  if (!s?.connected) return { kind: "bad", word: "disconnected" };
  if (s.rejection?.reason) return { kind: "bad", word: "refuses" };
  if (s.sync === "out") return { kind: "bad", word: "out of the pool" };
  if (s.sync === "behind") return { kind: "warn", word: "behind" };
  if (n.drained) return { kind: "warn", word: "drained" };
  return { kind: "ok", word: "current" };
}

export function conditionState(c: ConditionJson): Told {
  // "overloaded" and "synCookies" are bad when they are true.
  const alarm = c.type === "overloaded" || c.type === "synCookies";
  if (c.status === "unknown") return { kind: "idle", word: "unknown" };
  const good = (c.status === "true") !== alarm;
  return { kind: good ? "ok" : alarm || c.reason === "Pending" ? "warn" : "bad", word: c.status === "true" ? "yes" : "no" };
}

/** A VIP as one word: the first condition that is not well. */
export function vipState(conditions: ConditionJson[] = []): Told {
  for (const c of conditions) {
    const told = conditionState(c);
    if (told.kind === "bad" || told.kind === "warn") return { kind: told.kind, word: c.reason || c.type || "" };
  }
  if (conditions.some((c) => c.status === "unknown")) return { kind: "idle", word: "not known yet" };
  return { kind: "ok", word: "well" };
}

export function healthState(health: string | undefined, weight: number | undefined): Told {
  if (weight === 0) return { kind: "warn", word: health === "unhealthy" ? "draining, unhealthy" : "draining" };
  switch (health) {
    case "healthy": return { kind: "ok", word: "healthy" };
    case "unhealthy": return { kind: "bad", word: "unhealthy" };
    case "unchecked": return { kind: "idle", word: "unchecked" };
  }
  return { kind: "idle", word: "unknown" };
}

export const peerState = (state = "", bfd = ""): Told =>
  state !== "established" ? { kind: "bad", word: `BGP ${state || "unknown"}` } : bfd === "down" ? { kind: "warn", word: "BGP up, BFD down" } : { kind: "ok", word: "BGP up" };

/** How backends are checked: "HTTPS check /healthz on port 8443". */
export function checkText(c: HealthCheckJson): string {
  const how = c.http ? `HTTP check ${c.http.path || "/"}`
    : c.https ? `HTTPS check ${c.https.path || "/"}`
    : c.grpc ? `gRPC check ${c.grpc.service ?? ""}`.trim()
    : c.udp ? "UDP check"
    : c.tcp ? "TCP check"
    : "health check"; // of a type that this page does not know
  return c.port ? `${how} on port ${c.port}` : how;
}
