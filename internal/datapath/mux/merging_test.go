package mux

import (
	"testing"

	"github.com/safchain/ethtool"

	"github.com/weirlb/weir/internal/testkit/netns"
)

// offload says whether the interface in the namespace has the offload on.
func offload(t *testing.T, ns *netns.NS, name string) (on bool) {
	t.Helper()
	err := ns.Do(func() error {
		tool, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer tool.Close()
		features, err := tool.Features("eth0")
		on = features[name]
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return on
}

// Generic XDP gets what the kernel merged, which it can't forward: so nothing is merged any more. Native XDP comes before.
func TestGenericModeStopsMerging(t *testing.T) {
	for _, mode := range []Mode{Generic, Native} {
		t.Run(string(mode), func(t *testing.T) {
			p := newPlace(t)
			p.config.Mode = mode
			if err := p.ns.SetOffload("eth0", netns.GRO, true); err != nil {
				t.Fatal(err)
			}
			d := p.mustOpen(t)
			if on := offload(t, p.ns, "rx-gro"); on != (mode == Native) {
				t.Errorf("rx-gro is on: %t", on)
			}
			_ = d.Close()
			// A daemon that adopts what runs holds to it, whoever switched it on again.
			if err := p.ns.SetOffload("eth0", netns.GRO, true); err != nil {
				t.Fatal(err)
			}
			_ = p.mustOpen(t).Close()
			if on := offload(t, p.ns, "rx-gro"); on != (mode == Native) {
				t.Errorf("rx-gro is on after a restart: %t", on)
			}
		})
	}
}
