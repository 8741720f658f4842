package mux

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

const optionsRoom = 40

// The cookie is found behind any number of paddings, wherever these begin, and not behind the end of options. What other
// options carry is no padding.
func TestCookieIsFoundWhereverTimestampsStand(t *testing.T) {
	e := only(1)
	e.Cookies = model.CookiesOn
	d := newFilled(t, e)
	of := func(kind layers.TCPOptionKind, bytes int) []layers.TCPOption {
		return []layers.TCPOption{{OptionType: kind, OptionLength: uint8(bytes), OptionData: slices.Repeat([]byte{1}, bytes-2)}}
	}
	const multipath, timestampsBytes = 30, 10
	for _, before := range [][]layers.TCPOption{
		nil, of(layers.TCPOptionKindSACKPermitted, 2), of(layers.TCPOptionKindWindowScale, 3), of(multipath, 18), of(multipath, 20), of(multipath, 26), of(multipath, 28),
	} {
		length := 0
		for _, o := range before {
			length += int(o.OptionLength)
		}
		for paddings := 0; length+paddings+timestampsBytes <= optionsRoom; paddings++ {
			options := []func(*pkt.Packet){pkt.TCPOptions(before...), pkt.NOP(paddings), pkt.Timestamps(99, cookie(2))}
			check := func(what, want string, changes ...func(*pkt.Packet)) {
				t.Helper()
				if got := chosen(t, d, pkt.TCP(client4, vip4, pkt.ACK, changes...)); got != netip.MustParseAddr(want) {
					t.Errorf("%s behind %d bytes and %d paddings: sent to %s", what, length, paddings, got)
				}
			}
			check("timestamps", second, options...)
			if paddings > 0 {
				end := pkt.TCPOptions(layers.TCPOption{OptionType: layers.TCPOptionKindEndList, OptionLength: 1})
				options[1] = pkt.NOP(paddings - 1)
				check(fmt.Sprintf("timestamps and an end at %d", length+paddings-1), first, slices.Insert(options, 2, end)...)
			}
		}
	}
}
