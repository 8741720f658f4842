package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/agent"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// sessionPath is the agent's data plane with sessions that came by IP-in-IP.
type sessionPath struct {
	datapath *agent.Datapath
	in, out  *ebpf.Program
	rng      *rand.Rand
	acks     [][]byte // of each session
	answers  [][]byte
}

func newSessionPath(ns *netns.NS, sessions int) (_ *sessionPath, err error) {
	if err := ns.AddAddress("uplink", netip.MustParsePrefix(backendPrefix)); err != nil {
		return nil, err
	}
	pins := fmt.Sprintf("/sys/fs/bpf/weir-bench-session-%d", os.Getpid())
	s := &sessionPath{rng: rand.New(rand.NewPCG(3, 4))}
	if s.datapath, err = agent.Open(agent.Config{Uplink: "uplink", PinPath: pins}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.datapath.Unload())
		}
	}()
	end := netip.MustParseAddrPort
	rule := model.HostBackend{
		Endpoint: model.EndpointKey{VIP: end(service).Addr(), Protocol: model.TCP, Port: end(service).Port()},
		Tunnel:   netip.MustParseAddr(tunnel), Backend: end(backend),
	}
	err = errors.Join(
		s.datapath.SetMuxes([]netip.Prefix{netip.MustParsePrefix(mux + "/32")}), s.datapath.Replace([]model.HostBackend{rule}),
		s.datapath.SetWorkloads(map[netip.Addr]int{end(backend).Addr(): 0}, nil))
	if err != nil {
		return nil, err
	}
	if s.in, err = attached(filepath.Join(pins, "live", "from_uplink")); err != nil {
		return nil, err
	}
	if s.out, err = attached(filepath.Join(pins, "live", "to_uplink")); err != nil {
		return nil, err
	}
	return s, s.connect(sessions)
}

const backendPrefix = tunnel + "/24"

// connect opens connections of so many clients.
func (s *sessionPath) connect(clients int) error {
	outer := pkt.IP{Source: netip.MustParseAddr(mux), Destination: netip.MustParseAddr(tunnel), TTL: 64, DontFragment: true}
	payload := pkt.Payload(make([]byte, 128))
	toUs := func(p pkt.Packet) []byte {
		p.Destination = pkt.MAC{}
		return p.Frame()
	}
	for i := range clients {
		from := clientAt(i).String()
		in := func(flags pkt.Flags) []byte { return toUs(pkt.TCP(from, service, flags, payload).Inside(outer)) }
		ack, answer := in(pkt.ACK), toUs(pkt.TCP(backend, from, pkt.ACK, payload))
		for _, step := range []struct {
			program *ebpf.Program
			frame   []byte
		}{{s.in, in(pkt.SYN)}, {s.out, toUs(pkt.TCP(backend, from, pkt.SYN|pkt.ACK))}, {s.in, ack}, {s.out, answer}} {
			if _, err := step.program.Run(&ebpf.RunOptions{Data: step.frame}); err != nil {
				return err
			}
		}
		s.acks, s.answers = append(s.acks, ack), append(s.answers, answer)
	}
	return nil
}

func (s *sessionPath) programs() (in, out *ebpf.Program) { return s.in, s.out }

func (s *sessionPath) packets() (in, out [][]byte) {
	for range burst {
		i := s.rng.IntN(len(s.acks))
		in, out = append(in, s.acks[i]), append(out, s.answers[i])
	}
	return in, out
}

func (s *sessionPath) close() {
	if err := s.datapath.Unload(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
