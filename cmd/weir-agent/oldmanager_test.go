package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/testkit/netns"
)

// playedManager sends each stream an empty snapshot of an epoch and a generation that the test sets.
type playedManager struct {
	weirv1connect.UnimplementedSyncServiceHandler
	mu         sync.Mutex
	epoch      uint64
	generation uint64
	asked      []*weirv1.SyncHostRequest // all streams' so far
}

func playManager(t *testing.T, ns *netns.NS) *playedManager {
	t.Helper()
	m := &playedManager{}
	var listener net.Listener
	if err := ns.Do(func() (err error) {
		listener, err = net.Listen("tcp", "127.0.0.1:7400")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	handlers := http.NewServeMux()
	handlers.Handle(weirv1connect.NewSyncServiceHandler(m))
	server := &http.Server{Handler: handlers, Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return m
}

func (m *playedManager) SyncHost(ctx context.Context, r *weirv1.SyncHostRequest, stream *connect.ServerStream[weirv1.SyncHostResponse]) error {
	m.mu.Lock()
	m.asked = append(m.asked, r)
	message := rpc.HostUpdateToProto(rpc.HostUpdate{Generation: model.Generation(m.generation), Snapshot: true, HashKey: [40]byte{1}})
	message.Cluster, message.Epoch = 7, m.epoch
	m.mu.Unlock()
	if err := stream.Send(message); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func (m *playedManager) ReportHost(context.Context, *weirv1.ReportHostRequest) (*weirv1.ReportHostResponse, error) {
	return &weirv1.ReportHostResponse{}, nil
}

func (m *playedManager) set(epoch, generation uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch, m.generation = epoch, generation
}

func (m *playedManager) streams() []*weirv1.SyncHostRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.asked)
}

// An agent that was killed knows at its next start what it had seen: an old leader, which may be all that it reaches
// then, is not believed.
func TestAnOldManagerIsNotBelievedAfterARestart(t *testing.T) {
	h := newHost(t)
	m := playManager(t, h.NS)
	last := ""
	runs := func(generation model.Generation) func() bool {
		return func() bool {
			s, err := h.status()
			last = fmt.Sprint(s.Generation, err)
			return err == nil && s.Generation == generation
		}
	}
	m.set(20, 5)
	h.start()
	h.eventually("generation 5", runs(5), &last)
	h.kill()

	before := len(m.streams())
	m.set(19, 9)
	h.start()
	h.eventually("the agent to refuse the old manager, and to try again", func() bool { return len(m.streams()) >= before+2 }, &last)
	for _, r := range m.streams()[before:] {
		if r.GetEpoch() != 20 || r.GetGeneration() != 5 || r.GetCluster() != 7 {
			t.Errorf("the second start says %v", r)
		}
	}
	if !runs(5)() {
		t.Errorf("the agent runs generation %s of an old manager", last)
	}
	m.set(21, 6)
	h.eventually("a new one to be believed", runs(6), &last)
}
