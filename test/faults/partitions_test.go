package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/testkit/scrape"
)

// leaderAmong is the name of the manager that leads, as all of some say.
func (w *world) leaderAmong(t *testing.T, managers []string) (leader string) {
	t.Helper()
	w.eventually(t, func(ctx context.Context) error {
		leader = ""
		for _, r := range w.cluster.replicas {
			if !slices.Contains(managers, r.name) {
				continue
			}
			response, err := r.GetReplica(ctx, &weirv1.GetReplicaRequest{})
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			told := response.GetReplica().GetLeader()
			if !slices.Contains(managers, told) || leader != "" && leader != told {
				return fmt.Errorf("%s says that %q leads", r.name, told)
			}
			leader = told
		}
		return nil
	})
	return leader
}

// cutBoth has packets between some nodes and others lost both ways.
func (w *world) cutBoth(t *testing.T, from, to []string) {
	t.Helper()
	for _, a := range from {
		for _, b := range to {
			must(t, w.BlockBoth(a, b))
		}
	}
	w.log(t, "%v is cut off from %v (both ways)", from, to)
}

// reach waits until all muxes run a generation, whoever tells them.
func (w *world) reach(t *testing.T, generation uint64) {
	t.Helper()
	w.eventually(t, func(context.Context) error {
		for _, n := range w.Of(netlab.Mux) {
			running, err := w.running(n)
			if err != nil {
				return err
			}
			if running < generation {
				return fmt.Errorf("%s runs generation %d, not %d", n.Name, running, generation)
			}
		}
		return nil
	})
	w.log(t, "all muxes run generation %d", generation)
}

// running is the generation that a mux's program runs.
func (w *world) running(n netlab.Node) (uint64, error) {
	out, err := w.Run(n.Name, w.Find("weir-mux"), "status", "--pin-path", w.PinPath(n.Name), "-o", "json")
	if err != nil {
		return 0, err
	}
	var status struct{ Generation uint64 }
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		return 0, fmt.Errorf("read the status of %s: %w: %s", n.Name, err, out)
	}
	return status.Generation, nil
}

// managerAway cuts a manager off from the others for as long as it likes. Its nodes go to another one: what the
// others acknowledge meanwhile reaches every mux.
func managerAway(t *testing.T, w *world) {
	away := w.leader(t)
	if w.random.IntN(2) == 0 {
		away = one(w, w.others(away))
	}
	w.cut(t, []string{away}, w.others(away))
	w.leaderAmong(t, w.others(away))
	w.reach(t, w.mark(t))
	w.hold(t, w.long())
	w.reach(t, w.mark(t))
	w.heal(t)
	w.regained(t)
}

const (
	// tcpWait is how long managers are cut off from each other: TCP sends again what is lost after 0.2 s, 0.4 s and so on,
	// so after 25.4 s in all, and then not before 51 s.
	tcpWait = 27 * time.Second
	// longestRegain bounds how long after a partition the managers take to agree. It is less than TCP takes by itself.
	longestRegain = 20 * time.Second
)

// networkLost cuts all managers off from each other. When the network is back, they use it before TCP tries again to send
// what was lost.
func networkLost(t *testing.T, w *world) {
	managers := w.others()
	for i, name := range managers[1:] {
		w.cutBoth(t, []string{name}, managers[:i+1])
	}
	w.hold(t, tcpWait)
	w.heal(t)
	w.regained(t)
}

// regained holds that soon after a partition a change is made, and all managers know it.
func (w *world) regained(t *testing.T) {
	t.Helper()
	began := time.Now()
	must(t, netlab.Poll(t.Context(), longestRegain, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), callTime)
		defer cancel()
		generation, err := w.tryMark(ctx)
		for _, r := range w.cluster.replicas {
			if err == nil {
				err = w.current(ctx, r, generation)
			}
		}
		return err
	}))
	w.log(t, "all managers agree %.1f s after the partition", time.Since(began).Seconds())
}

// oldLeaderAsked lets nodes that know of a new leader reach the old one alone, which is cut off from the others, or
// was frozen until then. It refuses them, by what they say that they have seen, though their programs were killed
// meanwhile and start anew.
func oldLeaderAsked(t *testing.T, w *world) {
	old := w.leader(t)
	others, frozen := w.others(old), w.random.IntN(2) == 0
	mux := one(w, w.Of(netlab.Mux))
	nodes := []string{mux.Name, one(w, w.names(netlab.Host))}
	w.cutBoth(t, []string{old}, others)
	if frozen {
		w.freeze(t, old)
	}
	w.leaderAmong(t, others)
	generation := w.mark(t)
	w.reach(t, generation)
	before := 0.0
	if !frozen {
		before = w.refused(t, old)
	}
	w.cutBoth(t, nodes, others)
	restarted := w.random.IntN(2) == 0
	for i, program := range []string{"weir-mux", "weir-agent"} {
		if !restarted {
			break
		}
		p, err := w.Process(nodes[i], program)
		must(t, err)
		must(t, p.Stop(unix.SIGKILL, bound))
		_, err = w.Restart(nodes[i], program)
		must(t, err)
		w.log(t, "%s of %s is killed, and started again", program, nodes[i])
	}
	if frozen {
		w.thaw(t, old)
	}
	w.eventually(t, func(context.Context) error {
		if now := w.refused(t, old); now <= before {
			return fmt.Errorf("%s has refused no stream: %g before, %g now", old, before, now)
		}
		return nil
	})
	w.log(t, "%s has refused %g streams", old, w.refused(t, old)-before)
	w.hold(t, w.between(time.Second, 3*time.Second))
	running, err := w.running(mux)
	must(t, err)
	if running < generation {
		t.Errorf("%s runs generation %d, and ran %d before", mux.Name, running, generation)
	}
	w.heal(t)
}

// refused is how many streams a manager has refused as it is behind, or cut off.
func (w *world) refused(t *testing.T, manager string) (streams float64) {
	t.Helper()
	ns, err := w.NS(manager)
	must(t, err)
	caller := &http.Client{Transport: &http.Transport{DialContext: dialIn(ns), DisableKeepAlives: true}, Timeout: bound}
	text, err := metrics(caller, "http://127.0.0.1:7410/metrics")
	must(t, err)
	for _, role := range []string{"mux", "host"} {
		streams += scrape.Value(t, text, fmt.Sprintf("weir_manager_streams_refused_total{role=%q}", role))
	}
	return streams
}

// metrics are what a program shows at a URL.
func metrics(caller *http.Client, url string) (string, error) {
	response, err := caller.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// clockStepped steps the time of day of some programs, and back.
func clockStepped(t *testing.T, w *world) {
	leader := w.leader(t)
	victims := one(w, [][]string{
		{leader},
		{one(w, w.others(leader))},
		w.others(), w.names(netlab.Mux), w.names(netlab.Host),
		slices.Concat(w.others(), w.names(netlab.Mux), w.names(netlab.Host)),
	})
	by := w.between(time.Minute, time.Hour).Truncate(time.Second)
	if w.random.IntN(2) == 0 {
		by = -by
	}
	w.step(t, by, victims...)
	w.hold(t, w.between(6*time.Second, 12*time.Second))
	w.step(t, -by, victims...)
}
