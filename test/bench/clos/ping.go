package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"

	"github.com/weirlb/weir/internal/lab/netns"
)

// pinger sends echo requests to VIPs at an interval, and notes when their answers came.
type pinger struct {
	conn    net.PacketConn
	targets []netip.Addr
	stop    chan struct{}
	running sync.WaitGroup
	sent    [][]time.Time // by target
	mu      sync.Mutex
	came    []map[uint32]time.Time
}

const pingID = 0x5765

func startPinger(ns *netns.NS, interval time.Duration, targets ...netip.Addr) (*pinger, error) {
	p := &pinger{targets: targets, stop: make(chan struct{}), sent: make([][]time.Time, len(targets))}
	for range targets {
		p.came = append(p.came, map[uint32]time.Time{})
	}
	err := ns.Do(func() (err error) {
		p.conn, err = net.ListenPacket("ip4:icmp", "0.0.0.0")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open a socket for pings: %w", err)
	}
	p.running.Go(func() { p.send(interval) })
	p.running.Go(p.receive)
	return p, nil
}

func (p *pinger) send(interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for number := uint32(0); ; number++ {
		for i, to := range p.targets {
			body := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(i)), number)
			message := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: pingID, Seq: int(number & 0xffff), Data: body}}
			data, err := message.Marshal(nil)
			if err != nil {
				panic(err) // of what is constant
			}
			p.sent[i] = append(p.sent[i], time.Now())
			_, _ = p.conn.WriteTo(data, &net.IPAddr{IP: to.AsSlice()}) // one that is not sent is one that is lost
		}
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
	}
}

func (p *pinger) receive() {
	buffer := make([]byte, 1500)
	for {
		n, _, err := p.conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		message, err := icmp.ParseMessage(1, buffer[:n])
		if err != nil || message.Type != ipv4.ICMPTypeEchoReply {
			continue
		}
		echo, ok := message.Body.(*icmp.Echo)
		if !ok || echo.ID != pingID || len(echo.Data) != 8 {
			continue
		}
		target, number := binary.BigEndian.Uint32(echo.Data), binary.BigEndian.Uint32(echo.Data[4:])
		p.mu.Lock()
		if int(target) < len(p.came) {
			p.came[target][number] = time.Now()
		}
		p.mu.Unlock()
	}
}

// pings are what became of those to one VIP.
type pings struct {
	sent, lost int
	gap        time.Duration // the longest between pings that were sent and answered
}

// end waits for late answers, and counts.
func (p *pinger) end() ([]pings, error) {
	close(p.stop)
	if err := p.conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return nil, err
	}
	p.running.Wait()
	all := make([]pings, len(p.targets))
	for i, sent := range p.sent {
		all[i].sent = len(sent)
		last := sent[0]
		for number, at := range sent {
			if _, ok := p.came[i][uint32(number)]; !ok {
				all[i].lost++
				continue
			}
			all[i].gap = max(all[i].gap, at.Sub(last))
			last = at
		}
	}
	return all, p.conn.Close()
}
