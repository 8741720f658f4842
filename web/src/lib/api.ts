// The Connect protocol in JSON, with the types that are generated from the protos. Types cost nothing at run time; a
// client with descriptors of all messages would be most of the page.

import type {
  ApplyVIPsRequestJson, ApplyVIPsResponseJson, PatchVIPRequestJson, PatchVIPResponseJson,
  ExplainPacketResponseJson, ExplainPathRequestJson, ExplainPathResponseJson, ExplainRequestJson, ExplainResponseJson, GetSNATResponseJson, GetVIPResponseJson, ListEventsRequestJson,
  ListConnectionsRequestJson, ListConnectionsResponseJson, ListFabricsResponseJson, ListVIPsRequestJson, ListVIPsResponseJson, ListVirtualNetworksResponseJson,
  WatchEventsRequestJson, WatchEventsResponseJson, WatchNodesRequestJson, WatchNodesResponseJson, WatchRatesRequestJson, WatchRatesResponseJson,
  WatchStatusResponseJson, ListEventsResponseJson, GetNodeResponseJson, ListNodesRequestJson, ListNodesResponseJson,
  CaptureRequestJson, CaptureResponseJson, ObserveRequestJson, ObserveResponseJson,
} from "../gen/v1/weir_pb";
import type { ListManagersResponseJson } from "../gen/v1/cluster_pb";
import type {
  CreateTokenRequestJson, CreateTokenResponseJson, RevokePrincipalRequestJson, RevokePrincipalResponseJson,
  ListAuditRequestJson, ListAuditResponseJson, ListPrincipalsResponseJson, ListTenantsResponseJson, ListTokensResponseJson, ListUsersResponseJson, WhoAmIResponseJson,
} from "../gen/v1/trust_pb";

/** A call that was refused, by the words of Connect: "unauthenticated", "permission_denied". */
export class ApiError extends Error {
  constructor(readonly code: string, message: string) {
    super(message);
  }
}

type None = Record<string, never>;
type Paged = { pageToken?: string };
type Calls = {
  "WeirService/ListNodes": [ListNodesRequestJson, ListNodesResponseJson];
  "WeirService/GetNode": [{ name: string }, GetNodeResponseJson];
  "WeirService/ListVIPs": [ListVIPsRequestJson, ListVIPsResponseJson];
  "WeirService/GetVIP": [{ name: string }, GetVIPResponseJson];
  "WeirService/GetSNAT": [{ name: string }, GetSNATResponseJson];
  "WeirService/ListEvents": [ListEventsRequestJson, ListEventsResponseJson];
  "WeirService/ListVirtualNetworks": [Paged, ListVirtualNetworksResponseJson];
  "WeirService/ListConnections": [ListConnectionsRequestJson, ListConnectionsResponseJson];
  "WeirService/ListFabrics": [None, ListFabricsResponseJson];
  "WeirService/Explain": [ExplainRequestJson, ExplainResponseJson];
  "WeirService/ExplainPacket": [{ mux: string; frame: string }, ExplainPacketResponseJson];
  "WeirService/ExplainPath": [ExplainPathRequestJson, ExplainPathResponseJson];
  "ClusterService/ListManagers": [None, ListManagersResponseJson];
  "TrustService/WhoAmI": [None, WhoAmIResponseJson];
  "TrustService/ListTenants": [Paged, ListTenantsResponseJson];
  "TrustService/ListUsers": [Paged, ListUsersResponseJson];
  "TrustService/ListTokens": [Paged, ListTokensResponseJson];
  "TrustService/ListPrincipals": [Paged, ListPrincipalsResponseJson];
  "WeirService/ApplyVIPs": [ApplyVIPsRequestJson, ApplyVIPsResponseJson];
  "WeirService/PatchVIP": [PatchVIPRequestJson, PatchVIPResponseJson];
  "TrustService/RevokePrincipal": [RevokePrincipalRequestJson, RevokePrincipalResponseJson];
  "TrustService/CreateToken": [CreateTokenRequestJson, CreateTokenResponseJson];
  "TrustService/ListAudit": [ListAuditRequestJson, ListAuditResponseJson];
};
type Streams = {
  "WeirService/WatchNodes": [WatchNodesRequestJson, WatchNodesResponseJson];
  "WeirService/WatchRates": [WatchRatesRequestJson, WatchRatesResponseJson];
  "WeirService/WatchStatus": [None, WatchStatusResponseJson];
  "WeirService/WatchEvents": [WatchEventsRequestJson, WatchEventsResponseJson];
  "WeirService/Observe": [ObserveRequestJson, ObserveResponseJson];
  "WeirService/Capture": [CaptureRequestJson, CaptureResponseJson];
};

const headers = { "Connect-Protocol-Version": "1" };

const callTime = 10_000; // ms that an answer may take
const silence = 75_000; // ms without a message, after which a stream is lost: a bookmark comes every 30 s

/** As fetch, but a manager that does not answer in time fails it, with words. */
async function ask(path: string, init: RequestInit, signal?: AbortSignal, time = callTime): Promise<Response> {
  const late = AbortSignal.timeout(time);
  try {
    return await fetch(path, { ...init, signal: signal ? AbortSignal.any([signal, late]) : late });
  } catch (err) {
    if (signal?.aborted) throw err;
    throw new ApiError("unavailable", "the manager does not answer");
  }
}

async function failure(response: Response): Promise<ApiError> {
  const body = (await response.json().catch(() => ({}))) as { code?: string; message?: string };
  return new ApiError(body.code ?? (response.status === 401 ? "unauthenticated" : "unavailable"), body.message ?? `the manager answered ${response.status}`);
}

/** Makes a call, that may take so many milliseconds. */
export async function call<M extends keyof Calls>(method: M, request: Calls[M][0], signal?: AbortSignal, time?: number): Promise<Calls[M][1]> {
  const response = await ask(`/weir.v1.${method}`, {
    method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(request),
  }, signal, time);
  if (!response.ok) throw await failure(response);
  try {
    return (await response.json()) as Calls[M][1];
  } catch (err) {
    if (signal?.aborted) throw err;
    throw new ApiError("unavailable", "the manager's answer broke off");
  }
}

/** Reads the pages of a list until there are `most` results, or all of them. The first has no token: managers of a release
 * without pages of a list refuse the field, empty or not, and a field that is undefined is not sent. */
export async function pages<R extends { nextPageToken?: string }, T>(
  read: (pageToken?: string) => Promise<R>, of: (page: R) => T[] | undefined, most = Infinity,
): Promise<{ all: T[]; more: boolean }> {
  const all: T[] = [];
  for (let pageToken: string | undefined; ; ) {
    const page = await read(pageToken);
    all.push(...(of(page) ?? []));
    pageToken = page.nextPageToken || undefined;
    if (!pageToken || all.length >= most) return { all: all.slice(0, most), more: Boolean(pageToken) || all.length > most };
  }
}

/** Opens a stream and calls each for every message, until signal ends it or it fails; a watch has no other end. A frame is a
 * flag, four bytes of length, JSON. */
export async function stream<M extends keyof Streams>(method: M, request: Streams[M][0], each: (message: Streams[M][1]) => void, signal: AbortSignal): Promise<void> {
  const text = new TextEncoder().encode(JSON.stringify(request));
  const body = new Uint8Array(5 + text.length);
  new DataView(body.buffer).setUint32(1, text.length);
  body.set(text, 5);
  const watches = method.includes("/Watch"); // others may have nothing to tell for long
  const silent = new AbortController();
  let watchdog = 0;
  const wait = (time: number) => {
    clearTimeout(watchdog);
    if (watches) watchdog = window.setTimeout(() => silent.abort(), time);
  };
  wait(callTime);
  try {
    const response = await fetch(`/weir.v1.${method}`, {
      method: "POST", headers: { ...headers, "Content-Type": "application/connect+json" }, body, signal: AbortSignal.any([signal, silent.signal]),
    });
    if (!response.ok || !response.body) throw await failure(response);
    await frames(response.body.getReader(), () => wait(silence), (message) => each(message as Streams[M][1]));
    if (watches) throw new ApiError("unavailable", "the manager ended the stream");
  } catch (err) {
    if (silent.signal.aborted && !signal.aborted) throw new ApiError("unavailable", "the manager does not answer");
    throw err;
  } finally {
    clearTimeout(watchdog);
  }
}

/** Reads the frames of a stream until it ends. */
async function frames(reader: ReadableStreamDefaultReader<Uint8Array>, heard: () => void, each: (message: unknown) => void): Promise<void> {
  let left = new Uint8Array(0);
  for (;;) {
    heard();
    const { done, value } = await reader.read();
    if (done) throw new ApiError("unavailable", "the manager's answer broke off");
    const all = new Uint8Array(left.length + value.length);
    all.set(left);
    all.set(value, left.length);
    left = all;
    while (left.length >= 5) {
      const size = new DataView(left.buffer, left.byteOffset).getUint32(1);
      if (left.length < 5 + size) break;
      const message = JSON.parse(new TextDecoder().decode(left.subarray(5, 5 + size)));
      const last = (left[0] ?? 0) & 2;
      left = left.slice(5 + size);
      if (!last) each(message);
      else if (message.error) throw new ApiError(message.error.code ?? "unknown", message.error.message ?? "");
      else return;
    }
  }
}

/** Exchanges a token for a session, which scripts never see. */
export async function signIn(token: string): Promise<void> {
  const response = await ask("/ui/session", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ token }) });
  if (!response.ok) throw await failure(response);
}

/** The host of the OpenID Connect provider that signs users in; empty: there is none. */
export async function provider(): Promise<string> {
  const response = await ask("/ui/sign-in", {});
  if (!response.ok) throw await failure(response);
  return ((await response.json()) as { provider: string }).provider;
}

export async function signOut(): Promise<void> {
  const response = await ask("/ui/session", { method: "DELETE" });
  if (!response.ok) throw await failure(response);
}

export type Session = { id: string; from: string; agent: string; created: string; lastUsed: string; current: boolean };

export async function sessions(): Promise<Session[]> {
  const response = await ask("/ui/sessions", {});
  if (!response.ok) throw await failure(response);
  return ((await response.json()) as { sessions: Session[] }).sessions;
}

export async function endSession(id: string): Promise<void> {
  const response = await ask(`/ui/sessions/${encodeURIComponent(id)}`, { method: "DELETE" });
  if (!response.ok) throw await failure(response);
}
