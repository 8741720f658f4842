import { expect, test } from "@playwright/test";
import { roundTrip } from "../src/lib/format";
import { checkText } from "../src/lib/state";

test("round trips are means of the handshakes that were measured", () => {
  expect(roundTrip({})).toBe("");
  expect(roundTrip({ handshakes: ["0", "0"], handshakeTime: "0s" })).toBe("");
  for (const [handshakes, handshakeTime, want] of [[["4"], "0.000160s", "40 µs"], [["1", "3"], "0.006s", "1.5 ms"], [["2"], "0.300s", "150 ms"], [["0", "1"], "2.5s", "2.5 s"]] as const) {
    expect(roundTrip({ handshakes: [...handshakes], handshakeTime })).toBe(want);
  }
});

test("a health check is named by its type", () => {
  for (const [check, want] of [
    [{ http: {} }, "HTTP check /"], [{ https: { path: "/a" } }, "HTTPS check /a"], [{ grpc: {} }, "gRPC check"], [{ grpc: { service: "s" }, port: 5 }, "gRPC check s on port 5"],
    [{ udp: {} }, "UDP check"], [{ tcp: {} }, "TCP check"], [{}, "health check"],
  ] as const) {
    expect(checkText(check)).toBe(want);
  }
});
