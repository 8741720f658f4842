package faults

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/netlab"
)

// scenario breaks something, lets time pass and mends it. What it breaks and for how long is drawn from the
// seed.
type scenario struct {
	name  string
	short bool // in the short selection
	run   func(*testing.T, *world)
}

var scenarios = []scenario{
	{"leader killed", true, leaderKilled},
	{"leader frozen", true, leaderFrozen},
	{"leader cut off from the others", true, leaderCutOff},
	{"follower cut off from the others", false, followerCutOff},
	{"manager cut off from muxes", false, cutOffFrom(netlab.Mux)},
	{"manager cut off from agents", false, cutOffFrom(netlab.Host)},
	{"manager away", false, managerAway},
	{"old leader asked", false, oldLeaderAsked},
	{"network between managers lost", false, networkLost},
	{"majority lost and regained", true, majorityLost},
	{"disk full", false, diskFull},
	{"mux cut off", true, nodeCutOff(netlab.Mux)},
	{"agent cut off", false, nodeCutOff(netlab.Host)},
	{"all at once", false, allAtOnce},
	{"clock stepped", true, clockStepped},
}

func TestFaults(t *testing.T) {
	lab := newLab(t, netlab.Plan{Name: *labName, Clients: 3, Managers: 3, Muxes: 3, Hosts: 2, Workloads: 2, Outside: 1})
	playAll(t, lab, scenarios)
}

// playAll plays the scenarios with each seed, or the short ones with one.
func playAll(t *testing.T, lab *netlab.Lab, all []scenario) {
	t.Helper()
	ports := prepare(t, lab)
	c := newCluster(t, lab, operator)
	for i := range max(1, *seeds) {
		for _, s := range all {
			if *seeds == 0 && !s.short {
				continue
			}
			seed := *firstSeed + uint64(i)
			t.Run(fmt.Sprintf("%s/seed %d", s.name, seed), func(t *testing.T) {
				w := &world{
					Lab: lab, random: rand.New(rand.NewPCG(seed, 0)), full: *seeds > 0, cluster: c, history: newHistory(), ports: ports,
				}
				w.play(t, s)
			})
			if t.Failed() {
				return // what comes later would only tell of it again
			}
		}
	}
}

// prepare applies what the data plane's clients use, and looks from then on at who has which ports.
func prepare(t *testing.T, lab *netlab.Lab) *ports {
	t.Helper()
	file := filepath.Join(lab.Dir(), "serving.yaml")
	must(t, os.WriteFile(file, []byte(serving(lab)), 0o600))
	if out, err := lab.Weir("apply", "-f", file, "--wait"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	must(t, lab.WaitHealthy(t.Context(), bound))
	return watchPorts(t, lab)
}

// play runs a scenario with clients of both planes at work, before, during and after.
func (w *world) play(t *testing.T, s scenario) {
	t.Helper()
	w.clear(t)
	traffic := w.startTraffic(t)
	stop := w.start(t.Context())
	stopped := false
	defer func() {
		if !stopped {
			stop()
		}
	}()
	w.hold(t, w.between(time.Second, 2*time.Second))
	s.run(t, w)
	w.hold(t, w.between(time.Second, 2*time.Second))
	stop()
	stopped = true
	w.well(t)
	traffic.unbroken(t)
	w.portsAgree(t)
	consistent(t, w.history.entries())
}

// long is how long something that a control plane must live with for minutes lasts.
func (w *world) long() time.Duration {
	if w.full {
		return w.between(60*time.Second, 120*time.Second)
	}
	return w.between(8*time.Second, 12*time.Second)
}

func leaderKilled(t *testing.T, w *world) {
	leader := w.leader(t)
	w.kill(t, leader)
	w.hold(t, w.between(2*time.Second, 8*time.Second))
	w.restart(t, leader)
}

// A leader that sleeps for longer than the others wait does not know that it leads no more when it wakes up.
func leaderFrozen(t *testing.T, w *world) {
	leader := w.leader(t)
	w.freeze(t, leader)
	if w.full {
		w.hold(t, 30*time.Second)
	} else {
		w.hold(t, w.between(8*time.Second, 12*time.Second))
	}
	w.thaw(t, leader)
	w.hold(t, 2*time.Second)
}

func leaderCutOff(t *testing.T, w *world) {
	leader := w.leader(t)
	w.cut(t, []string{leader}, w.others(leader))
	w.hold(t, w.between(6*time.Second, 12*time.Second))
	w.heal(t)
}

func followerCutOff(t *testing.T, w *world) {
	follower := one(w, w.others(w.leader(t)))
	w.cut(t, []string{follower}, w.others(follower))
	w.hold(t, w.between(6*time.Second, 12*time.Second))
	w.heal(t)
}

// cutOffFrom cuts a manager off from all nodes of a kind: they must find another.
func cutOffFrom(kind netlab.Kind) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		manager := w.leader(t)
		if w.random.IntN(2) == 0 {
			manager = one(w, w.others(manager))
		}
		w.cut(t, []string{manager}, w.names(kind))
		w.hold(t, w.between(15*time.Second, 25*time.Second))
		w.heal(t)
	}
}

func majorityLost(t *testing.T, w *world) {
	lost := w.others(one(w, w.others()))
	how := one(w, []string{"killed", "frozen", "cut off"})
	switch how {
	case "killed":
		w.kill(t, lost...)
	case "frozen":
		w.freeze(t, lost...)
	case "cut off":
		for i, name := range lost {
			w.cut(t, []string{name}, append(w.others(lost...), lost[:i]...))
		}
	}
	w.hold(t, w.between(5*time.Second, 10*time.Second))
	switch how {
	case "killed":
		w.restart(t, lost...)
	case "frozen":
		w.thaw(t, lost...)
	case "cut off":
		w.heal(t)
	}
}

// diskFull fills the disk of one manager, which either goes on or ends with a line that says why.
func diskFull(t *testing.T, w *world) {
	manager := w.leader(t)
	if w.random.IntN(2) == 0 {
		manager = one(w, w.others(manager))
	}
	w.disk(t, manager, 160<<20)
	w.hold(t, w.between(3*time.Second, 5*time.Second))
	w.fill(t, manager)
	w.hold(t, w.between(15*time.Second, 25*time.Second))
	w.empty(t, manager)
	if p, err := w.Process(manager, "weir-manager"); err == nil && !p.Running() {
		w.log(t, "%s has ended: %s", manager, lastLine(w.Log(manager, p.Name)))
		w.restart(t, manager)
	}
	w.hold(t, w.between(2*time.Second, 4*time.Second))
	w.undisk(t, manager)
}

// nodeCutOff cuts a mux or an agent off from all managers.
func nodeCutOff(kind netlab.Kind) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		w.cut(t, []string{one(w, w.names(kind))}, w.others())
		w.hold(t, w.long())
		w.heal(t)
	}
}

// allAtOnce draws several faults that overlap.
func allAtOnce(t *testing.T, w *world) {
	victims := w.others()
	w.random.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
	frozen, killed, cut := victims[0], victims[1], victims[2]
	breaks := []func(){
		func() { w.freeze(t, frozen) },
		func() { w.kill(t, killed) },
		func() { w.cut(t, []string{cut}, slices.Concat(w.others(cut), w.names(netlab.Mux))) },
	}
	mends := []func(){func() { w.thaw(t, frozen) }, func() { w.restart(t, killed) }, func() { w.heal(t) }}
	order := w.random.Perm(len(breaks))
	for _, i := range order {
		breaks[i]()
		w.hold(t, w.between(time.Second, 4*time.Second))
	}
	w.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, i := range order {
		mends[i]()
		w.hold(t, w.between(time.Second, 4*time.Second))
	}
}
