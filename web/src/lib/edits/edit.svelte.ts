// An edit: what it would do is asked of the manager and shown, with the command that does the same, before it is done.

import { quoted } from "../format";
import { call } from "../api";
import { addrPort } from "../format";
import type { BindingJson, WhoAmIResponseJson } from "../../gen/v1/trust_pb";
import type { VIPJson } from "../../gen/v1/resource_pb";

export type Edit = {
  title: string;
  /** That does the same in a terminal. */
  command: string;
  /** What it would do, line by line. Nothing changes. */
  tryOut: () => Promise<string[]>;
  /** Does it, and says what there is to keep, if there is something. */
  carryOut: () => Promise<string | void>;
};

/** Who uses the page, for edits that some may make. */
export const me = $state<{ who?: WhoAmIResponseJson }>({});

type Role = "viewer" | "operator" | "admin";
const rank = (role = "") => ["viewer", "operator", "admin"].indexOf(role);

/** Whether the user may do what takes a role in a tenant; "*": in all. The manager decides: this hides what it would refuse. */
export function may(role: Role, tenant = "*"): boolean {
  if (me.who?.method === "insecure") return true;
  return (me.who?.bindings ?? []).some((b: BindingJson) => (b.tenant === "*" || b.tenant === tenant) && rank(b.role) >= rank(role));
}

/** What of a VIP its users write, as the API takes it. */
function written(vip: VIPJson): VIPJson {
  const { status, createTime, updateTime, updatedBy, resourceVersion, ...own } = vip;
  return { ...own, endpoints: vip.endpoints?.map((e) => ({ ...e, backends: e.backends?.map(({ status, ...b }) => b) })) };
}

/** An edit of some fields of a VIP, which are refused if it has changed since it was read. */
export function ofVIP(title: string, read: VIPJson, change: (own: VIPJson) => Partial<VIPJson> | { limits: null } | { overload: null }): Edit {
  const own = written(read);
  const patch = change(own);
  const name = read.name ?? "";
  const version = read.resourceVersion ?? "0";
  return {
    title,
    command: `weir patch ${name} --resource-version ${version} --patch ${quoted(JSON.stringify(patch))}`,
    async tryOut() {
      const after = { ...own, ...patch } as VIPJson & Record<string, unknown>;
      for (const [field, value] of Object.entries(patch)) if (value === null) delete after[field];
      const answer = await call("WeirService/ApplyVIPs", { vips: [after], dryRun: true });
      const applied = answer.vips?.[0];
      if (!applied || applied.change === "unchanged") return ["Nothing would change."];
      const lines = (applied.effects ?? []).map((e) => {
        const key = `${e.endpoint?.protocol ?? ""} ${e.endpoint?.port || "all ports"}`;
        const waiting = e.bucketsWaiting ? `, ${e.bucketsWaiting} more wait for earlier moves` : "";
        const chained = Number(e.sessionsChained ?? 0) ? `, ${e.sessionsChained} depend on chaining` : "";
        return `${key}: ${e.bucketsMoved ?? 0} of ${e.bucketsTotal ?? 0} buckets move${waiting}; ${e.sessions ?? 0} connections go on${chained}.`;
      });
      return lines.length ? lines : ["The VIP changes; no table of buckets does."];
    },
    async carryOut() {
      await call("WeirService/PatchVIP", { name, patch: patch as Record<string, never>, resourceVersion: version });
    },
  };
}

/** Gives one backend of a VIP another weight; 0 drains it. */
export function weight(read: VIPJson, endpoint: number, backend: number, to: number): Edit {
  const b = read.endpoints?.[endpoint]?.backends?.[backend];
  const what = addrPort(b?.address, b?.port);
  const title = to === 0 ? `Drain backend ${what}` : (b?.weight ?? 1) === 0 ? `Put backend ${what} back, with weight ${to}` : `Give backend ${what} weight ${to}`;
  return ofVIP(title, read, (own) => ({
    endpoints: own.endpoints?.map((e, i) => (i !== endpoint ? e : { ...e, backends: e.backends?.map((one, j) => (j === backend ? { ...one, weight: to } : one)) })),
  }));
}
