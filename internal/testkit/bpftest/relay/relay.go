// Package relay stands for a mux in the agent's tests: it encapsulates what is for a VIP, and
// leaves offloads as they are, which XDP can't. For tests only.
package relay

import (
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weirlb/weir/internal/datapath/abi"
)

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package relay relay bpf/relay.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -I../../../../bpf -I../../../../bpf/include

// Relay runs at the ingress of one interface.
type Relay struct {
	objects relayObjects
	link    link.Link
	unclone io.Closer // nil if buffers are as they come
	to      int
}

// Attach starts a relay from the ingress of one interface to another one, in the calling thread's
// network namespace.
func Attach(from, to int) (*Relay, error) {
	r := &Relay{to: to}
	if err := loadRelayObjects(&r.objects, nil); err != nil {
		return nil, fmt.Errorf("load relay: %w", err)
	}
	attached, err := link.AttachTCX(link.TCXOptions{
		Interface: from, Program: r.objects.Relay, Attach: ebpf.AttachTCXIngress,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach relay: %w", err), r.objects.Close())
	}
	r.link = attached
	return r, nil
}

// Send has packets for vip encapsulated from source to tunnel, out of the relay's other interface.
func (r *Relay) Send(vip, source, tunnel netip.Addr) error {
	way := relayWay{
		Source: toAddress(source), Tunnel: toAddress(tunnel), Interface: uint32(r.to),
	}
	if err := r.objects.Ways.Put(toAddress(vip), way); err != nil {
		return fmt.Errorf("set way of %s: %w", vip, err)
	}
	return nil
}

// Pass has packets to an address go on as they are, out of another interface. On the way they are encapsulated as Send does,
// from source to the address itself, and decapsulated: they cost the relay what those cost that Send encapsulates.
func (r *Relay) Pass(address, source netip.Addr, to int) error {
	way := relayWay{Source: toAddress(source), Tunnel: toAddress(address), Interface: uint32(to), Bare: 1}
	if err := r.objects.Ways.Put(toAddress(address), way); err != nil {
		return fmt.Errorf("set way of %s: %w", address, err)
	}
	return nil
}

// SendGUE does as Send, but in GUE, out of any interface, and has the tunnel's host ask after the
// backend behind other, if that is valid.
func (r *Relay) SendGUE(vip, source, tunnel, other netip.Addr, to int) error {
	way := relayWay{
		Source: toAddress(source), Tunnel: toAddress(tunnel), Other: toAddress(other), Interface: uint32(to), Gue: 1,
	}
	if err := r.objects.Ways.Put(toAddress(vip), way); err != nil {
		return fmt.Errorf("set way of %s: %w", vip, err)
	}
	return nil
}

// Silence has SYNs for vip, which Send knows, go nowhere: somebody else answers them.
func (r *Relay) Silence(vip netip.Addr) error {
	return r.change(vip, func(w *relayWay) { w.Silent = 1 })
}

// Verify has packets for vip, which Send or SendGUE knows, come as from a NIC that has verified so many of their checksums,
// two at most and from the outermost on, if they were not left to an interface to fill in.
func (r *Relay) Verify(vip netip.Addr, checksums int) error {
	return r.change(vip, func(w *relayWay) { w.Verified = uint32(checksums) })
}

func (r *Relay) change(vip netip.Addr, how func(*relayWay)) error {
	var way relayWay
	if err := r.objects.Ways.Lookup(toAddress(vip), &way); err != nil {
		return fmt.Errorf("find way of %s: %w", vip, err)
	}
	how(&way)
	if err := r.objects.Ways.Put(toAddress(vip), way); err != nil {
		return fmt.Errorf("set way of %s: %w", vip, err)
	}
	return nil
}

// Unclone has buffers that come by an interface be no clones of what their sender keeps, as from a NIC.
func (r *Relay) Unclone(from int) (err error) {
	r.unclone, err = attachFirst(from, r.objects.Unclone)
	return err
}

// Lose has one in fifty of the buffers with data that come by an interface be lost, until the link is
// closed.
func (r *Relay) Lose(from int) (io.Closer, error) { return attachFirst(from, r.objects.Lose) }

func attachFirst(from int, program *ebpf.Program) (io.Closer, error) {
	attached, err := link.AttachTCX(link.TCXOptions{
		Interface: from, Program: program, Attach: ebpf.AttachTCXIngress, Anchor: link.Head(),
	})
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", program, err)
	}
	return attached, nil
}

// Close stops the relay.
func (r *Relay) Close() error {
	var err error
	if r.unclone != nil {
		err = r.unclone.Close()
	}
	return errors.Join(err, r.link.Close(), r.objects.Close())
}

func toAddress(a netip.Addr) relayAddress { return relayAddress{Words: abi.Words(a)} }
