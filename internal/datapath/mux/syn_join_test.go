package mux

import (
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
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

// capable is the SYN with an option before all others that begins a connection.
func capable(syn pkt.Packet) pkt.Packet {
	syn.Options = append([]layers.TCPOption{{OptionType: 30, OptionLength: 4, OptionData: []byte{1, 1}}}, syn.Options...)
	return syn
}

// TestJoinsAreForwarded has SYNs that join a connection of Multipath TCP go to a backend where others are answered: of
// endpoints with multipath alone, and within a limit, beyond which they are lost.
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
				"capable, then join": {capable(joins(client, vip, 12, 1)), multipath},
				"another length":     {joins(client, vip, 10, 1), false}, "another subtype": {joins(client, vip, 12, 0), false},
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
			after := verdicts(t, d)
			if got := after["forward_syn"] - before; float64(got) > most || got == 0 || got+after["drop_join_limited"] != flood {
				t.Errorf("%d of %d joins were forwarded, at most %.0f may be; then %v", got, flood, most, after)
			}
		}
	}
}

// TestJoinsHaveABucketForEachEndpoint has a flood of joins to one endpoint take nothing of another one's, whatever their ids.
func TestJoinsHaveABucketForEachEndpoint(t *testing.T) {
	spec, err := bpf.Sizes{Endpoints: 20_000}.Spec()
	if err != nil {
		t.Fatal(err)
	}
	if buckets, ids := spec.Maps[bpf.MuxMapJoinTats].MaxEntries, spec.Maps[bpf.MuxMapEndpointCounts].MaxEntries; buckets != ids || ids < 20_000 {
		t.Errorf("there are %d buckets for %d ids", buckets, ids)
	}
}
