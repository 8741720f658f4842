package mux

import (
	"bytes"
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

// cutJoin puts the first 8 bytes of a join's option in the place of the last of 12 bytes of padding: hosts read none, so it is to be
// treated as other SYNs, of which those are dropped whose options contradict themselves.
func cutJoin(t *testing.T, frame []byte) []byte {
	t.Helper()
	at := bytes.Index(frame, bytes.Repeat([]byte{1}, 12))
	if at < 0 {
		t.Fatal("the frame has no padding")
	}
	copy(frame[at+4:], []byte{30, 12, 1 << 4, 0, 0xab, 0xad, 0x1d, 0xea})
	return frame
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
			joined := "reply_syn"
			if multipath {
				joined = "forward_syn"
			}
			for name, c := range map[string]struct {
				frame []byte
				want  string
			}{
				"join":                      {joins(client, vip, 12, 1).Frame(), joined},
				"capable":                   {joins(client, vip, 4, 0).Frame(), "reply_syn"},
				"no option":                 {pkt.TCP(client, vip, pkt.SYN).Frame(), "reply_syn"},
				"capable, then join":        {capable(joins(client, vip, 12, 1)).Frame(), joined},
				"another length":            {joins(client, vip, 10, 1).Frame(), "reply_syn"},
				"another subtype":           {joins(client, vip, 12, 0).Frame(), "reply_syn"},
				"cut off":                   {cutJoin(t, pkt.TCP(client, vip, pkt.SYN, pkt.NOP(12)).Frame()), "drop_syn"},
				"cut off, the rest is data": {cutJoin(t, pkt.TCP(client, vip, pkt.SYN, pkt.NOP(12), pkt.Payload(make([]byte, 8))).Frame()), "drop_syn"},
			} {
				before := verdicts(t, d)
				run(t, d, c.frame)
				if after := verdicts(t, d); after[c.want] != before[c.want]+1 {
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
