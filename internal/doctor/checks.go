package doctor

import (
	"context"
	"fmt"
	"slices"

	"github.com/weirlb/weir/internal/rpc"
)

// Level says how bad a finding is.
type Level string

// The levels, from good to bad.
const (
	OK   Level = "ok"
	Warn Level = "warn"
	Fail Level = "fail"
)

// Finding is a result of a check.
type Finding struct {
	Check  string `json:"check"` // name of the check: "xdp", "mtu"
	Level  Level  `json:"level"`
	Reason string `json:"reason"`         // what is there
	Next   string `json:"next,omitempty"` // remedy
}

// Role is the role of the machine.
type Role string

// The roles.
const (
	Mux     Role = "mux"
	Host    Role = "host"
	Manager Role = "manager"
)

// Subject is the machine, as its operator describes it.
type Subject struct {
	Role      Role
	Interface string // of a mux's packets, or a host's uplink
	Managers  string // URLs, separated by commas
	DataDir   string // with certificates; empty: they are not checked

	Connect func() (*rpc.Client, error) // to the managers, as the operator does
	Begin   func(check string)          // is told of each check that begins; nil: nobody is
}

// check is one check. It returns at least one finding.
type check struct {
	name string
	of   []Role
	run  func(ctx context.Context, s Subject) []Finding
}

var (
	everywhere = []Role{Mux, Host, Manager}
	dataPlanes = []Role{Mux, Host}
)

func checks() []check {
	return []check{
		{"kernel", dataPlanes, kernel},
		{"kernel-options", dataPlanes, kernelOptions},
		{"btf", dataPlanes, typesOfKernel},
		{"jit", dataPlanes, jit},
		{"bpffs", dataPlanes, pins},
		{"open-files", everywhere, openFiles},
		{"time", everywhere, timeSync},
		{"interface", dataPlanes, link},
		{"xdp", []Role{Mux}, nativeXDP},
		{"xdp-owner", dataPlanes, ownerOfXDP},
		{"offloads", []Role{Host}, offloads},
		{"offloads", []Role{Mux}, offloadsOfMux},
		{"rp-filter", dataPlanes, reversePath},
		{"tcp-timestamps", []Role{Host}, timestamps},
		{"syn-cookies", []Role{Host}, synCookies},
		{"firewall", everywhere, firewall},
		{"local-prefixes", []Role{Host}, localPrefixes},
		{"manager", everywhere, managers},
		{"certificates", everywhere, certificates},
		{"mtu", dataPlanes, checkRouteMTU},
	}
}

// Names lists the checks of a role, in their order.
func Names(role Role) []string {
	var names []string
	for _, c := range checks() {
		if slices.Contains(c.of, role) {
			names = append(names, c.name)
		}
	}
	return names
}

// Examine makes all checks of the subject's role, one after the other.
func Examine(ctx context.Context, s Subject) []Finding {
	var found []Finding
	for _, c := range checks() {
		if !slices.Contains(c.of, s.Role) {
			continue
		}
		if s.Begin != nil {
			s.Begin(c.name)
		}
		for _, f := range c.run(ctx, s) {
			f.Check = c.name
			found = append(found, f)
		}
	}
	return found
}

// Worst is the level of the worst finding.
func Worst(found []Finding) Level {
	worst := OK
	for _, f := range found {
		if f.Level == Fail || f.Level == Warn && worst == OK {
			worst = f.Level
		}
	}
	return worst
}

func ok(format string, args ...any) []Finding {
	return []Finding{{Level: OK, Reason: fmt.Sprintf(format, args...)}}
}

func bad(level Level, next, format string, args ...any) []Finding {
	return []Finding{{Level: level, Reason: fmt.Sprintf(format, args...), Next: next}}
}

// unknown is the finding of a check that could not be made.
func unknown(err error, next string) []Finding {
	return []Finding{{Level: Warn, Reason: "can't tell: " + err.Error(), Next: next}}
}
