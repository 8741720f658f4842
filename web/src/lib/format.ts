// Figures and times, as the command line writes them.

const units: [number, string][] = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** 0, 12, 1.23k, 4.56M. */
export function short(n: number): string {
  for (const [size, unit] of units) if (n >= size) return (n / size).toPrecision(3) + unit;
  return n > 0 && n < 10 ? n.toFixed(1) : n.toFixed(0);
}

export const count = (n: number | string | undefined) => Number(n ?? 0).toLocaleString("en");

/** 5s, 3m, 2h, 4d since a time of the API; empty: there is none. */
export function age(time: string | undefined, now = Date.now()): string {
  if (!time) return "";
  const seconds = Math.max(0, Math.round((now - Date.parse(time)) / 1000));
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

export const absolute = (time: string | undefined) => (time ? new Date(time).toLocaleString() : "");

export const port = (n: number | undefined) => (n ? String(n) : "all");

/** An address with a port, IPv6 in brackets. */
export const addrPort = (address = "", n: number | undefined) => (n ? (address.includes(":") ? `[${address}]:${n}` : `${address}:${n}`) : address);

/** A word of a command for a shell: whoever copies it runs nothing that a link to the page, or a name, holds. */
export const quoted = (text: string) => (/^[\w./:=,@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

/** The mean round trip to clients, of handshakes that hosts have measured; empty: there are none. */
export function roundTrip(of: { handshakes?: string[]; handshakeTime?: string }): string {
  const n = (of.handshakes ?? []).reduce((all, one) => all + Number(one), 0);
  if (!n) return "";
  const ms = (Number((of.handshakeTime ?? "0s").slice(0, -1)) * 1000) / n;
  const [value, unit] = ms >= 1000 ? [ms / 1000, "s"] : ms >= 1 ? [ms, "ms"] : [ms * 1000, "µs"];
  return `${value.toFixed(value < 10 ? 1 : 0)} ${unit}`;
}
