package main

import (
	"fmt"
	"testing"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/testkit/fakemanager"
	"github.com/weirlb/weir/internal/wire"
)

// emptyHost is a snapshot without backends.
func emptyHost(generation model.Generation) wire.HostUpdate {
	return wire.HostUpdate{Generation: generation, Snapshot: true, HashKey: [40]byte{1}}
}

// An agent that was killed knows at its next start what it had seen: an old leader, which may be all that it reaches
// then, is not believed.
func TestAnOldManagerIsNotBelievedAfterARestart(t *testing.T) {
	h := newHost(t)
	hosts := &fakemanager.NewManager(t, h.NS, "127.0.0.1:7400").Hosts
	last := ""
	runs := func(generation model.Generation) func() bool {
		return func() bool {
			s, err := h.status()
			last = fmt.Sprint(s.Generation, err)
			return err == nil && s.Generation == generation
		}
	}
	hosts.Set(20, emptyHost(5))
	h.start()
	h.eventually("generation 5", runs(5), &last)
	h.kill()

	before := len(hosts.Streams())
	hosts.Set(19, emptyHost(9))
	h.start()
	h.eventually("the agent to refuse the old manager, and to try again", func() bool { return len(hosts.Streams()) >= before+2 }, &last)
	for _, r := range hosts.Streams()[before:] {
		if r.GetEpoch() != 20 || r.GetGeneration() != 5 || r.GetCluster() != fakemanager.Cluster {
			t.Errorf("the second start says %v", r)
		}
	}
	if !runs(5)() {
		t.Errorf("the agent runs generation %s of an old manager", last)
	}
	hosts.Set(21, emptyHost(6))
	h.eventually("a new one to be believed", runs(6), &last)
}
