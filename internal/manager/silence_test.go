package manager

import (
	"strings"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// A host whose agent goes without a word leaves the buckets, and is back with its first report.
func TestBackendsOfASilentHostAreTakenOut(t *testing.T) {
	url, _ := start(t, Config{}, func(m *Manager) { m.lifecycle.Silence = 50 * time.Millisecond })
	client := dial(t, url)
	startHost(t, url, "host1", "10.2.1.2")
	said := health(t, strings.Fields("TCP 203.0.113.10:80 10.3.2.11:8080 healthy"))
	buckets := func(of int) (string, uint32) {
		r, err := client.GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: "shop"})
		if err != nil {
			return err.Error(), 0
		}
		s := r.Vip.Endpoints[0].Backends[of].Status
		return s.Health + " " + s.Reason, s.Buckets
	}
	t.Run("while it is there", func(t *testing.T) {
		host2 := startHost(t, url, "host2", "10.2.2.2")
		eventually(t, "both are connected", func() bool { return nodes(t, client) == 2 })
		apply(t, url, shop())
		if err := host2.report(said); err != nil {
			t.Fatal(err)
		}
		eventually(t, "its backend has all buckets", func() bool { _, n := buckets(1); return n == 256 })
	})
	eventually(t, "its backend is unhealthy for want of a word", func() bool {
		why, _ := buckets(1)
		return why == "unhealthy no word from the agent of host2"
	})
	host2 := startHost(t, url, "host2", "10.2.2.2")
	eventually(t, "it is connected", func() bool { return nodes(t, client) == 2 })
	if err := host2.report(said); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its backend has all buckets again", func() bool { _, n := buckets(1); return n == 256 })
}
