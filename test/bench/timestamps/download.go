package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	patience  = 40 * time.Second // for connections
	dialing   = 64               // at once
	leastRoom = 50 * time.Millisecond
)

// download measures all losses at one round trip time, with cookies and without at the same time. The cells have no ratio yet.
func (w *world) download(ctx context.Context, rtt, lasts time.Duration, round int) (cells []cell, err error) {
	var relays []*relay
	for n, p := range w.paths {
		relays = append(relays, startRelay(p.near, p.far, linesOf(rtt, round, n)))
	}
	defer func() {
		for _, r := range relays {
			err = errors.Join(err, r.close())
		}
	}()
	s, err := w.serve()
	if err != nil {
		return nil, err
	}
	defer s.close()
	before, err := w.joined()
	if err != nil {
		return nil, err
	}
	loads, opened := map[way]*load{}, 0
	var dials errgroup.Group
	dials.SetLimit(dialing)
	for _, way := range ways() {
		l := &load{}
		loads[way] = l
		defer l.close()
		for range connections(rtt, losses[way.loss], len(w.paths)) {
			opened++
			dials.Go(func() error { return l.open(ctx, w, port(way.loss, way.cookies)) })
		}
	}
	if err := dials.Wait(); err != nil {
		return nil, err
	}
	rates, err := measure(ctx, loads, lasts)
	if err != nil {
		return nil, err
	}
	after, err := w.joined()
	if err != nil {
		return nil, err
	}
	if wanted := opened * (len(w.paths) - 1); after-before < wanted*9/10 {
		return nil, fmt.Errorf("%d subflows of %d joined", after-before, wanted)
	}
	for loss, part := range losses {
		c := cell{
			RTT: float64(rtt) / float64(time.Millisecond), Loss: 100 * part, Connections: len(loads[way{loss, true}].conns),
			With: rates[way{loss, true}], Without: rates[way{loss, false}],
		}
		for _, r := range relays {
			c.Lost += 100 * (r.lost(port(loss, true)) + r.lost(port(loss, false))) / float64(2*len(relays))
		}
		cells = append(cells, c)
	}
	return cells, nil
}

// linesOf are what a path does at a round trip time. With cookies and without packets of the same numbers are lost.
func linesOf(rtt time.Duration, round, path int) (lines [2]map[uint16]line) {
	for direction := range lines {
		lines[direction] = map[uint16]line{}
		seed := uint64(round<<8 | path<<4 | direction)
		for _, way := range ways() {
			lines[direction][port(way.loss, way.cookies)] = line{
				delay: rtt / 2, loss: losses[way.loss], rate: bandwidth, room: max(rtt, leastRoom),
				random: rand.New(rand.NewPCG(seed, uint64(way.loss))),
			}
		}
	}
	return lines
}

// measure lets downloads begin, and returns what each way brings in Mbit/s.
func measure(ctx context.Context, loads map[way]*load, lasts time.Duration) (map[way]float64, error) {
	began := time.Now()
	before := map[way]int64{}
	for way, l := range loads {
		before[way] = l.bytes.Load()
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(lasts):
	}
	rates := map[way]float64{}
	for way, l := range loads {
		rates[way] = float64(8*(l.bytes.Load()-before[way])) / 1e6 / time.Since(began).Seconds()
		if rates[way] == 0 {
			return nil, fmt.Errorf("nothing came at a loss of %g with cookies %t", losses[way.loss], way.cookies)
		}
	}
	return rates, nil
}

// load is the downloads of one way.
type load struct {
	bytes atomic.Int64
	mu    sync.Mutex
	conns []*net.TCPConn
}

// open begins a download.
func (l *load) open(ctx context.Context, w *world, port uint16) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(w.paths[0].address, 0))}
	dialer.SetMultipathTCP(true)
	var conn *net.TCPConn
	err := w.client.Do(func() error {
		c, err := dialer.DialContext(ctx, "tcp4", netip.AddrPortFrom(vip, port).String())
		if err != nil {
			return err
		}
		conn = c.(*net.TCPConn)
		return nil
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.conns = append(l.conns, conn)
	l.mu.Unlock()
	if multipath, err := conn.MultipathTCP(); err != nil || !multipath {
		return errors.Join(err, errors.New("the connection is none of Multipath TCP"))
	}
	go l.read(conn)
	return nil
}

func (l *load) read(conn *net.TCPConn) {
	buffer := make([]byte, 1<<16)
	for {
		n, err := conn.Read(buffer)
		l.bytes.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// close resets the connections, which else would go on for as long as the other end tries.
func (l *load) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
}

// server sends as much as its connections take.
type server struct {
	listener net.Listener
	load
}

func (w *world) serve() (s *server, err error) {
	s = &server{}
	var config net.ListenConfig
	config.SetMultipathTCP(true)
	err = w.host.Do(func() (err error) {
		s.listener, err = config.Listen(context.Background(), "tcp4", netip.AddrPortFrom(hostDIP, dipPort).String())
		return err
	})
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := s.listener.Accept()
			if err != nil {
				return
			}
			conn := c.(*net.TCPConn)
			s.mu.Lock()
			s.conns = append(s.conns, conn)
			s.mu.Unlock()
			go func() { _, _ = io.Copy(conn, endless{}) }()
		}
	}()
	return s, nil
}

func (s *server) close() {
	_ = s.listener.Close()
	s.load.close()
}

// endless is all zero.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
