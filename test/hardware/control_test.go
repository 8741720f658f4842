package hardware

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/load"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/testkit/fabriclab"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

// core is the switch that serves the VIP which moves. Another VIP stays with the muxes.
const core = "core-1"

// tolerated is how many new connections may meet a failure that the design names: as many as there are in a second and a half.
const tolerated = 30

// plane is a fabric with three managers, of which what tells switches and hosts fails.
type plane struct {
	*fabriclab.World
	t     *testing.T
	draw  *rand.Rand
	full  bool   // not the short selection
	last  string // VIP whose move is looked at
	named string // a failure of new connections that the design names; empty: none
}

// scenario breaks something, lets time pass and mends it.
type scenario struct {
	name  string
	short bool // in the short selection
	run   func(*plane)
}

var scenarios = []scenario{
	{"manager killed in phases of a move", true, (*plane).managerKilled},
	{"leader frozen in a move", true, (*plane).leaderFrozen},
	{"agent frozen", true, (*plane).agentFrozen},
	{"weir-switch frozen", true, (*plane).switchFrozen},
	{"muxes away", true, (*plane).muxesAway},
	{"BGP to the border cut", true, (*plane).cutAbove},
	{"BGP to hosts cut", true, (*plane).cutBelow},
	{"tunnels full", true, (*plane).tunnelsFull},
}

// What tells switches and hosts may fail in any way: no connection breaks, a new one is answered, and each move ends.
func TestConnectionsSurviveTheControlPlane(t *testing.T) {
	t.Parallel()
	plan := fabriclab.Plan("hwcontrol", "1x1x1x2", 3)
	plan.Managers, plan.Clients = 3, 3
	w, err := fabriclab.New(t.Context(), testlab.Up(t, netlab.Config{Plan: plan}), 2)
	testlab.Must(t, err)
	for n := range max(1, *seeds) {
		for _, s := range scenarios {
			if *seeds == 0 && !s.short {
				continue
			}
			of := *seed + uint64(n)
			t.Run(fmt.Sprintf("%s/seed %d", s.name, of), func(t *testing.T) {
				(&plane{World: w, t: t, draw: rand.New(rand.NewPCG(of, 0)), full: *seeds > 0}).play(s)
			})
			if t.Failed() {
				return // what comes later would only tell of it again
			}
		}
	}
}

// play runs a scenario under connections that hold on, and new ones.
func (p *plane) play(s scenario) {
	p.t.Helper()
	p.place(core)
	// Longer than the VIP of the muxes is away without them, and TCP waits after that.
	held := fabriclab.Load{Streams: streams, Interval: 100 * time.Millisecond, Patience: 40 * time.Second}
	p.must(p.Hold(p.t.Context(), "held", held))
	asked, err := netload.StartLoad(p.t.Context(), p, "client3", load.Config{
		URL: fmt.Sprintf("http://%s:%d/", p.VIPs[0].Address, fabriclab.Port), Duration: time.Hour, Rate: 20, Timeout: 10 * time.Second,
	})
	p.must(err)
	before := p.dropped()
	s.run(p)
	p.must(p.WaitPlaced(p.t.Context()))
	p.must(p.WaitFabric(p.t.Context()))
	answers, err := asked.Stop()
	p.must(err)
	p.log("%d requests, %d failed, slowest %s", answers.Requests, answers.Failed, answers.Slowest.Round(time.Millisecond))
	for name, packets := range p.dropped() {
		if packets > before[name] {
			p.log("hosts: %d packets met %s", packets-before[name], name)
		}
	}
	failures := slices.DeleteFunc(slices.Clone(answers.Failures), func(f load.Failure) bool { return p.named != "" && strings.Contains(f.Error, p.named) })
	if answers.Requests == 0 || len(failures) > 0 || answers.Failed > tolerated {
		p.t.Errorf("%d of %d requests failed: %+v", answers.Failed, answers.Requests, answers.Failures[:min(3, len(answers.Failures))])
	}
	all, err := p.Release()
	p.must(err)
	for _, h := range all {
		r := h.Result
		p.log("%s: %d of %d broken, %d answers, %d datagrams lost, slowest %s", h.Name, r.Broken, r.Opened, r.Blocks, r.Lost, r.Slowest.Round(time.Millisecond))
		if r.Opened < streams || r.Broken > 0 {
			p.t.Errorf("%s: %d opened; broken: %+v", h.Name, r.Opened, r.Breaks[:min(3, len(r.Breaks))])
		}
	}
}

// dropped is how many packets hosts have dropped, by verdict.
func (p *plane) dropped() map[string]uint64 {
	p.t.Helper()
	all := map[string]uint64{}
	for _, n := range p.Of(netlab.Host) {
		verdicts, err := p.Verdicts(n.Name)
		p.must(err)
		for name, packets := range verdicts {
			if strings.HasPrefix(name, "drop_") {
				all[name] += packets
			}
		}
	}
	return all
}

func (p *plane) must(err error) {
	p.t.Helper()
	testlab.Must(p.t, err)
}

// log tells what is done, with the time, to be read beside the logs of programs.
func (p *plane) log(format string, args ...any) {
	p.t.Helper()
	p.t.Logf("%s %s", time.Now().UTC().Format("15:04:05.000"), fmt.Sprintf(format, args...))
}

// hold lets time pass, with all that is going on.
func (p *plane) hold(d time.Duration) {
	select {
	case <-p.t.Context().Done():
	case <-time.After(d):
	}
}

// minutes is how long something is away that everybody must live without for minutes.
func (p *plane) minutes() time.Duration {
	if p.full {
		return 2 * time.Minute
	}
	return 10 * time.Second
}

// want says which switches are to serve the VIP, and waits for nothing: phases are short.
func (p *plane) want(switches ...string) {
	p.t.Helper()
	p.VIPs[0].Switches, p.last = switches, p.VIPs[0].Name
	p.apply("wanted", p.Manifest(p.VIPs...))
}

// apply applies a manifest.
func (p *plane) apply(name, manifest string, flags ...string) {
	p.t.Helper()
	file := filepath.Join(p.Dir(), name+".yaml")
	p.must(os.WriteFile(file, []byte(manifest), 0o600))
	if out, err := p.Weir(append([]string{"apply", "-f", file}, flags...)...); err != nil {
		p.t.Fatalf("%v: %s", err, out)
	}
}

// place has switches serve the VIP, or the muxes.
func (p *plane) place(switches ...string) {
	p.t.Helper()
	p.want(switches...)
	p.must(p.WaitPlaced(p.t.Context()))
}

// signal sends a signal to a node's program.
func (p *plane) signal(signal unix.Signal, node, program string) {
	p.t.Helper()
	process, err := p.Process(node, program)
	p.must(err)
	p.must(process.Signal(signal))
}

// freeze stops a program as a hanging disk or hypervisor does, until thaw.
func (p *plane) freeze(node, program string) {
	p.t.Helper()
	p.signal(unix.SIGSTOP, node, program)
	p.log("%s of %s is frozen", program, node)
}

func (p *plane) thaw(node, program string) {
	p.t.Helper()
	p.signal(unix.SIGCONT, node, program)
	p.log("%s of %s wakes up", program, node)
}

// managers are those but for some.
func (p *plane) managers(but ...string) (names []string) {
	for _, n := range p.Of(netlab.Manager) {
		if !slices.Contains(but, n.Name) {
			names = append(names, n.Name)
		}
	}
	return names
}

// ask runs the command line against one manager.
func (p *plane) ask(manager string, args ...string) (string, error) {
	n, err := p.Node(manager)
	if err != nil {
		return "", err
	}
	args = append([]string{"--config", p.AdminFile(), "--manager", fmt.Sprintf("https://%s:7400", n.IPv4)}, args...)
	return p.Run(string(netlab.Router), p.Find("weir"), args...)
}

// leader is the manager that leads, as another one says.
func (p *plane) leader(but ...string) (name string) {
	p.t.Helper()
	p.must(netlab.Poll(p.t.Context(), testlab.Bound, func() error {
		out, err := p.ask(p.managers(but...)[0], "get", "managers", "-o", "json")
		if err != nil {
			return err
		}
		var all []struct {
			Name   string `json:"name"`
			Leader bool   `json:"leader"`
		}
		if err := json.Unmarshal([]byte(out), &all); err != nil {
			return fmt.Errorf("read the managers: %w: %s", err, out)
		}
		for _, m := range all {
			if m.Leader && !slices.Contains(but, m.Name) {
				name = m.Name
				return nil
			}
		}
		return fmt.Errorf("nobody leads: %s", out)
	}))
	return name
}

// phase is that of the VIP that moved last at the switch, as a manager says.
func (p *plane) phase(manager string) (string, error) {
	out, err := p.ask(manager, "placement", p.last)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) >= 4 && fields[2] == core {
			return fields[3], nil
		}
	}
	return "", nil
}

// waitPhase waits until a manager says that the VIP is in a phase.
func (p *plane) waitPhase(manager, phase string) {
	p.t.Helper()
	p.must(p.pollPhase(manager, testlab.Bound, phase))
}

func (p *plane) pollPhase(manager string, bound time.Duration, phase string) error {
	return netlab.Poll(p.t.Context(), bound, func() error {
		is, err := p.phase(manager)
		if err == nil && is != phase {
			err = fmt.Errorf("the VIP is %s at %s, not %s", is, core, phase)
		}
		return err
	})
}

// events counts those of the VIP with a reason.
func (p *plane) events(reason string) int {
	p.t.Helper()
	return len(testlab.Events(p.t, p.Lab, reason))
}
