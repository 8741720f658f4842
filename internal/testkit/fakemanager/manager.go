package fakemanager

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/wire"
)

// Cluster is the number of the manager's cluster, if it stamps its messages.
const Cluster = 7

// Manager plays one, without TLS.
type Manager struct {
	weirv1connect.UnimplementedSyncServiceHandler
	URL   string
	Muxes Part[wire.MuxUpdate, *weirv1.SyncMuxRequest]
	Hosts Part[wire.HostUpdate, *weirv1.SyncHostRequest]
	// Switches are what switches are told, and ask.
	Switches Part[wire.SwitchUpdate, *weirv1.SyncSwitchRequest]

	mu           sync.Mutex
	report       *weirv1.ReportMuxRequest
	switchReport *weirv1.ReportSwitchRequest
}

// NewManager serves at an address of ns until the test ends.
func NewManager(t *testing.T, ns *netns.NS, address string) *Manager {
	t.Helper()
	m := &Manager{}
	m.Muxes.updates, m.Hosts.updates, m.Switches.updates = make(chan wire.MuxUpdate), make(chan wire.HostUpdate), make(chan wire.SwitchUpdate)
	var listener net.Listener
	err := ns.Do(func() (err error) {
		listener, err = net.Listen("tcp", address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	m.URL = "http://" + listener.Addr().String()
	handlers := http.NewServeMux()
	handlers.Handle(weirv1connect.NewSyncServiceHandler(m))
	server := &http.Server{Handler: handlers, Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(listener) }() // ends when it is closed
	t.Cleanup(func() { server.Close() })
	return m
}

// SyncMux is the call of a mux.
func (m *Manager) SyncMux(ctx context.Context, r *weirv1.SyncMuxRequest, stream *connect.ServerStream[weirv1.SyncMuxResponse]) error {
	return m.Muxes.tell(ctx, r, func(u wire.MuxUpdate, epoch uint64) error {
		message := wire.MuxUpdateToProto(u)
		if epoch > 0 {
			message.Cluster, message.Epoch = Cluster, epoch
		}
		return stream.Send(message)
	})
}

// SyncHost is the call of an agent.
func (m *Manager) SyncHost(ctx context.Context, r *weirv1.SyncHostRequest, stream *connect.ServerStream[weirv1.SyncHostResponse]) error {
	return m.Hosts.tell(ctx, r, func(u wire.HostUpdate, epoch uint64) error {
		message := wire.HostUpdateToProto(u)
		if epoch > 0 {
			message.Cluster, message.Epoch = Cluster, epoch
		}
		return stream.Send(message)
	})
}

// SyncSwitch is the call of a switch's daemon.
func (m *Manager) SyncSwitch(ctx context.Context, r *weirv1.SyncSwitchRequest, stream *connect.ServerStream[weirv1.SyncSwitchResponse]) error {
	return m.Switches.tell(ctx, r, func(u wire.SwitchUpdate, epoch uint64) error {
		message := wire.SwitchUpdateToProto(u)
		if epoch > 0 {
			message.Cluster, message.Epoch = Cluster, epoch
		}
		return stream.Send(message)
	})
}

// ReportSwitch notes a switch's report.
func (m *Manager) ReportSwitch(_ context.Context, r *weirv1.ReportSwitchRequest) (*weirv1.ReportSwitchResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.switchReport = r
	return &weirv1.ReportSwitchResponse{}, nil
}

// SwitchReport is the last of a switch; nil: none has come.
func (m *Manager) SwitchReport() *weirv1.ReportSwitchRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.switchReport
}

// ReportMux notes a mux's report.
func (m *Manager) ReportMux(_ context.Context, r *weirv1.ReportMuxRequest) (*weirv1.ReportMuxResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report = r
	return &weirv1.ReportMuxResponse{}, nil
}

// ReportHost forgets an agent's report.
func (m *Manager) ReportHost(context.Context, *weirv1.ReportHostRequest) (*weirv1.ReportHostResponse, error) {
	return &weirv1.ReportHostResponse{}, nil
}

// Report is the last of a mux since the last call of Forget; nil: none has come.
func (m *Manager) Report() *weirv1.ReportMuxRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.report
}

// Forget forgets the last report.
func (m *Manager) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report = nil
}
