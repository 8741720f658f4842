package xdp_test

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/hardware/xdp/bpf"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/testkit/switchlab"
)

// table opens a table of the switch behind its driver's back.
func table(t *testing.T, ns *netns.NS, name string) *ebpf.Map {
	t.Helper()
	link, err := ns.Netlink().LinkByName(switchlab.ClientPort)
	must(t, err)
	program, err := ebpf.NewProgramFromID(ebpf.ProgramID(link.Attrs().Xdp.ProgId))
	must(t, err)
	defer program.Close()
	info, err := program.Info()
	must(t, err)
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		must(t, err)
		about, err := m.Info()
		must(t, err)
		if about.Name == name {
			t.Cleanup(func() { must(t, m.Close()) })
			return m
		}
		must(t, m.Close())
	}
	t.Fatalf("the switch has no table %s", name)
	return nil
}

func removeByHand(t *testing.T, ns *netns.NS, vip netip.Addr) {
	t.Helper()
	must(t, table(t, ns, bpf.SwitchMapHosts).Delete(bpf.SwitchAddress{Words: abi.Words(vip)}))
}
