package faults

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/netlab"
)

// five is the lab of five managers.
func five() string { return *labName + "5" }

// longestPause bounds how long no write may be answered when two of five managers are lost, and how long somebody waits
// for a change to be on all muxes.
const longestPause = 5 * time.Second

// Configuration goes on when two of five managers are lost, the leader with them.
func TestTwoOfFive(t *testing.T) {
	if *seeds == 0 {
		t.Skip("one of the scenarios that make faults runs")
	}
	lab := newLab(t, netlab.Plan{Name: five(), Clients: 3, Managers: 5, Muxes: 2, Hosts: 2, Workloads: 2, Outside: 1})
	ports := prepare(t, lab)
	c := newCluster(t, lab, operator)
	for i := range *seeds {
		w := &world{
			Lab: lab, random: rand.New(rand.NewPCG(*firstSeed+uint64(i), 5)), full: true, cluster: c, history: newHistory(),
			ports: ports,
		}
		var lost []string
		var u *users
		w.play(t, scenario{name: "two of five lost", run: func(t *testing.T, w *world) {
			leader := w.leader(t)
			lost = []string{leader, one(w, w.others(leader))}
			u = w.startUsers(t)
			if w.random.IntN(2) == 0 {
				w.kill(t, lost...)
				w.hold(t, w.between(6*time.Second, 10*time.Second))
				w.restart(t, lost...)
				return
			}
			w.freeze(t, lost...)
			w.hold(t, w.between(6*time.Second, 10*time.Second))
			w.thaw(t, lost...)
		}})
		paused, one, command := u.stop(t, lost)
		t.Logf("no write was answered for %.2f s, by one of the managers for %.2f s; the slowest command took %.2f s",
			paused.Seconds(), one.Seconds(), command.Seconds())
		for what, longest := range map[string]time.Duration{
			"no write was answered": paused, "a manager answered no write": one, "a command that waits for all muxes took": command,
		} {
			if longest > longestPause {
				t.Errorf("%s for %v, more than %v", what, longest, longestPause)
			}
		}
	}
}
