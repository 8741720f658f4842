package segment

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/testkit/oracle/inet"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

// watcher asks for a VIP by ARP or NDP, from the router, again and again, and notes who answers: the answers in their order,
// and not when they come, show whether two muxes answer.
type watcher struct {
	vip    netip.Addr
	socket int
	stop   context.CancelFunc

	mu      sync.Mutex
	runs    []run
	at      time.Time // of the newest answer
	since   time.Time // of the newest run
	silence time.Duration
	fresh   bool // an answer came since next
}

// run is of answers by one, between those of others.
type run struct {
	mac     string
	answers int
}

// askEvery is how often the router asks.
const askEvery = 10 * time.Millisecond

func (l *lab) watch(vip netip.Addr) *watcher {
	router, err := l.NS(string(netlab.Router))
	testlab.Must(l.t, err)
	index, err := router.Index(netlab.SegmentLink)
	testlab.Must(l.t, err)
	own, err := router.MAC(netlab.SegmentLink)
	testlab.Must(l.t, err)
	w, ethertype, question := &watcher{vip: vip}, uint16(unix.ETH_P_ARP), arpRequest(own, vip)
	if vip.Is6() {
		ethertype, question = unix.ETH_P_IPV6, neighborSolicitation(own, vip)
	}
	testlab.Must(l.t, router.Do(func() error {
		protocol := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, ethertype))
		if w.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err := unix.SetsockoptTimeval(w.socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100000}); err != nil {
			return err
		}
		return unix.Bind(w.socket, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: index})
	}))
	ctx, stop := context.WithCancel(l.t.Context())
	var both sync.WaitGroup
	both.Go(func() { w.hear(ctx, own) })
	both.Go(func() { w.ask(ctx, index, question) })
	w.stop = func() {
		stop()
		both.Wait()
	}
	l.t.Cleanup(func() {
		w.stop()
		_ = unix.Close(w.socket)
	})
	return w
}

// arpRequest is the router's question who has the VIP.
func arpRequest(own net.HardwareAddr, vip netip.Addr) []byte {
	frame := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, own...)
	frame = append(frame, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
	frame = append(append(frame, own...), 203, 0, 113, 254)
	return append(append(frame, make([]byte, 6)...), vip.AsSlice()...)
}

// neighborSolicitation is the same of an IPv6 VIP, to its solicited-node multicast address.
func neighborSolicitation(own net.HardwareAddr, vip netip.Addr) []byte {
	from, target := netip.MustParseAddr("2001:db8:113::fffe").As16(), vip.As16()
	to := netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(to[13:], target[13:])
	message := append(append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, target[:]...), 1, 1)
	message = append(message, own...)
	sum := inet.Checksum(from[:], to[:], []byte{0, 0, 0, byte(len(message)), 0, 0, 0, unix.IPPROTO_ICMPV6}, message)
	binary.BigEndian.PutUint16(message[2:], sum)
	frame := append(append([]byte{0x33, 0x33}, to[12:]...), own...)
	frame = append(frame, 0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(len(message)), unix.IPPROTO_ICMPV6, 255)
	return append(append(append(frame, from[:]...), to[:]...), message...)
}

func (w *watcher) ask(ctx context.Context, index int, question []byte) {
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	for {
		_ = unix.Sendto(w.socket, question, 0, &unix.SockaddrLinklayer{Ifindex: index}) // what is lost is asked again
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// hear notes answers that come to the router: announcements, which go to all, are none.
func (w *watcher) hear(ctx context.Context, own net.HardwareAddr) {
	answer := w.arpReply
	if w.vip.Is6() {
		answer = w.neighborAdvertisement
	}
	frame := make([]byte, 128)
	for ctx.Err() == nil {
		n, _, err := unix.Recvfrom(w.socket, frame, 0)
		if err != nil || n < 14 || !bytes.Equal(frame[:6], own) {
			continue
		}
		if mac, is := answer(frame[:n]); is {
			w.note(mac.String())
		}
	}
}

// arpReply reads who has the VIP, as a reply says.
func (w *watcher) arpReply(frame []byte) (mac net.HardwareAddr, is bool) {
	if len(frame) < 42 || frame[21] != 2 || [4]byte(frame[28:32]) != w.vip.As4() {
		return nil, false
	}
	return frame[22:28], true
}

// neighborAdvertisement reads the same of a solicited advertisement, whose target's link-layer address follows the target.
func (w *watcher) neighborAdvertisement(frame []byte) (mac net.HardwareAddr, is bool) {
	if len(frame) < 86 || frame[20] != unix.IPPROTO_ICMPV6 || frame[54] != 136 || frame[58]&0x40 == 0 || [16]byte(frame[62:78]) != w.vip.As16() || frame[78] != 2 {
		return nil, false
	}
	return frame[80:86], true
}

func (w *watcher) note(mac string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if !w.at.IsZero() {
		w.silence = max(w.silence, now.Sub(w.at))
	}
	w.at, w.fresh = now, true
	if n := len(w.runs); n == 0 || w.runs[n-1].mac != mac {
		w.runs, w.since = append(w.runs, run{mac: mac}), now
	}
	w.runs[len(w.runs)-1].answers++
}

// begin forgets all but who answers now.
func (w *watcher) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs, w.silence = w.runs[max(0, len(w.runs)-1):], 0
}

// next has last wait for another answer.
func (w *watcher) next() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fresh = false
}

// last is who answered last; empty: nobody.
func (w *watcher) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.runs) == 0 || !w.fresh {
		return ""
	}
	return w.runs[len(w.runs)-1].mac
}

// lasts is for how long the same has answered; 0: nobody does.
func (w *watcher) lasts() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.runs) == 0 || time.Since(w.at) > 10*askEvery {
		return 0
	}
	return time.Since(w.since)
}

func (w *watcher) longestSilence() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.silence.Round(time.Millisecond)
}

// A mux that a slow machine stops for longer than its lease is stood in for, and has the VIP again after that: that happens
// a few times, and each of them answers for long.
const (
	mostRuns    = 9
	fewestInRun = 3
)

// holds that answers came from one mux after the other: two that answer at a time would take turns.
func (w *watcher) holds(l *lab) {
	l.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	turns := len(w.runs) > mostRuns
	for _, r := range w.runs[:max(0, len(w.runs)-1)] { // the last one may have begun just now
		turns = turns || r.answers < fewestInRun
	}
	if turns {
		l.t.Errorf("answers for %s came in turn from %v", w.vip, w.runs)
	}
}
