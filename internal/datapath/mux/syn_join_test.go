package mux

import (
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// joins is a SYN with an option of Multipath TCP of that length and subtype, behind others.
func joins(client, vip string, length int, subtype byte) pkt.Packet {
	data := make([]byte, length-2)
	data[0] = subtype << 4
	return pkt.TCP(client, vip, pkt.SYN, pkt.MSS(1460), pkt.TCPOptions(
		layers.TCPOption{OptionType: layers.TCPOptionKindSACKPermitted, OptionLength: 2},
	), pkt.Timestamps(7, 0), pkt.NOP(1), pkt.TCPOptions(
		layers.TCPOption{OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{7}},
		layers.TCPOption{OptionType: 30, OptionLength: uint8(length), OptionData: data},
	))
}

// TestJoinsAreForwarded has SYNs that join a connection of Multipath TCP go to a backend where others are answered: of
// endpoints with multipath alone, and within a limit.
func TestJoinsAreForwarded(t *testing.T) {
	for vip, client := range map[string]string{vip4: client4, vip6: client6} {
		e := inMode(newEndpoint(vip, model.TCP, tunnel4), model.SYNCookiesAlways)
		for _, multipath := range []bool{true, false} {
			e.Multipath = multipath
			d := newFilled(t, e)
			if err := d.SetSYNSecrets(synSecrets(1)); err != nil {
				t.Fatal(err)
			}
			if err := d.Apply([]model.MuxEndpoint{e}, nil); err != nil {
				t.Fatal(err)
			}
			resolve(t, d)
			for name, c := range map[string]struct {
				syn  pkt.Packet
				want bool
			}{
				"join": {joins(client, vip, 12, 1), multipath}, "capable": {joins(client, vip, 4, 0), false}, "no option": {pkt.TCP(client, vip, pkt.SYN), false},
				"another length": {joins(client, vip, 10, 1), false}, "another subtype": {joins(client, vip, 12, 0), false},
			} {
				before := verdicts(t, d)
				run(t, d, c.syn.Frame())
				after := verdicts(t, d)
				if forwarded := after["forward_syn"] > before["forward_syn"]; forwarded != c.want || !forwarded && after["reply_syn"] == before["reply_syn"] {
					t.Errorf("%s to %s, multipath %v: %v, then %v", name, vip, multipath, before, after)
				}
			}
			if !multipath {
				continue
			}
			const flood = 5000
			began, frame, before := time.Now(), joins(client, vip, 12, 1).Frame(), verdicts(t, d)["forward_syn"]
			for range flood {
				run(t, d, frame)
			}
			most := 500 + 5000*time.Since(began).Seconds() + 100 // the clock is coarse
			if got := verdicts(t, d)["forward_syn"] - before; float64(got) > most || got == 0 {
				t.Errorf("%d of %d joins were forwarded, at most %.0f may be", got, flood, most)
			}
		}
	}
}
