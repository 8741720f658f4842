package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/mux"
)

// connectionRates is figure 14 of NGLB's paper: how many connections a second begin for half a minute, and the mux refuses
// none. All of them live on, as the paper's do. A bypassed one needs no row; one of full NAT has its row for its life.
type connectionRates struct {
	Rows    int     `json:"rows"` // of full NAT
	Filled  int     `json:"rows_filled"`
	Seconds float64 `json:"seconds"`
	Bypass  float64 `json:"bypass_per_second"`
	FullNAT float64 `json:"full_nat_per_second"`
	Tries   int     `json:"full_nat_tries"`
	Ratio   float64 `json:"ratio"`
	CPU     muxCPU  `json:"cpu"`
}

// muxCPU is figure 16: the time that the mux's programs take for a connection, of which 20 packets pass the mux with full
// NAT, at a rate of the paper's: medians of turns.
type muxCPU struct {
	Rate    float64 `json:"connections_per_second"`
	Bypass  float64 `json:"bypass_ns"`
	FullNAT float64 `json:"full_nat_ns"`
	Ratio   float64 `json:"ratio"`
	Low     float64 `json:"ratio_low"` // quartiles
	High    float64 `json:"ratio_high"`
}

const (
	// The paper's mux took 5 000 connections a second for 30 s with full NAT, and not 10 000: it has more than 150 000
	// rows, and less than 300 000. Between are these.
	connectionRows = 1 << 18
	connectionsFor = 30 * time.Second
	connectionTick = 100 * time.Millisecond
	connectionStep = 4096    // connections of a step while the table is filled
	moreFlows      = 1 << 30 // than there are connections in a run
	fewerEachTry   = 0.98
	mostTries      = 4

	cpuRate     = 10_000
	cpuTurns    = 12
	cpuTurn     = time.Second / 2
	cpuTick     = time.Millisecond
	cpuRequests = 9 // with their answers behind SYN and SYN-ACK
)

// ends is a mux attached to a veth, on whose other end are all clients and backends.
type ends struct {
	world *world
	*harness
	near int
}

// measureConnections runs clients, mux and backends on one core.
func measureConnections(core *core) (r connectionRates, err error) {
	w, err := openWorld(mux.Config{MaxNATSessions: connectionRows})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := w.fillWith(tables(0), nil); err != nil {
		return r, err
	}
	h, err := w.load(v4, moreFlows, false)
	if err != nil {
		return r, err
	}
	defer h.Close()
	r.Seconds = connectionsFor.Seconds()
	err = w.ns.Do(func() error {
		if err := core.take(); err != nil {
			return err
		}
		near, far, _, err := vethPair()
		if err != nil {
			return err
		}
		for index, program := range map[int]*ebpf.Program{near: h.Ends, far: h.Whole} {
			attached, err := link.AttachXDP(link.XDPOptions{Program: program, Interface: index, Flags: link.XDPDriverMode})
			if err != nil {
				return err
			}
			defer attached.Close()
		}
		e := &ends{world: w, harness: h, near: near}
		if err := e.measureFullNAT(&r); err != nil {
			return fmt.Errorf("connect with full NAT: %w", err)
		}
		if err := e.measureBypass(&r); err != nil {
			return fmt.Errorf("connect with bypass: %w", err)
		}
		r.Ratio = r.Bypass / r.FullNAT
		if r.CPU, err = e.measureCPU(); err != nil {
			return fmt.Errorf("measure the CPU of connections: %w", err)
		}
		return nil
	})
	return r, err
}

// measureFullNAT fills the table, and from what it takes knows the rate that should last; a run of half a minute shows that
// it does.
func (e *ends) measureFullNAT(r *connectionRates) error {
	r.Rows = e.world.datapath.MaxNATSessions()
	k := e.fullNAT()
	for {
		refused, err := e.refused(func() error { return e.begin(k, connectionStep) })
		if err != nil {
			return err
		}
		if refused > 0 {
			break
		}
		if r.Filled, err = e.open(); err != nil {
			return err
		}
	}
	r.FullNAT = float64(r.Filled) / connectionsFor.Seconds()
	for r.Tries = 1; r.Tries <= mostTries; r.Tries++ {
		if err := endSessions(e.world.datapath); err != nil {
			return err
		}
		refused, err := e.refused(func() error { return e.beginAtRate(k, r.FullNAT, connectionsFor, connectionTick) })
		if err != nil {
			return err
		}
		if refused == 0 {
			return e.wantOpen(r.FullNAT * connectionsFor.Seconds())
		}
		r.FullNAT *= fewerEachTry
	}
	return fmt.Errorf("no rate lasts, down to %.0f a second", r.FullNAT)
}

// wantOpen is an error unless nearly all connections have come to be.
func (e *ends) wantOpen(connections float64) error {
	got, err := e.open()
	if err == nil && float64(got) < 0.999*connections {
		err = fmt.Errorf("%d of %.0f connections are open", got, connections)
	}
	return err
}

// measureBypass begins connections as fast as the core can.
func (e *ends) measureBypass(r *connectionRates) error {
	k := e.class(networkSYN)
	if err := e.Sunk.Set(uint64(0)); err != nil {
		return err
	}
	began, sent := time.Now(), 0
	refused, err := e.refused(func() error {
		for time.Since(began) < connectionsFor {
			if err := e.begin(k, liveFrames); err != nil {
				return err
			}
			sent += liveFrames
		}
		return nil
	})
	took := time.Since(began)
	if err != nil {
		return err
	}
	var sunk uint64
	if err := e.Sunk.Get(&sunk); err != nil {
		return err
	}
	if refused > 0 || float64(sunk) < 0.999*float64(sent) {
		return fmt.Errorf("of %d connections the mux refused %d, and forwarded %d", sent, refused, sunk)
	}
	r.Bypass = float64(sunk) / took.Seconds()
	return nil
}

// measureCPU has turns of connections at a rate that the paper's mux takes by bypass.
func (e *ends) measureCPU() (c muxCPU, err error) {
	if err := errors.Join(e.Requests.Set(uint32(cpuRequests)), endSessions(e.world.datapath), e.world.enlist(e.GenerateVXLAN)); err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, e.world.dismiss()) }()
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return c, err
	}
	defer stats.Close()
	var took [2][]float64
	var ratios []float64
	for turn := -1; turn < cpuTurns; turn++ { // the first is for warmth
		for i, k := range []*class{e.class(networkSYN), e.fullNAT()} {
			packets := []uint64{1, 2 + 2*cpuRequests}[i]
			ns, err := e.costOf(k, packets)
			if err != nil {
				return c, err
			}
			if turn >= 0 {
				took[i] = append(took[i], ns)
			}
		}
		if turn >= 0 {
			ratios = append(ratios, took[1][turn]/took[0][turn])
		}
	}
	c = muxCPU{Rate: cpuRate, Bypass: median(took[0]), FullNAT: median(took[1]), Ratio: median(ratios)}
	c.Low, c.High = ratios[len(ratios)/4], ratios[len(ratios)*3/4] // in order now
	return c, nil
}

// costOf is the time that the programs take for a connection, of which so many packets must have passed.
func (e *ends) costOf(k *class, packets uint64) (float64, error) {
	before, err := e.Whole.Stats()
	if err != nil {
		return 0, err
	}
	refused, err := e.refused(func() error { return e.beginAtRate(k, cpuRate, cpuTurn, cpuTick) })
	if err != nil {
		return 0, err
	}
	after, err := e.Whole.Stats()
	if err != nil {
		return 0, err
	}
	connections := cpuRate * cpuTurn.Seconds()
	if got := after.RunCount - before.RunCount; refused > 0 || got != packets*uint64(connections) {
		return 0, fmt.Errorf("%.0f connections had %d packets, not %d each; %d were dropped", connections, got, packets, refused)
	}
	return float64((after.Runtime - before.Runtime).Nanoseconds()) / connections, nil
}

// fullNAT is the class of SYNs that begin a connection with full NAT.
func (e *ends) fullNAT() *class {
	k := e.class(networkFullNAT)
	k.packet = *k.opens
	return k
}

func (e *ends) class(name string) *class {
	all := classes(v4)
	return &all[slices.IndexFunc(all, func(k class) bool { return k.name == name })]
}

// begin sends the SYNs of so many new clients.
func (e *ends) begin(k *class, connections int) error {
	frame := k.frame()
	template := make([]byte, e.VXLANTemplate.Size())
	copy(template, frame)
	if err := e.VXLANTemplate.Set(template); err != nil {
		return err
	}
	options := &ebpf.RunOptions{
		Data: frame, Repeat: uint32(connections), Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES, BatchSize: liveBatch,
		Context: context{DataEnd: uint32(len(frame)), Ingress: uint32(e.near)},
	}
	_, err := e.GenerateVXLAN.Run(options)
	runtime.KeepAlive(options)
	return err
}

// beginAtRate does so many times a second, for so long.
func (e *ends) beginAtRate(k *class, rate float64, lasts, tick time.Duration) error {
	began, sent := time.Now(), 0
	for last := false; !last; {
		time.Sleep(tick)
		since := time.Since(began)
		if last = since >= lasts; last {
			since = lasts
		}
		due := int(rate*since.Seconds()) - sent
		if due == 0 {
			continue
		}
		if err := e.begin(k, due); err != nil {
			return err
		}
		sent += due
	}
	return nil
}

// refused is how many packets the mux has dropped while something ran.
func (e *ends) refused(run func() error) (uint64, error) {
	before, err := e.world.datapath.Ended()
	if err != nil {
		return 0, err
	}
	if err := run(); err != nil {
		return 0, err
	}
	time.Sleep(connectionTick / 10) // what is under way still
	after, err := e.world.datapath.Ended()
	return after - before, err
}

// open is how many connections of full NAT are.
func (e *ends) open() (int, error) {
	got, err := e.world.datapath.NATUsage(networkTenant)
	return got.Rows - got.HalfOpen, err
}

func printConnections(w io.Writer, r *connectionRates) {
	fmt.Fprintf(w, "connections a second for %.0f s: %.0f by bypass, %.0f by full NAT with %d rows (%d at the first refusal, tries: %d): %.1f times as many\n",
		r.Seconds, r.Bypass, r.FullNAT, r.Rows, r.Filled, r.Tries, r.Ratio)
	fmt.Fprintf(w, "programs at %.0f connections a second: %.0f ns by bypass, %.0f ns by full NAT: %.1f times as much (%.1f to %.1f)\n",
		r.CPU.Rate, r.CPU.Bypass, r.CPU.FullNAT, r.CPU.Ratio, r.CPU.Low, r.CPU.High)
}
