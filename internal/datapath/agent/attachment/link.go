package attachment

import "strings"

// Names of pinned links, which are those of the uplink's programs.
const (
	FromUplink = "from_uplink"
	ToUplink   = "to_uplink"
	// workloadPrefix begins the names of from_workload's links; the ifindex ends them.
	workloadPrefix = "from_workload_"
)

// ProgramOf is the program that a pinned link runs; empty: no link has that name.
func ProgramOf(name string) string {
	switch {
	case name == FromUplink, name == ToUplink:
		return name
	case strings.HasPrefix(name, workloadPrefix):
		return "from_workload"
	}
	return ""
}
