package progress

import (
	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// Nodes is the progress of the nodes whose streams one manager holds.
type Nodes struct {
	Notes      string           // key of the manager's notes in the store
	HostsReady model.Generation // 0: it has no hosts
	Muxes      map[string]Mux
	Floor      model.Generation // that its muxes have processed, but for excluded ones; other managers compute it
}

// Mux is the progress of a mux, as it acknowledged on its stream.
type Mux struct {
	Runs     model.Generation
	Answered model.Generation // processed: it runs it, rejected it, or runs it except for pending prefix lists
	Joins    bool             // it has just started, and announces nothing before it acknowledges
}

// Advances says whether the leader may act on the change since before: the slowest mux got on, or muxes came or went.
func (n Nodes) Advances(before Nodes) bool {
	if n.Floor != before.Floor || len(n.Muxes) != len(before.Muxes) {
		return true
	}
	for name, m := range n.Muxes {
		if was, there := before.Muxes[name]; !there || was.Joins != m.Joins {
			return true
		}
	}
	return false
}

// Differing are the muxes whose progress is not the same in both.
func (n Nodes) Differing(other Nodes) (muxes []string) {
	for name, m := range n.Muxes {
		if is, there := other.Muxes[name]; !there || is != m {
			muxes = append(muxes, name)
		}
	}
	for name := range other.Muxes {
		if _, there := n.Muxes[name]; !there {
			muxes = append(muxes, name)
		}
	}
	return muxes
}

// ToProto writes the message of a stream.
func (n Nodes) ToProto() *weirv1.FollowProgressResponse {
	p := &weirv1.FollowProgressResponse{Notes: n.Notes, HostsReady: uint64(n.HostsReady)}
	for name, m := range n.Muxes {
		p.Muxes = append(p.Muxes, &weirv1.MuxProgress{
			Name: name, Generation: uint64(m.Runs), Answered: uint64(m.Answered), Joins: m.Joins,
		})
	}
	return p
}

// FromProto reads it.
func FromProto(p *weirv1.FollowProgressResponse) Nodes {
	n := Nodes{
		Notes: p.GetNotes(), HostsReady: model.Generation(p.GetHostsReady()),
		Muxes: make(map[string]Mux, len(p.GetMuxes())),
	}
	for _, m := range p.GetMuxes() {
		n.Muxes[m.GetName()] = Mux{
			Runs: model.Generation(m.GetGeneration()), Answered: model.Generation(m.GetAnswered()), Joins: m.GetJoins(),
		}
	}
	return n
}
