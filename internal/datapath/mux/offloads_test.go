package mux

import (
	"testing"

	"github.com/safchain/ethtool"

	"github.com/weirlb/weir/internal/lab/netns"
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

// Each mode switches off the offloads that it can't work behind, and no others: generic XDP gets what the kernel
// merged, which it can't forward; native XDP sends frames without the tags that the driver took out.
func TestOffloadsAreSwitchedOff(t *testing.T) {
	for _, mode := range []Mode{Generic, Native} {
		t.Run(string(mode), func(t *testing.T) {
			p := newPlace(t)
			p.config.Mode = mode
			on := func() {
				for _, name := range []string{"gro", "rxvlan", "rx-vlan-stag-hw-parse"} {
					if _, err := p.ns.Run("ethtool", "-K", "eth0", name, "on"); err != nil {
						t.Fatal(err)
					}
				}
			}
			holds := func() {
				t.Helper()
				for name, want := range map[string]bool{"rx-gro": mode == Native, "rx-vlan-hw-parse": mode == Generic, "rx-vlan-stag-hw-parse": mode == Generic} {
					if got := offload(t, p.ns, name); got != want {
						t.Errorf("%s is on: %t", name, got)
					}
				}
			}
			on()
			_ = p.mustOpen(t).Close()
			holds()
			on() // a daemon that adopts what runs holds to it, whoever switched it on again
			_ = p.mustOpen(t).Close()
			holds()
		})
	}
}
