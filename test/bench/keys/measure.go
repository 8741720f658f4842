package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/multipath"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/testkit/turns"
)

const (
	burst   = 20_011 // packets; odd, so that bursts begin at all flows in turn
	bursts  = 61
	buckets = 65536
	xdpTX   = 3
	outer   = 20
	hint    = 12
)

// secret is of both runs: what is chosen must be the same in each.
var secret = [2]uint64{0x0706050403020100, 0x0f0e0d0c0b0a0908}

// packets is what a class of packets takes.
type packets struct {
	Class string  `json:"class"`
	Flows int     `json:"flows"`
	Nanos float64 `json:"ns"`    // the best burst's
	Ratio float64 `json:"ratio"` // the median of bursts to those of the floor beside them
}

// class is packets, and the program that chooses their server.
type class struct {
	name    string
	program func(*keysObjects) *ebpf.Program
	packet  pkt.Packet
}

func classes() []class {
	option := func(data ...byte) layers.TCPOption {
		return layers.TCPOption{OptionType: layers.TCPOptionKindMultipathTCP, OptionLength: uint8(2 + len(data)), OptionData: data}
	}
	// As Linux writes them: in a join's SYN 12 bytes take the place of 4.
	syn := func(last layers.TCPOption) pkt.Packet {
		return pkt.TCP("10.0.0.0:40000", "203.0.113.10:80", pkt.SYN, pkt.MSS(1460), pkt.TCPOptions(
			layers.TCPOption{OptionType: layers.TCPOptionKindSACKPermitted, OptionLength: 2},
			layers.TCPOption{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: make([]byte, 8)},
			layers.TCPOption{OptionType: layers.TCPOptionKindNop},
			layers.TCPOption{OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{7}},
			last,
		), pkt.Payload(make([]byte, 24))) // the harness reads all that options may be
	}
	capable, join := syn(option(1, 1)), syn(option(1<<4, 2, 0x12, 0x34, 0x56, 0x78, 7, 7, 7, 7))
	return []class{
		{"floor", func(o *keysObjects) *ebpf.Program { return o.KeysFloor }, capable},
		{"syn", func(o *keysObjects) *ebpf.Program { return o.KeysTuple }, capable},
		{"capable", func(o *keysObjects) *ebpf.Program { return o.KeysCapable }, capable},
		{"join", func(o *keysObjects) *ebpf.Program { return o.KeysJoin }, join},
	}
}

// load loads the programs, and fills the table of servers.
func load(flows int, keep bool) (*keysObjects, []uint32, error) {
	spec, err := loadKeys()
	if err != nil {
		return nil, nil, err
	}
	for name, value := range map[string]any{"cfg_secret": secret, "cfg_flows": uint32(flows), "cfg_keep": keep} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	o := &keysObjects{}
	if err := spec.LoadAndAssign(o, nil); err != nil {
		return nil, nil, fmt.Errorf("load the programs: %w", err)
	}
	draw := rand.New(rand.NewPCG(1, 1))
	rows, servers := make([]uint32, buckets), make([]uint32, buckets)
	for i := range rows {
		rows[i], servers[i] = uint32(i), draw.Uint32()
	}
	if _, err := o.Servers.BatchUpdate(rows, servers, nil); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("fill the table of servers: %w", err), o.Close())
	}
	return o, servers, nil
}

// check holds the programs to the algorithm: which server a packet goes to.
func check() error {
	o, servers, err := load(1, true)
	if err != nil {
		return err
	}
	defer o.Close()
	for _, c := range classes() {
		options := &ebpf.RunOptions{Data: c.packet.Frame(), DataOut: make([]byte, 256)}
		if action, err := c.program(o).Run(options); err != nil || action != xdpTX {
			return fmt.Errorf("run %s: action %d, %w", c.name, action, err)
		}
		out := options.DataOut[14:]
		server := binary.NativeEndian.Uint32(out[16:])
		var token multipath.Token
		switch c.name {
		case "capable":
			token = multipath.TokenOf([8]byte(out[outer:]))
		case "join":
			token = 0x12345678
		default:
			continue
		}
		if want := servers[uint32(token)%buckets]; server != want {
			return fmt.Errorf("run %s: it goes to %08x, and the token's server is %08x", c.name, server, want)
		}
	}
	return nil
}

func measure() ([]packets, error) {
	if err := check(); err != nil {
		return nil, err
	}
	if err := turns.Pin(0); err != nil {
		return nil, err
	}
	var all []packets
	for _, flows := range []int{1, 1_000_000} {
		measured, err := measureFlows(flows)
		if err != nil {
			return nil, err
		}
		all = append(all, measured...)
	}
	return all, nil
}

// measureFlows has bursts of all classes take turns.
func measureFlows(flows int) ([]packets, error) {
	o, _, err := load(flows, false)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	kinds := classes()
	nanos, ratios := make([][]float64, len(kinds)), make([][]float64, len(kinds))
	for range bursts {
		var floor float64
		for i, c := range kinds {
			took, err := c.time(o)
			if err != nil {
				return nil, err
			}
			if i == 0 {
				floor = took
			}
			nanos[i], ratios[i] = append(nanos[i], took), append(ratios[i], took/floor)
		}
	}
	var all []packets
	for i, c := range kinds {
		slices.Sort(ratios[i])
		all = append(all, packets{Class: c.name, Flows: flows, Nanos: slices.Min(nanos[i]), Ratio: ratios[i][bursts/2]})
	}
	return all, nil
}

// time is ns of a packet in a burst.
func (c class) time(o *keysObjects) (float64, error) {
	action, took, err := c.program(o).Benchmark(c.packet.Frame(), burst, nil)
	if err != nil {
		return 0, fmt.Errorf("run %s: %w", c.name, err)
	}
	if action != xdpTX {
		return 0, fmt.Errorf("run %s: action %d", c.name, action)
	}
	return float64(took) / float64(time.Nanosecond), nil
}
