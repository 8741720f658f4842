package snat

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/weirlb/weir/internal/lab/netns"
)

// What waited for a port leaves by an uplink that was made anew, whose index is another.
func TestASenderFollowsItsUplink(t *testing.T) {
	host := netns.New(t, fmt.Sprintf("wsender%d", os.Getpid()))
	network := netns.New(t, fmt.Sprintf("wsendernet%d", os.Getpid()))
	plug := func() error {
		return errors.Join(netns.Veth(host, "uplink", network, "host"),
			host.AddAddress("uplink", netip.MustParsePrefix("10.88.0.1/24"), netip.MustParsePrefix("fd88::1/64")),
			network.AddAddress("host", netip.MustParsePrefix("10.88.0.2/24"), netip.MustParsePrefix("fd88::2/64")))
	}
	if err := plug(); err != nil {
		t.Fatal(err)
	}
	var sender *Sender
	err := host.Do(func() (err error) { sender, err = (&Translator{uplink: "uplink"}).NewSender(); return err })
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	transmit := func() {
		t.Helper()
		for from, to := range map[string]string{"10.88.0.1": "10.88.0.2", "fd88::1": "fd88::2"} {
			packet := ipPacket(netip.MustParseAddr(from), netip.MustParseAddr(to), protocolUDP, []byte{0, 9, 0, 9, 0, 8, 0, 0})
			if err := host.Do(func() error { return sender.Transmit(netip.MustParseAddr(to), packet) }); err != nil {
				t.Errorf("to %s: %v", to, err)
			}
		}
	}
	transmit()
	if err := errors.Join(host.DeleteLink("uplink"), plug()); err != nil {
		t.Fatal(err)
	}
	transmit()
}
