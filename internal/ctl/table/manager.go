package table

import (
	"fmt"
	"strings"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// Managers has a row for each replica of the manager.
func Managers(managers []*weirv1.Manager) *Table {
	t := New("", "no managers", "NAME", "ROLE", "STATE", "GENERATION", "STORE", "ADDRESS", "PEER ADDRESS", "VERSION")
	for _, m := range managers {
		r := m.GetReplica()
		t.Add(m.GetName(), managerRole(m), managerState(m), r.GetGeneration(),
			fmt.Sprintf("%.1f MiB", float64(r.GetStoreBytes())/(1<<20)), m.GetAddress(), m.GetPeerAddress(), r.GetVersion())
	}
	return t
}

func managerRole(m *weirv1.Manager) string {
	switch {
	case m.GetLeader():
		return "leader"
	case m.GetLearner():
		return "learner"
	}
	return "follower"
}

// managerState is what is wrong with a manager, or that it is well.
func managerState(m *weirv1.Manager) string {
	switch {
	case m.GetProblem() != "":
		return "away: " + m.GetProblem()
	case len(m.GetReplica().GetWarnings()) > 0:
		return strings.Join(m.GetReplica().GetWarnings(), "; ")
	}
	return "well"
}
