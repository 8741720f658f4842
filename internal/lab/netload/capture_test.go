package netload

import (
	"net"
	"testing"

	"golang.org/x/net/bpf"

	"github.com/weirlb/weir/internal/pkt"
)

func TestCaptureCountsVIPsOnly(t *testing.T) {
	for _, c := range []struct {
		name                  string
		source, destination   string
		fromAVIP, towardsAVIP bool
	}{
		{"reply", "203.0.113.10", "10.0.1.2", true, false},
		{"request", "10.0.1.2", "203.0.113.10", false, true},
		{"reply v6", "2001:db8:113::10", "fd00:0:1::2", true, false},
		{"request v6", "fd00:0:1::2", "2001:db8:113::10", false, true},
		{"neighbours of the VIPs", "203.0.112.10", "203.0.114.10", false, false},
		{"neighbours of the VIPs, v6", "2001:db8:112::10", "2001:db8:114::10", false, false},
	} {
		frame := pkt.TCP(net.JoinHostPort(c.source, "1"), net.JoinHostPort(c.destination, "2"), pkt.SYN).Frame()
		for field, want := range map[addressField]bool{sourceField: c.fromAVIP, destinationField: c.towardsAVIP} {
			machine, err := bpf.NewVM(vipFilter(field))
			if err != nil {
				t.Fatal(err)
			}
			n, err := machine.Run(frame)
			if err != nil || (n > 0) != want {
				t.Errorf("%s, field at %d: let through %d, %v; want %v", c.name, field.v4, n, err, want)
			}
		}
	}
}
