package agent_test

import (
	"net/netip"
	"strings"
	"testing"
)

// TestDepart has a workload's host forget its connections, as another host knows nothing of those that a workload has
// brought along. Their clients wait, and the workload's answer finds its way once they were asked. A native one brings
// none along: what it says before its clients were asked would leave with the host's own address, and be refused.
func TestDepart(t *testing.T) {
	w := newOrderedWorld(t)
	all := w.silentConnections()
	dips := map[netip.Addr]bool{}
	for _, way := range w.ways() {
		dips[netip.MustParseAddr(way.dip)] = true
	}
	before := len(w.sessions())
	departed, err := w.datapath.EvacuateSessions(dips)
	w.must(err)
	if departed.Len() != len(all) || len(w.sessions()) != before-len(all) {
		t.Fatalf("%d connections departed of %d, and %d sessions are left of %d", departed.Len(), len(all), len(w.sessions()), before)
	}
	say := func(native bool) (n int) {
		for name, c := range all {
			if strings.HasPrefix(name, "native") == native {
				_, err := c.workload.Write([]byte("still there"))
				w.must(err)
				n++
			}
		}
		return n
	}
	moved := say(false)
	w.eventually("what workloads say is known to nobody", func() bool {
		verdicts, err := w.datapath.Verdicts()
		return err == nil && verdicts["pass_no_session"].Packets > uint64(moved)
	})
	if n := len(w.sessions()) + len(all) - before; n != 0 {
		t.Errorf("%d clients have spoken without being asked", n)
	}
	w.must(w.host.Do(departed.Ask))
	w.eventually("all clients have answered", func() bool { return len(w.sessions()) == before })
	say(true)
	buffer := make([]byte, 100)
	for name, c := range all {
		n, err := c.client.Read(buffer)
		if err != nil || string(buffer[:n]) != "still there" {
			t.Errorf("%s: the client got %q, %v", name, buffer[:n], err)
		}
	}
	w.wantNoOddTimestamps()
}
