package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/testkit/turns"
)

// Figure 12: messages of 128 bytes come at a rate, whatever the answers do, and each is answered. The knee is the rate at
// which the 99th percentile of their round trips is twice its least.
const (
	kneeConnections = 64 // that messages take in turns, so that each is a packet of its own
	kneeFirst       = 2000.0
	kneeGrowth      = 1.12
	kneeMost        = 400_000.0
	kneeLasts       = 500 * time.Millisecond
	kneeTwice       = 2
	kneeFar         = 20          // times its least, twice in a row: there is no way back
	kneeLate        = time.Second // bounds how long answers are waited for after the last message
	kneeWaiting     = 256         // messages of a connection that are not answered: with more the rate is beyond the knee
	kneeBuffer      = 1 << 20     // of a socket: room for so many in both directions
)

// kneePoint is a side at a rate.
type kneePoint struct {
	Side string  `json:"side"`
	Pass int     `json:"pass"`
	Rate float64 `json:"rate"` // messages a second
	P50  float64 `json:"p50_us"`
	P99  float64 `json:"p99_us"`
}

// measureKnee raises the rate for both sides in turns, until both have their knees, and does all that some times.
func (w *world) measureKnee(ctx context.Context, how options, to *report) error {
	var loads []*load
	for _, s := range w.sides {
		if s.name == device {
			continue
		}
		l, err := newLoad(s)
		if err != nil {
			return err
		}
		defer l.close()
		loads = append(loads, l)
	}
	// No thread of these waits for what the others, which do not go first, hold of the runtime.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with its priority
		done <- takeKneeTurns(ctx, how.passes, loads, to)
	}()
	if err := <-done; err != nil {
		return fmt.Errorf("measure round trips by rate: %w", err)
	}
	return nil
}

func takeKneeTurns(ctx context.Context, passes int, loads []*load, to *report) error {
	if err := turns.TakeCPU(restCPU); err != nil {
		return err
	}
	var ratios []float64
	knees := map[string][]float64{}
	for pass := range passes {
		found, err := kneesOf(ctx, pass, loads, to)
		if err != nil {
			return err
		}
		for name, knee := range found {
			knees[name] = append(knees[name], knee)
		}
		ratios = append(ratios, found[bypass]/found[fullNAT])
	}
	for name, all := range knees {
		to.Sides["knee-"+name+"-kpps"] = quantile(all, 2) / 1e3
	}
	to.Rows = append(to.Rows, row{
		Name: "knee-bypass-to-full-nat", Value: quantile(ratios, 2), Low: quantile(ratios, 1), High: quantile(ratios, 3),
	})
	return nil
}

// kneesOf is one pass: of each side the highest rate whose 99th percentile is below twice the least.
func kneesOf(ctx context.Context, pass int, loads []*load, to *report) (map[string]float64, error) {
	all, far := map[string][]kneePoint{}, map[string]int{}
	for rate, more := kneeFirst, true; more && rate < kneeMost; rate *= kneeGrowth {
		more = false
		for _, l := range loads {
			name := l.side.name
			if far[name] > 1 {
				continue
			}
			more = true
			p50, p99, err := l.run(rate)
			if err != nil {
				return nil, err
			}
			all[name] = append(all[name], kneePoint{Side: name, Pass: pass, Rate: rate, P50: p50, P99: p99})
			if far[name]++; p99 < kneeFar*leastOf(all[name]) {
				far[name] = 0
			}
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	knees := map[string]float64{}
	for name, points := range all {
		to.Knee = append(to.Knee, points...)
		for _, p := range points {
			if p.P99 < kneeTwice*leastOf(points) {
				knees[name] = p.Rate
			}
		}
		if far[name] < 2 {
			return nil, fmt.Errorf("%s has no knee up to %.0f a second", name, kneeMost)
		}
	}
	return knees, nil
}

func leastOf(points []kneePoint) float64 {
	return slices.MinFunc(points, func(a, b kneePoint) int { return cmp.Compare(a.P99, b.P99) }).P99
}

// load is connections of a side, with a server that answers on all of them.
type load struct {
	side    *side
	ends    []ends
	epoll   int               // of the clients' sockets
	pending [][]time.Duration // of each connection: when the messages were due that are not answered
	partial []int             // bytes of an answer that is not whole yet
	trips   []float64         // µs
	buffer  []byte
}

func newLoad(s *side) (l *load, err error) {
	l = &load{
		side: s, pending: make([][]time.Duration, kneeConnections), partial: make([]int, kneeConnections), buffer: make([]byte, 64<<10),
	}
	server, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, errors.Join(err, unix.Close(server))
	}
	var servers []int
	for i := range kneeConnections {
		e, err := s.connect()
		if err != nil {
			return nil, errors.Join(err, unix.Close(server), l.close())
		}
		l.ends = append(l.ends, e)
		servers = append(servers, int(e.server.Fd()))
		for epoll, fd := range map[int]int{server: servers[i], l.epoll: int(e.client.Fd())} {
			roomy := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, kneeBuffer)
			if err := errors.Join(roomy, unix.SetNonblock(fd, true), watch(epoll, fd, i)); err != nil {
				return nil, errors.Join(err, unix.Close(server), l.close())
			}
		}
	}
	go func() {
		runtime.LockOSThread() // for good, likewise
		if turns.TakeCPU(restCPU) == nil {
			answer(server, servers)
		}
	}()
	return l, nil
}

func (l *load) close() error {
	for _, e := range l.ends {
		e.close() // the server's epoll sees the reset, and ends
	}
	return unix.Close(l.epoll)
}

func watch(epoll, fd, index int) error {
	return unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(index)})
}

// answer sends back what comes to the sockets, until one of them ends.
func answer(epoll int, sockets []int) {
	defer unix.Close(epoll)
	events, data := make([]unix.EpollEvent, kneeConnections), make([]byte, 64<<10)
	for {
		n, err := unix.EpollWait(epoll, events, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		for _, event := range events[:max(n, 0)] {
			fd := sockets[event.Fd]
			got, err := unix.Read(fd, data)
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
				continue
			}
			if got <= 0 {
				return
			}
			if sent, err := unix.Write(fd, data[:got]); err != nil || sent != got {
				return // there is room for what a client has sent and not been answered
			}
		}
	}
}

// run sends messages at a rate, and gives quantiles of their round trips in µs. A trip begins when its message was due.
func (l *load) run(rate float64) (p50, p99 float64, err error) {
	l.trips = l.trips[:0]
	total := int(rate * kneeLasts.Seconds())
	due := func(i int) time.Duration { return time.Duration(float64(i) / rate * float64(time.Second)) }
	began := time.Now()
	for sent, beyond := 0, false; len(l.trips) < total && !beyond; {
		now := time.Since(began)
		for ; sent < total && due(sent) <= now && !beyond; sent++ {
			if err := l.send(sent%kneeConnections, due(sent)); err != nil {
				return 0, 0, err
			}
			beyond = len(l.pending[sent%kneeConnections]) > kneeWaiting
		}
		beyond = beyond || now > kneeLasts+kneeLate
		wait := time.Millisecond
		if sent < total {
			wait = max(due(sent)-time.Since(began), 0)
		}
		if err := l.receive(began, wait); err != nil {
			return 0, 0, err
		}
	}
	for len(l.trips) < total {
		l.trips = append(l.trips, float64(kneeLate.Microseconds()))
	}
	slices.Sort(l.trips)
	p50, p99 = l.trips[total/2], l.trips[total*99/100]
	return p50, p99, l.drain(began)
}

func (l *load) send(connection int, due time.Duration) error {
	n, err := unix.Write(int(l.ends[connection].client.Fd()), l.buffer[:rttBytes])
	if err != nil || n != rttBytes {
		return fmt.Errorf("send a message: %d bytes, %w", n, err)
	}
	l.pending[connection] = append(l.pending[connection], due)
	return nil
}

// receive waits for answers, and notes the trips of those that came.
func (l *load) receive(began time.Time, wait time.Duration) error {
	var events [kneeConnections]unix.EpollEvent
	timeout := unix.NsecToTimespec(wait.Nanoseconds())
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(l.epoll), uintptr(unsafe.Pointer(&events[0])), kneeConnections,
		uintptr(unsafe.Pointer(&timeout)), 0, 0)
	if errno != 0 && errno != unix.EINTR {
		return errno
	}
	if errno != 0 {
		return nil
	}
	for _, event := range events[:n] {
		i := int(event.Fd)
		got, err := unix.Read(int(l.ends[i].client.Fd()), l.buffer)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if got <= 0 {
			return errBroken
		}
		now := time.Since(began)
		for l.partial[i] += got; l.partial[i] >= rttBytes; l.partial[i] -= rttBytes {
			l.trips = append(l.trips, float64((now-l.pending[i][0]).Nanoseconds())/1e3)
			l.pending[i] = l.pending[i][1:]
		}
	}
	return nil
}

// drain waits for answers that are late, so that the next run begins without any.
func (l *load) drain(began time.Time) error {
	for end := time.Now().Add(10 * time.Second); slices.ContainsFunc(l.pending, func(of []time.Duration) bool { return len(of) > 0 }); {
		if time.Now().After(end) {
			return errBroken
		}
		if err := l.receive(began, time.Millisecond); err != nil {
			return err
		}
	}
	for i := range l.pending {
		l.pending[i] = l.pending[i][:0]
	}
	return nil
}
