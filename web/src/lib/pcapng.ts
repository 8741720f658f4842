// A capture as a file that Wireshark opens, as weir capture writes it: pcapng (draft-ietf-opsawg-pcapng), with the
// interfaces in and out, and what became of each packet as its comment.

import type { CapturedPacketJson } from "../gen/v1/resource_pb";

const utf8 = new TextEncoder();

/** Bytes, little-endian, in words of four. */
class Bytes {
  private parts: Uint8Array[] = [];
  size = 0;
  add(part: Uint8Array): this {
    this.parts.push(part, new Uint8Array(-part.length & 3));
    this.size += (part.length + 3) & ~3;
    return this;
  }
  words(...words: number[]): this {
    return this.add(new Uint8Array(Uint32Array.from(words).buffer));
  }
  option(code: number, value: Uint8Array): this {
    return this.words(code | (value.length << 16)).add(value);
  }
  all(): Uint8Array {
    const all = new Uint8Array(this.size);
    let at = 0;
    for (const part of this.parts) {
      all.set(part, at);
      at += part.length;
    }
    return all;
  }
}

function block(type: number, body: Bytes): Uint8Array {
  const length = body.size + 12;
  return new Bytes().words(type, length).add(body.all()).words(length).all();
}

function side(name: string): Uint8Array {
  const ethernet = 1, wholePackets = 0, nanoseconds = 9;
  return block(1, new Bytes().words(ethernet, wholePackets).option(2, utf8.encode(name)).option(9, Uint8Array.of(nanoseconds)).words(0));
}

/** The head of a file. */
export function begin(mux: string): Uint8Array[] {
  const unknown = 0xffffffff;
  return [
    block(0x0a0d0d0a, new Bytes().words(0x1a2b3c4d, 1, unknown, unknown).option(4, utf8.encode("weir ui")).words(0)),
    side(`${mux} in`), side(`${mux} out`),
  ];
}

/** A packet of it. */
export function packet(p: CapturedPacketJson): Uint8Array {
  const frame = Uint8Array.from(atob(p.frame ?? ""), (c) => c.charCodeAt(0));
  const time = nanoseconds(p.time ?? "");
  const comment = utf8.encode((p.verdict ?? "") + (p.comment ? `: ${p.comment}` : ""));
  return block(6, new Bytes()
    .words(p.direction === "out" ? 1 : 0, Number(time >> 32n), Number(time & 0xffffffffn), frame.length, p.length ?? frame.length)
    .add(frame).option(1, comment).words(0));
}

/** A time of the API since 1970: it has more digits than a Date. */
function nanoseconds(time: string): bigint {
  const [whole = "", fraction = ""] = time.replace("Z", "").split(".");
  return BigInt(Math.round(Date.parse(`${whole}Z`) / 1000) || 0) * 1_000_000_000n + BigInt(fraction.padEnd(9, "0").slice(0, 9));
}
