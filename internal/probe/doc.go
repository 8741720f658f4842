// Package probe runs one health check of one backend, from the host to the backend itself: never
// through the VIP, never through the data plane.
//
// A TCP check succeeds when the connection opens. An HTTP check sends one GET over a connection of
// its own and succeeds when the answer's status is 2xx or 3xx and its body, up to a limit, arrives
// whole and in time; redirects are not followed. An HTTPS check does the same over TLS, whose certificate counts if the
// check names authorities. A gRPC check calls grpc.health.v1.Health and succeeds when it answers SERVING. A UDP check
// sends a datagram and succeeds when it is answered as expected, or at least not refused by ICMP. What failed is told in one short line that begins
// with the step: "connect 10.3.1.11:8080: connection refused", "GET /healthz: status 503".
package probe
