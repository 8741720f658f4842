package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/datapath/overlay"
	"github.com/weirlb/weir/internal/fbt"
	inlab "github.com/weirlb/weir/internal/lab/overlay"
	"github.com/weirlb/weir/internal/pkt"
)

const (
	vni    = 100 // of acme
	drop   = 2   // TC_ACT_SHOT
	headAt = 14 + 20 + 30 + 20
)

// programs are those of a host of the lab, which packets of ours are run through.
type programs struct {
	folder string
	in     *ebpf.Program // what comes by the uplink
	out    *ebpf.Program // what leaves by it
}

func (w *world) programs(host string) (p programs, err error) {
	p.folder = w.PinPath(host) + "-networks"
	for name, to := range map[string]**ebpf.Program{"from_underlay": &p.in, "to_underlay": &p.out} {
		live, err := link.LoadPinnedLink(filepath.Join(p.folder, "live", name), nil)
		if err != nil {
			return p, err
		}
		info, err := live.Info()
		if err := errors.Join(err, live.Close()); err != nil {
			return p, err
		}
		if *to, err = ebpf.NewProgramFromID(info.Program); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (p programs) close() { _, _ = p.in.Close(), p.out.Close() }

// key is the newest one of FBTs to the host, as its programs have it.
func (p programs) key() (newest fbt.Key, err error) {
	table, err := ebpf.LoadPinnedMap(filepath.Join(p.folder, "live", "fbt_keys"), nil)
	if err != nil {
		return newest, err
	}
	defer table.Close()
	value, err := table.LookupBytes(uint32(0))
	if err != nil {
		return newest, err
	}
	const size = 24 // struct fbt_key
	for ; len(value) >= size; value = value[size:] {
		if id := binary.NativeEndian.Uint32(value[16:]); id > newest.ID {
			newest = fbt.Key{ID: id, Secret: [16]byte(value)}
		}
	}
	if newest.ID == 0 {
		return newest, errors.New("the host has no keys of FBTs")
	}
	return newest, nil
}

// view reads the host's tables.
func (p programs) view() (*overlay.View, error) { return overlay.OpenView(p.folder) }

// path is where packets of an attached VIP go.
type path struct {
	mux, host, tunnel netip.Addr // of a mux, of the clients' host, of the server's
	backend           netip.AddrPort
}

func (w *world) path(server programs) (at path, err error) {
	view, err := server.view()
	if err != nil {
		return at, err
	}
	for _, r := range view.Rules() {
		if r.Service.Addr() == inlab.Service4 {
			at.tunnel, at.backend = r.Tunnel, r.Backend
		}
	}
	mux, failed := w.Node("mux1")
	host, failed2 := w.Node("chost1")
	at.mux, at.host = mux.IPv4, host.IPv4
	if !at.tunnel.IsValid() {
		err = fmt.Errorf("%s has no backend of the VIP", server.folder)
	}
	return at, errors.Join(err, failed, failed2, view.Close())
}

// vip is the VIP's port in the network.
var vip = netip.AddrPortFrom(inlab.VIP4, 80)

// carry puts a segment into VXLAN from an address to another one.
func carry(p pkt.Packet, from, to netip.Addr) []byte {
	v := pkt.VXLAN{VNI: vni, SourcePort: 50000, Outer: pkt.IP{Source: from, Destination: to, TTL: 64}}
	return v.Frame(p)
}

// withRoom has room for an FBT.
func withRoom(p *pkt.Packet) {
	pkt.TCPOptions(layers.TCPOption{OptionType: fbt.Kind, OptionLength: fbt.Length, OptionData: make([]byte, fbt.Length-2)})(p)
}

// numbers sets the sequence numbers of a segment in VXLAN.
func numbers(frame []byte, seq, ack uint32) {
	binary.BigEndian.PutUint32(frame[headAt+4:], seq)
	binary.BigEndian.PutUint32(frame[headAt+8:], ack)
}

// option puts an FBT into a segment, as the mux of a client's packet would.
func (at path) option(frame []byte, key fbt.Key, client netip.AddrPort, seq uint32) {
	option := fbt.Encode(key, fbt.Segment{Outer: at.tunnel, Client: client, VIP: vip, Seq: seq}, fbt.Content{VNI: vni, Host: at.host})
	copy(frame[headAt+20:], option[:])
}

// run runs a program, and says whether it took the packet.
func run1(program *ebpf.Program, frame []byte) (taken bool, err error) {
	action, err := program.Run(&ebpf.RunOptions{Data: frame})
	return action != drop, err
}
