package segment

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

// watcher asks for a VIP by ARP, from the router, again and again, and notes who answers: the answers in their order, and
// not when they come, show whether two muxes answer.
type watcher struct {
	socket int
	stop   context.CancelFunc

	mu      sync.Mutex
	runs    []string  // MACs, each as long as no other answered
	at      time.Time // of the newest answer
	silence time.Duration
	fresh   bool // an answer came since next
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
	w := &watcher{}
	testlab.Must(l.t, router.Do(func() error {
		protocol := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ARP))
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
	both.Go(func() { w.hear(ctx, own, vip) })
	both.Go(func() { w.ask(ctx, index, own, vip) })
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

func (w *watcher) ask(ctx context.Context, index int, own net.HardwareAddr, vip netip.Addr) {
	frame := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, own...)
	frame = append(frame, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
	frame = append(append(frame, own...), 203, 0, 113, 254)
	frame = append(append(frame, make([]byte, 6)...), vip.AsSlice()...)
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	for {
		_ = unix.Sendto(w.socket, frame, 0, &unix.SockaddrLinklayer{Ifindex: index}) // what is lost is asked again
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// hear notes replies that come to the router: announcements are no answers.
func (w *watcher) hear(ctx context.Context, own net.HardwareAddr, vip netip.Addr) {
	frame := make([]byte, 128)
	for ctx.Err() == nil {
		n, _, err := unix.Recvfrom(w.socket, frame, 0)
		if err != nil || n < 42 || frame[21] != 2 || [4]byte(frame[28:32]) != vip.As4() || net.HardwareAddr(frame[:6]).String() != own.String() {
			continue
		}
		w.note(net.HardwareAddr(frame[22:28]).String())
	}
}

func (w *watcher) note(mac string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if !w.at.IsZero() {
		w.silence = max(w.silence, now.Sub(w.at))
	}
	w.at, w.fresh = now, true
	if n := len(w.runs); n == 0 || w.runs[n-1] != mac {
		w.runs = append(w.runs, mac)
	}
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
	return w.runs[len(w.runs)-1]
}

func (w *watcher) longestSilence() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.silence.Round(time.Millisecond)
}

// holds that answers came from one mux after the other: two that answer at a time would take turns.
func (w *watcher) holds(l *lab, most int) {
	l.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.runs) > most {
		l.t.Errorf("answers came in turn from %v", w.runs)
	}
}
