package healthcheck

import (
	"strings"
	"testing"
	"time"
)

// What is wrong with checks is told by field.
func TestInvalidChecks(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*HealthCheck)
		want  string // begin of the one problem; empty: there is none
	}{
		{"https", func(*HealthCheck) {}, ""},
		{"too often", func(c *HealthCheck) { c.Interval, c.Timeout = time.Millisecond, time.Millisecond }, "c.interval: must be at least 500ms with TLS"},
		{"no PEM", func(c *HealthCheck) { c.TLS.CA = "mine" }, "c.https.tls.ca: must be certificates in PEM"},
		{"a key", func(c *HealthCheck) {
			c.TLS.CA = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
		}, "c.https.tls.ca: must be certificates alone"},
		{"long", func(c *HealthCheck) { c.TLS.CA = strings.Repeat("x", 4097) }, "c.https.tls.ca: must be at most 4096 bytes"},
		{"a name of two", func(c *HealthCheck) { c.TLS.ServerName = "a b" }, "c.https.tls.serverName: must be a name"},
		{"no TLS", func(c *HealthCheck) { c.TLS.On = false }, "c: TLS is for https and grpc"},
		{"gRPC", func(c *HealthCheck) {
			*c = HealthCheck{Type: GRPC, Service: "a b", Interval: 1, Timeout: 1, Rise: 1, Fall: 1}
		}, "c.grpc.service: must be printable"},
		{"odd", func(c *HealthCheck) {
			*c = HealthCheck{Type: UDP, Send: "hex:123", Interval: 1, Timeout: 1, Rise: 1, Fall: 1}
		}, "c.udp.send: must have an even number"},
		{"of another", func(c *HealthCheck) { c.Service = "a" }, "c: has what is for another type of check than https"},
	} {
		check := HealthCheck{Type: HTTPS, Path: "/", TLS: TLS{On: true}, Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1}
		c.spoil(&check)
		got := check.Problems("c")
		if c.want == "" && len(got) == 0 {
			continue
		}
		if len(got) != 1 || c.want == "" || !strings.HasPrefix(got[0].Field+": "+got[0].Reason, c.want) {
			t.Errorf("%s: %q, want %s", c.name, got, c.want)
		}
	}
}
