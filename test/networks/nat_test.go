package networks

import (
	"errors"
	"net"
	"os"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/overlay"
)

// natsInMuxes has the other network attached again, with full NAT in the muxes: servers see addresses of the muxes. One of its
// clients is on a host without an agent. A mux that dies takes its connections along, and no others; what is idle is reset.
func (w *world) natsInMuxes() {
	w.Helper()
	w.apply(func(text string) string {
		text = regexp.MustCompile(`(?m)^ *- protocol: UDP\n(?: {6,}.*\n)+`).ReplaceAllString(text, "") // full NAT is of TCP
		text = strings.ReplaceAll(text, "port: 80\n", "port: 80\n      idleTimeout: 3s\n")
		return regexp.MustCompile(`(?m)^( *- {network: bolt-prod.*)}$`).ReplaceAllString(text, "$1, mode: full-nat, nat: mux}")
	})
	for _, c := range w.dialAll([]string{"bolt1"}, 1, 44000) { // an agent answers for the VIP, once more
		must(w.T, c.talk(1, 100), c.Conn.(*net.TCPConn).SetLinger(0), c.Close())
	}
	p, err := w.Process("chost1", "weir-agent")
	must(w.T, err, p.Stop(unix.SIGKILL, bound), os.RemoveAll(w.PinPath("chost1")+"-networks"))
	w.mu.Lock()
	clear(w.seen)
	w.mu.Unlock()
	connections := w.dialAll([]string{"bolt1", "bolt2"}, 5, 45000)
	w.all("full NAT in the muxes", connections, 5, 2000)
	if out, err := w.Weir("describe", "node", w.Of(netlab.Mux)[0].Name); err != nil || !strings.Contains(out, "Sessions of full NAT") {
		w.Errorf("a mux tells %v: %s", err, out)
	}
	of := w.natted(len(connections))
	dies := w.Of(netlab.Mux)[0]
	must(w.T, w.CutPower(dies.Name), w.WaitRouted(w.Context(), bound, overlay.VXLAN, 1))
	if works := w.working(connections); len(works) != of[2] {
		w.Errorf("%d connections go on, of %d that the other mux has: by mux %v", len(works), of[2], of)
	} else {
		connections = works
	}
	more := w.dialAll([]string{"bolt1", "bolt2"}, 2, 46000)
	w.all("one mux is dead, new ones", more, 2, 2000)
	for _, c := range append(connections, more...) {
		w.isReset(c, "that is idle, with full NAT in a mux")
	}
	must(w.T, w.Revive(dies.Name))
	_, err = w.Restart("chost1", "weir-agent")
	must(w.T, err, w.WaitReady(w.Context()), w.WaitRouted(w.Context(), bound, overlay.VXLAN, 2))
}

// natted says how many clients the servers know by addresses of each mux: all that there are, and of both muxes some.
func (w *world) natted(want int) map[int]int {
	w.Helper()
	of, all := map[int]int{}, w.clients()
	for _, client := range all {
		for mux := range 3 {
			if v4, v6 := netlab.NATPrefixes(mux); v4.Contains(client.Addr()) || v6.Contains(client.Addr()) {
				of[mux]++
			}
		}
	}
	if len(all) != want || of[1]+of[2] != want || of[1] == 0 || of[2] == 0 {
		w.Errorf("of %d connections servers know %v", want, all)
	}
	return of
}

// working are the connections that still get answers.
func (w *world) working(connections []*connection) (works []*connection) {
	w.Helper()
	type result struct {
		c   *connection
		err error
	}
	results := make(chan result)
	for _, c := range connections {
		go func() {
			err := c.SetDeadline(time.Now().Add(2 * time.Second))
			if err == nil {
				_, err = c.Write([]byte{'x'})
			}
			if err == nil {
				_, err = c.Read(make([]byte, 1))
			}
			results <- result{c, err}
		}()
	}
	for range connections {
		r := <-results
		var timeout net.Error
		switch {
		case r.err == nil:
			works = append(works, r.c)
		case !errors.As(r.err, &timeout) || !timeout.Timeout():
			w.Errorf("%s ended otherwise than in silence: %v", r.c.mark, r.err)
		}
	}
	return works
}
