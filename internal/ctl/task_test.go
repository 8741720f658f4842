package ctl

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/rpc"
)

// doTasks answers as a mux whose program forwards everything to slot 1 would.
func doTasks(ctx context.Context, c *rpc.Client, name string, tasks []*weirv1.NodeTask) error {
	for _, task := range tasks {
		answer := &weirv1.AnswerTaskRequest{Name: name, Id: task.GetId(), Done: true}
		switch what := task.GetTask().(type) {
		case *weirv1.NodeTask_Explain:
			answer.Explanation = &weirv1.PacketExplanation{
				Verdict: "forward_cookie", Action: "transmit", Layer: "cookie", Slot: 1, Tunnel: "10.3.1.11", Buckets: 256,
				Endpoint: &weirv1.EndpointKey{Vip: "203.0.113.1", Protocol: "TCP", Port: 80},
				Frame:    append([]byte{0x45}, what.Explain.GetFrame()...), Generation: 7,
			}
		case *weirv1.NodeTask_Capture:
			if what.Capture.GetFilter().GetVerdict() == "drop_all" {
				answer.Error = "no verdict begins with drop_all"
				break
			}
			answer.Packets, answer.Lost = capturedPair(int(what.Capture.GetSnapLength())), 5
		default:
			continue
		}
		if _, err := c.AnswerTask(ctx, answer); err != nil {
			return err
		}
	}
	return nil
}

// capturedPair is a packet as it came and as it left.
func capturedPair(snap int) []*weirv1.CapturedPacket {
	at := timestamppb.New(time.Date(2026, 11, 21, 3, 0, 0, 123456789, time.UTC))
	frame := make([]byte, 60)
	copy(frame[12:], []byte{8, 0, 0x45})
	return []*weirv1.CapturedPacket{
		{Time: at, Direction: "in", Frame: frame[:min(snap, 60)], Length: 60, Verdict: "forward_cookie", Comment: "cookie, slot 1"},
		{Time: at, Direction: "out", Frame: append(frame, 0)[:min(snap, 61)], Length: 80, Verdict: "forward_cookie", Comment: "cookie, slot 1"},
	}
}

// counter reports counters that grow, with the newest report.
type counter struct {
	mu     sync.Mutex
	newest *weirv1.ReportMuxRequest // nil: it does not run yet
}

// follow makes the report the newest. The first one begins the counting, of the endpoint; it goes on until ctx ends
// or the manager is gone.
func (c *counter) follow(ctx context.Context, client *rpc.Client, report *weirv1.ReportMuxRequest, endpoint *weirv1.EndpointKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.newest == nil {
		go c.count(ctx, client, endpoint)
	}
	c.newest = proto.CloneOf(report)
}

func (c *counter) count(ctx context.Context, client *rpc.Client, endpoint *weirv1.EndpointKey) {
	for n := uint64(1); ; n++ {
		c.mu.Lock()
		report := proto.CloneOf(c.newest)
		c.mu.Unlock()
		report.Status.Verdicts = []*weirv1.NamedCounter{
			{Name: "forward_cookie", Packets: 1000 * n, Bytes: 100_000 * n},
			{Name: "drop_no_backend", Packets: 7 * n, Bytes: 70 * n},
			{Name: "pass_icmp", Packets: 7, Bytes: 70},
		}
		report.Status.Endpoints = []*weirv1.EndpointCounter{{Endpoint: endpoint, Packets: 1000 * n, Bytes: 100_000 * n}}
		if _, err := client.ReportMux(ctx, report); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}
