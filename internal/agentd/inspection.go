package agentd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/agentd/overlay"
	token "github.com/weirlb/weir/internal/multipath"
	"github.com/weirlb/weir/internal/wire"
)

// Bounds of what the manager asks for.
const (
	inspectionBacklog = 16
	inspectionTimeout = 5 * time.Second // of an answer
	maxConnections    = 1000            // in an answer
)

// inspection answers what operators ask of the host through the manager, one question at a time; an explanation, which
// takes a second of a CPU, beside the others.
type inspection struct {
	config     Config
	incoming   chan *weirv1.NodeTask
	explaining sync.Mutex
	under      sync.WaitGroup
}

func newInspection(config Config) *inspection {
	return &inspection{config: config, incoming: make(chan *weirv1.NodeTask, inspectionBacklog)}
}

// enqueue never blocks, as the stream carries the tables too.
func (i *inspection) enqueue(tasks []*weirv1.NodeTask) {
	for _, task := range tasks {
		if _, cancels := task.GetTask().(*weirv1.NodeTask_Cancel); cancels {
			continue // what is asked takes no time, or can't be ended
		}
		select {
		case i.incoming <- task:
		default:
			i.config.Log.Warn("too many tasks of the manager: one is left out")
		}
	}
}

func (i *inspection) run(ctx context.Context) error {
	defer i.under.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case task := <-i.incoming:
			if what := task.GetExplain(); what != nil && i.explaining.TryLock() {
				i.under.Go(func() {
					defer i.explaining.Unlock()
					explanation, err := i.explain(what.GetFrame())
					i.send(ctx, task.GetId(), &weirv1.AnswerTaskRequest{Explanation: explanation}, err)
				})
				continue
			}
			i.answer(ctx, task)
		}
	}
}

func (i *inspection) answer(ctx context.Context, task *weirv1.NodeTask) {
	answer := &weirv1.AnswerTaskRequest{}
	var err error
	switch what := task.GetTask().(type) {
	case *weirv1.NodeTask_Connections:
		answer.Connections, answer.NextRow, err = i.connections(what.Connections)
	case *weirv1.NodeTask_FindToken:
		answer.Holder, err = i.holder(what.FindToken)
	case *weirv1.NodeTask_Explain:
		err = errors.New("it explains another packet: ask again")
	default:
		err = errors.New("it does not know tasks of this kind: it is older than the manager")
	}
	i.send(ctx, task.GetId(), answer, err)
}

// send sends an answer, or why there is none.
func (i *inspection) send(ctx context.Context, id uint64, answer *weirv1.AnswerTaskRequest, err error) {
	answer.Name, answer.Id, answer.Done = i.config.Name, id, true
	if err != nil {
		answer.Error = err.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, inspectionTimeout)
	defer cancel()
	if _, err := i.config.Manager.AnswerTask(ctx, answer); err != nil {
		i.config.Log.Debug("answer a task of the manager", "err", err)
	}
}

func (i *inspection) connections(task *weirv1.ListConnectionsTask) ([]*weirv1.Connection, uint32, error) {
	vip, err := netip.ParseAddr(task.GetVip())
	if err != nil {
		return nil, 0, fmt.Errorf("read the VIP's address: %w", err)
	}
	found, next := overlay.Connections(i.config.Networks, vip, task.GetVni(), task.GetRow(), int(min(task.GetCount(), maxConnections)))
	all := make([]*weirv1.Connection, 0, len(found))
	for _, c := range found {
		all = append(all, connectionMessage(c))
	}
	return all, next, nil
}

// holder is the tunnel of the host that has a connection of Multipath TCP; empty: it is not known.
func (i *inspection) holder(task *weirv1.FindTokenTask) (string, error) {
	endpoint, err := wire.EndpointKeyFromProto(task.GetEndpoint())
	if err != nil || i.config.Multipath == nil {
		return "", err
	}
	tunnel, err := i.config.Multipath.HolderOf(token.Name{Endpoint: endpoint, Token: token.Token(task.GetToken())})
	if err != nil || !tunnel.IsValid() {
		return "", err
	}
	return tunnel.String(), nil
}

// explain says what the host makes of a frame.
func (i *inspection) explain(frame []byte) (*weirv1.PacketExplanation, error) {
	if err := wire.CheckExplainFrame(frame); err != nil {
		return nil, err
	}
	explanation, err := i.config.Explain(frame)
	if err != nil {
		return nil, err
	}
	generation, err := i.config.Datapath.Generation()
	if err != nil {
		return nil, err
	}
	return wire.ExplanationToProto(explanation, generation), nil
}

func connectionMessage(c overlay.Connection) *weirv1.Connection {
	p := &weirv1.Connection{
		Network: c.Network, Client: c.Client.String(), Vip: c.VIP.String(), Local: c.Local.String(), Protocol: c.Protocol.String(), State: c.State, Idle: durationpb.New(c.Idle),
	}
	if c.Backend.IsValid() {
		p.Backend = c.Backend.String()
	}
	return p
}
