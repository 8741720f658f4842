package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/weirlb/weir/internal/datapath/overlay"
	inlab "github.com/weirlb/weir/internal/lab/overlay"
	"github.com/weirlb/weir/internal/pkt"
)

// measureForged runs forged packets through the programs of the server's host, SYNs with FBTs and a mux's address, and of
// the clients' host, SYN-ACKs with the server's address for a handshake that goes on.
func (w *world) measureForged(ctx context.Context, how options, to *report) error {
	rng := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	options, err := w.forgeOptions(ctx, rng, how.forgeries)
	if err != nil {
		return fmt.Errorf("options: %w", err)
	}
	answers, err := w.forgeAnswers(ctx, rng, how.forgeries)
	if err != nil {
		return fmt.Errorf("SYN-ACKs: %w", err)
	}
	to.add("forged-taken", float64(options+answers), 0)
	return nil
}

// forgeOptions returns how many SYNs with a forged FBT were taken.
func (w *world) forgeOptions(ctx context.Context, rng *rand.Rand, forgeries int) (taken int, err error) {
	p, err := w.programs(server)
	if err != nil {
		return 0, err
	}
	defer p.close()
	at, err := w.path(p)
	if err != nil {
		return 0, err
	}
	key, err := p.key()
	if err != nil {
		return 0, err
	}
	client := netip.MustParseAddrPort("192.168.200.1:40000")
	right := carry(pkt.TCP(client.String(), vip.String(), pkt.SYN, withRoom), at.mux, at.tunnel)
	numbers(right, isn, 0)
	at.option(right, key, client, isn)
	frame := bytes.Clone(right)
	for n := range forgeries {
		if n%1000 == 0 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		copy(frame, right)
		// Each has the right host, network and key's number; half of them a guess of the MAC, half one of another segment.
		if n%2 == 0 {
			binary.BigEndian.PutUint32(frame[headAt+20+12:], rng.Uint32())
		} else {
			binary.BigEndian.PutUint32(frame[headAt+4:], isn+1+uint32(n))
		}
		got, err := run1(p.in, frame)
		if err != nil {
			return 0, err
		}
		if got && !bytes.Equal(frame, right) {
			taken++
		}
	}
	if got, err := run1(p.in, right); err != nil || !got {
		return 0, errors.Join(err, errors.New("the right one is not taken"))
	}
	return taken, nil
}

// forgeAnswers returns how many forged SYN-ACKs were taken.
func (w *world) forgeAnswers(ctx context.Context, rng *rand.Rand, forgeries int) (taken int, err error) {
	p, err := w.programs("chost1")
	if err != nil {
		return 0, err
	}
	defer p.close()
	host, err := w.programs(server)
	if err != nil {
		return 0, err
	}
	defer host.close()
	at, err := w.path(host)
	if err != nil {
		return 0, err
	}
	client, err := w.halfOpen(ctx)
	if err != nil {
		return 0, err
	}
	frame := carry(pkt.TCP(vip.String(), client.String(), pkt.SYN|pkt.ACK), at.tunnel, at.host)
	for n := range forgeries {
		if n%1000 == 0 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		numbers(frame, rng.Uint32(), rng.Uint32())
		got, err := run1(p.in, frame)
		if err != nil {
			return 0, err
		}
		if got {
			taken++
		}
	}
	f, err := flowOf(p, client)
	if err != nil {
		return 0, err
	}
	if f.State != overlay.FlowHalfOpen {
		taken++
	}
	numbers(frame, 1, f.ClientNext)
	if got, err := run1(p.in, frame); err != nil || !got {
		return 0, errors.Join(err, errors.New("the right one is not taken"))
	}
	if f, err = flowOf(p, client); err != nil || f.State != overlay.FlowDirect {
		return 0, errors.Join(err, errors.New("nothing is learnt by the right one"))
	}
	return taken, nil
}

// halfOpen has a client begin a handshake that its server does not see.
func (w *world) halfOpen(ctx context.Context) (client netip.AddrPort, err error) {
	if err := w.Silence(server); err != nil {
		return client, err
	}
	defer func() { err = errors.Join(err, w.Restore(server)) }()
	n, err := w.Node("acme1")
	if err != nil {
		return client, err
	}
	ns, err := w.NS("acme1")
	if err != nil {
		return client, err
	}
	client = netip.AddrPortFrom(n.IPv4, 45000)
	err = ns.Do(func() error {
		c, err := (&net.Dialer{Timeout: time.Second / 2, LocalAddr: net.TCPAddrFromAddrPort(client)}).DialContext(ctx, "tcp", netip.AddrPortFrom(inlab.VIP4, 80).String())
		if err == nil {
			return errors.Join(c.Close(), errors.New("the server has answered"))
		}
		return nil
	})
	return client, err
}

func flowOf(p programs, client netip.AddrPort) (overlay.Flow, error) {
	view, err := p.view()
	if err != nil {
		return overlay.Flow{}, err
	}
	defer view.Close()
	flows, err := view.Flows()
	for _, f := range flows {
		if f.Client == client {
			return f, err
		}
	}
	return overlay.Flow{}, errors.Join(err, fmt.Errorf("%s has no flow", client))
}
