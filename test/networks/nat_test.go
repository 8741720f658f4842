package networks

import (
	"errors"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/overlay"
)

// natInMuxes is the lab's manifest with full NAT of one network in the muxes.
func natInMuxes(text string) string {
	text = regexp.MustCompile(`(?m)^ *- protocol: UDP\n(?: {6,}.*\n)+`).ReplaceAllString(text, "") // full NAT is of TCP
	return regexp.MustCompile(`(?m)^( *- {network: bolt-prod.*)}$`).ReplaceAllString(text, "$1, mode: full-nat, nat: mux}")
}

// natsInMuxes has the network attached with full NAT in the muxes: servers see addresses of the muxes. One of its clients is
// on a host without an agent. Connections that began before go on. A mux that dies takes those along that it has, which are
// reset, and no others.
func (w *world) natsInMuxes(before []*connection) {
	w.Helper()
	w.apply(natInMuxes)
	w.all("from before full NAT in the muxes", before, 2, 2000)
	w.mu.Lock()
	clear(w.seen)
	w.mu.Unlock()
	connections := w.dialAll([]string{"bolt1", "bolt2"}, 5, 45000)
	w.all("full NAT in the muxes", connections, 5, 2000)
	dies := w.Of(netlab.Mux)[0]
	if out, err := w.Weir("describe", "node", dies.Name); err != nil || !strings.Contains(out, "Sessions of full NAT") {
		w.Errorf("a mux tells %v: %s", err, out)
	}
	of := w.natted(len(connections))
	must(w.T, w.CutPower(dies.Name), w.WaitRouted(w.Context(), bound, overlay.VXLAN, 1))
	works := w.working(connections)
	if len(works) != of[2] {
		w.Errorf("%d connections go on, of %d that the other mux has: by mux %v", len(works), of[2], of)
	}
	works = append(works, w.dialAll([]string{"bolt1", "bolt2"}, 2, 46000)...)
	w.all("one mux is dead", append(works, before...), 2, 2000)
	must(w.T, w.Revive(dies.Name))
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

// working are the connections that still get answers; the others are reset.
func (w *world) working(connections []*connection) (works []*connection) {
	w.Helper()
	type result struct {
		c   *connection
		err error
	}
	results := make(chan result)
	for _, c := range connections {
		go func() {
			err := c.SetDeadline(time.Now().Add(bound))
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
		switch {
		case r.err == nil:
			works = append(works, r.c)
		case !errors.Is(r.err, unix.ECONNRESET):
			w.Errorf("%s, which a dead mux had, ends by %v", r.c.mark, r.err)
		}
	}
	return works
}
