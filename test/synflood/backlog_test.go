package synflood

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/flood"
	"github.com/weirlb/weir/internal/lab/load"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

const (
	slow     = least - 10 // SYNs a second: no flood to a mux
	slowTime = 16 * time.Second
)

// backlogs sets whether the workloads' stacks make SYN cookies, how many SYNs may wait there, and how often each is answered again.
func backlogs(t *testing.T, lab *netlab.Lab, cookies, size, retries string) {
	t.Helper()
	for _, n := range lab.Of(netlab.Workload) {
		ns, err := lab.NS(n.Name)
		testlab.Must(t, err)
		testlab.Must(t, ns.Sysctl("net.ipv4.tcp_syncookies", cookies))
		testlab.Must(t, ns.Sysctl("net.ipv4.tcp_max_syn_backlog", size))
		testlab.Must(t, ns.Sysctl("net.ipv4.tcp_synack_retries", retries))
	}
}

// fullBacklog floods a VIP so slowly that no mux sees a flood. The backlogs of its backends are full nonetheless: their hosts
// tell, the muxes answer SYNs with cookies, and clients that come meanwhile are served.
func fullBacklog(t *testing.T, lab *netlab.Lab) {
	backlogs(t, lab, "0", "8", "1")
	defer backlogs(t, lab, "1", "4096", "5")
	vip := vips[0]
	run, err := netload.StartLoad(t.Context(), lab, "client1", load.Config{
		URL: testlab.URL(vip), Rate: usual, Duration: time.Hour, Timeout: 30 * time.Second,
	})
	testlab.Must(t, err)
	told, before := len(testlab.Events(t, lab, "SYNCookiesOn")), answered(t, lab)
	r, err := netload.Flood(lab, "client2", flood.Config{Targets: []netip.AddrPort{netip.AddrPortFrom(vip, 80)}, Rate: slow, Duration: slowTime})
	testlab.Must(t, err)
	n := answered(t, lab) - before
	if t.Logf("%d of %d SYNs were answered with cookies", n, r.Packets); n < uint64(r.Packets/4) {
		t.Error("the backlogs were not relieved")
	}
	testlab.Must(t, netlab.Poll(t.Context(), testlab.Bound, func() error {
		lines := testlab.Events(t, lab, "SYNCookiesOn")
		if text := strings.Join(lines[min(told, len(lines)):], "\n"); !strings.Contains(text, "SYNs without an answer") {
			return fmt.Errorf("nobody was told of full backlogs: %q", lines)
		}
		return nil
	}))
	served, err := run.Stop()
	testlab.Must(t, err)
	testlab.Served(t, vip, served)
}
