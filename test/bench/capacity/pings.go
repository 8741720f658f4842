package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/testkit/turns"
)

const (
	pingBytes = 8
	late      = 300 * time.Millisecond // answers are waited for, after the last ping
)

// ping is a datagram that its backend sends back.
type ping struct {
	At   float64 `json:"at_s"`
	Trip float64 `json:"us"` // 0: it is lost
}

// pinger sends pings at an interval, on a thread that goes before all programs of the CPU.
type pinger struct {
	file     *os.File
	interval time.Duration
	began    time.Time
	pings    []ping
	stopping atomic.Bool
	done     chan error
}

// startPinger pings an address, from a port of its own.
func startPinger(ns *netns.NS, from netip.Addr, to netip.AddrPort, interval time.Duration) (*pinger, error) {
	p := &pinger{interval: interval, done: make(chan error, 1)}
	err := ns.Do(func() error {
		conn, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(to))
		if err != nil {
			return err
		}
		p.file, err = conn.File()
		return errors.Join(err, conn.Close())
	})
	if err != nil {
		return nil, fmt.Errorf("ping %s: %w", to, err)
	}
	p.began = time.Now()
	go func() {
		runtime.LockOSThread() // for good: the thread ends with its priority
		p.done <- p.run()
	}()
	return p, nil
}

func (p *pinger) run() error {
	if err := turns.TakeCPU(restCPU); err != nil {
		return err
	}
	fd, message := int(p.file.Fd()), make([]byte, pingBytes)
	for !p.stopping.Load() {
		due := time.Duration(len(p.pings)) * p.interval
		if err := p.receive(fd, due); err != nil {
			return err
		}
		now := time.Since(p.began)
		binary.BigEndian.PutUint64(message, uint64(len(p.pings)))
		p.pings = append(p.pings, ping{At: now.Seconds()})
		if _, err := unix.Write(fd, message); err != nil && !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("send a ping: %w", err)
		}
	}
	return p.receive(fd, time.Since(p.began)+late)
}

// receive notes answers, up to a time since the beginning.
func (p *pinger) receive(fd int, until time.Duration) error {
	message := make([]byte, pingBytes)
	for {
		left := until - time.Since(p.began)
		if left <= 0 {
			return nil
		}
		timeout := unix.NsecToTimespec(left.Nanoseconds())
		n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, &timeout, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for an answer: %w", err)
		}
		if n <= 0 {
			continue
		}
		got, err := unix.Read(fd, message)
		now := time.Since(p.began).Seconds()
		if err != nil || got != pingBytes {
			continue // an ICMP error
		}
		if number := binary.BigEndian.Uint64(message); number < uint64(len(p.pings)) && p.pings[number].Trip == 0 {
			p.pings[number].Trip = max(1e6*(now-p.pings[number].At), 0.1)
		}
	}
}

// stop ends it, and tells what became of each ping.
func (p *pinger) stop() ([]ping, error) {
	p.stopping.Store(true)
	err := <-p.done
	return p.pings, errors.Join(err, p.file.Close())
}

// echo sends back what comes to an address, until it is told to stop.
func echo(ns *netns.NS, at netip.AddrPort) (stop func(), err error) {
	var file *os.File
	err = ns.Do(func() error {
		conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		file, err = conn.File()
		return errors.Join(err, conn.Close())
	})
	if err != nil {
		return nil, fmt.Errorf("answer at %s: %w", at, err)
	}
	var stopping atomic.Bool
	go func() {
		defer file.Close()
		runtime.LockOSThread() // for good, likewise
		if turns.TakeCPU(restCPU) == nil {
			answer(int(file.Fd()), &stopping)
		}
	}()
	return func() { stopping.Store(true) }, nil
}

// answer waits in the kernel, not in the runtime, whose threads do not go first.
func answer(fd int, stopping *atomic.Bool) {
	message := make([]byte, 1500)
	for !stopping.Load() {
		timeout := unix.NsecToTimespec(late.Nanoseconds()) // the kernel writes what is left of it
		if n, _ := unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, &timeout, nil); n <= 0 {
			continue
		}
		if got, from, err := unix.Recvfrom(fd, message, 0); err == nil && from != nil {
			_ = unix.Sendto(fd, message[:got], 0, from) // one that is not sent is lost
		}
	}
}

// trips are round trips of pings.
type trips struct {
	P10  float64   `json:"p10_us"`
	P50  float64   `json:"p50_us"`
	P90  float64   `json:"p90_us"`
	P99  float64   `json:"p99_us"`
	Gone float64   `json:"pings_lost"` // part of them
	CDF  []float64 `json:"cdf_us,omitempty"`
}

// summarise gives quantiles of the pings that came back.
func summarise(pings []ping) (t trips) {
	var came []float64
	for _, p := range pings {
		if p.Trip > 0 {
			came = append(came, p.Trip)
		}
	}
	t.Gone = 1 - float64(len(came))/float64(max(len(pings), 1))
	if len(came) == 0 {
		return t
	}
	slices.Sort(came)
	at := func(percent int) float64 { return came[min(len(came)*percent/100, len(came)-1)] }
	t.P10, t.P50, t.P90, t.P99 = at(10), at(50), at(90), at(99)
	for percent := 0; percent <= 100; percent++ {
		t.CDF = append(t.CDF, at(percent))
	}
	return t
}
