package multipath

import (
	"net/netip"
	"testing"

	"github.com/weirlb/weir/internal/lab/mptcp"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/testkit/mptcplab"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

// Muxes, agents, backends and hosts go while connections with two subflows are in use: none is lost, and all join from a third
// address behind it. The bench multipath has more scenarios.
func TestSubflowsOutliveChurn(t *testing.T) {
	t.Parallel() // beside one with a lab of its own
	lab := testlab.Up(t, netlab.Config{Plan: mptcplab.Plan("subflows", 3)})
	w, err := mptcplab.New(t.Context(), lab, 62, 3, 2)
	testlab.Must(t, err)
	t.Run("a path is cut", func(t *testing.T) { downloadOutlivesItsPath(t, w) })
	for _, s := range mptcplab.Churn() {
		if !s.Short {
			continue
		}
		o, err := w.Run(t.Context(), s, 10)
		testlab.Must(t, err)
		t.Logf("%+v", o)
		if !o.Right() {
			t.Errorf("%s: %d of %d connections and %d of %d subflows are lost, %d have joined behind it, %d joins came to the wrong server: %q",
				s.Name, o.Lost, o.Connections, o.SubflowLost, o.Subflows, o.Joined, o.Refused, o.Why)
		}
	}
}

// downloadOutlivesItsPath cuts the one of two paths that brings most.
func downloadOutlivesItsPath(t *testing.T, w *mptcplab.World) {
	cut, err := w.Cut(t.Context(), netip.AddrPortFrom(w.Service.VIPs[0], mptcp.Port))
	testlab.Must(t, err)
	t.Logf("%+v", cut)
	if cut.Gap > 10*cut.RTO {
		t.Errorf("%s of a download by two paths was cut: no data for %v; the server's timeout is %v", cut.Path, cut.Gap, cut.RTO)
	}
}
