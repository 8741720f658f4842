package rpc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// manager answers as a manager does, as much as the tests need.
type manager struct {
	weirv1connect.UnimplementedWeirServiceHandler
	weirv1connect.UnimplementedSyncServiceHandler
	version string
	streams atomic.Int64
}

func (m *manager) GetStatus(context.Context, *weirv1.GetStatusRequest) (*weirv1.GetStatusResponse, error) {
	return &weirv1.GetStatusResponse{Version: m.version}, nil
}

func (m *manager) ApplyVIPs(_ context.Context, r *weirv1.ApplyVIPsRequest) (*weirv1.ApplyVIPsResponse, error) {
	_, err := compile.VIPs(r.GetVips())
	return nil, NewError(connect.CodeInvalidArgument, err)
}

// SyncMux sends one message per stream and breaks it.
func (m *manager) SyncMux(_ context.Context, _ *weirv1.SyncMuxRequest, s *connect.ServerStream[weirv1.SyncMuxResponse]) error {
	return s.Send(&weirv1.SyncMuxResponse{Generation: uint64(m.streams.Add(1))})
}

func start(t *testing.T, version string) (*manager, string) {
	m, mux := &manager{version: version}, http.NewServeMux()
	mux.Handle(weirv1connect.NewWeirServiceHandler(m))
	mux.Handle(weirv1connect.NewSyncServiceHandler(m))
	server := httptest.NewUnstartedServer(mux)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return m, server.URL
}

// closedPort is an address where nothing listens.
func closedPort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

func client(t *testing.T, managers string) *Client {
	c, err := NewClient(managers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestNextManagerIsTried(t *testing.T) {
	_, second := start(t, "second")
	c := client(t, closedPort(t)+","+second)
	for range 2 {
		status, err := c.GetStatus(t.Context(), &weirv1.GetStatusRequest{})
		if err != nil || status.Version != "second" {
			t.Fatalf("got %v, %v, want the second manager's answer", status, err)
		}
	}
}

func TestUnreachableIsOneLineWithAdvice(t *testing.T) {
	address := closedPort(t)
	_, err := client(t, address).GetStatus(t.Context(), &weirv1.GetStatusRequest{})
	want := "reach the manager at " + strings.TrimPrefix(address, "http://") +
		": connection refused: check that weir-manager runs and listens there, or name another with --manager"
	if err == nil || err.Error() != want {
		t.Errorf("got %q\nwant %q", err, want)
	}
	_, err = client(t, "http://nowhere.invalid").GetStatus(t.Context(), &weirv1.GetStatusRequest{})
	if err == nil || !strings.HasPrefix(err.Error(), "reach the manager at nowhere.invalid:7400: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %q, want the host and the default port, in one line", err)
	}
}

// A manager that dies, or hangs, in the middle of a call is told as one that can't be reached.
func TestBrokenConnectionIsUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-ended })
	_, err = client(t, "http://"+l.Addr().String()).GetStatus(t.Context(), &weirv1.GetStatusRequest{})
	var unreachable *UnreachableError
	if !errors.As(err, &unreachable) || !strings.Contains(err.Error(), "the connection broke") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

func TestAddressesOfManagers(t *testing.T) {
	for in, want := range map[string]string{
		"http://a:1":          "http a:1",
		"a":                   "https a:7400",
		"a, https://b/":       "https a:7400 b:7400",
		"http://[2001:db8::]": "http [2001:db8::]:7400",
		"127.0.0.1:9":         "https 127.0.0.1:9",
	} {
		if got, scheme, err := parseManagers(in); err != nil || scheme+" "+strings.Join(got, " ") != want {
			t.Errorf("%q is %s %v, %v, want %s", in, scheme, got, err, want)
		}
	}
	for _, in := range []string{"", "https://a", "http://", "http://a/b", "http://a:x", "http://a,,http://b", "http://a,https://b", "ftp://a"} {
		if _, err := NewClient(in); err == nil {
			t.Errorf("%q was accepted", in)
		}
	}
}

func TestFieldErrorsCrossTheWire(t *testing.T) {
	_, url := start(t, "")
	bad := &weirv1.VIP{Name: "shop", Address: "203.0.113.1", Endpoints: []*weirv1.Endpoint{{Protocol: "TCP", Port: 70000}}}
	_, err := client(t, url).ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{bad}})
	fields := model.FieldErrors(err)
	if len(fields) != 1 || fields[0].Field != "vips[0].endpoints[0].port" || fields[0].Reason != "must be 1 to 65535, is 70000" {
		t.Fatalf("got %v from %v", fields, err)
	}
	var refused *Error
	if !errors.As(err, &refused) || refused.Code != connect.CodeInvalidArgument || connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("got %#v, want an *Error with its code", err)
	}
}

func TestFollowOpensTheStreamAgain(t *testing.T) {
	_, url := start(t, "")
	c := client(t, url)
	var logged strings.Builder
	log := slog.New(slog.NewTextHandler(&logged, nil))
	ctx, cancel := context.WithCancel(t.Context())
	var got []uint64
	err := Follow(ctx, log, "tables",
		func(ctx context.Context) (*connect.ServerStreamForClient[weirv1.SyncMuxResponse], error) {
			return c.SyncMux(ctx, &weirv1.SyncMuxRequest{})
		},
		func(m *weirv1.SyncMuxResponse) error {
			got = append(got, m.Generation)
			switch len(got) {
			case 2:
				return errors.New("the tables do not fit")
			case 4:
				cancel()
			}
			return nil
		})
	if err != nil || len(got) != 4 {
		t.Fatalf("followed %v, %v, want 4 streams and no error", got, err)
	}
	if !strings.Contains(logged.String(), "the tables do not fit") {
		t.Errorf("the error of apply was not logged:\n%s", &logged)
	}
}

func TestFollowLogsAnOutageOnce(t *testing.T) {
	var logged strings.Builder
	log := slog.New(slog.NewTextHandler(&logged, nil))
	ctx, cancel := context.WithCancel(t.Context())
	attempts := 0
	err := Follow(ctx, log, "tables",
		func(context.Context) (*connect.ServerStreamForClient[weirv1.SyncMuxResponse], error) {
			if attempts++; attempts == 4 {
				cancel()
			}
			return nil, errors.New("out of reach")
		},
		func(*weirv1.SyncMuxResponse) error { return nil })
	if n := strings.Count(logged.String(), "out of reach"); err != nil || n != 1 {
		t.Errorf("%d attempts were logged %d times, want once; returned %v", attempts, n, err)
	}
}

// A manager that is frozen takes connections, as its kernel does that, and answers nothing.
func TestManagersTakeTurns(t *testing.T) {
	var addresses []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	d := &dialer{addresses: addresses}
	for i := range 4 {
		conn, err := d.dial(t.Context(), "tcp", "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got, want := conn.RemoteAddr().String(), addresses[i%2]; got != want {
			t.Errorf("connection %d is to %s, want %s", i, got, want)
		}
	}
}

// HTTP opens connections beside each other and keeps one of them, which need not be the newest.
func TestAllConnectionsToAManagerAreLeft(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := &dialer{addresses: []string{l.Addr().String(), "127.0.0.1:1"}}
	var conns []net.Conn
	for range 3 {
		d.next.Store(0)
		conn, err := d.dial(t.Context(), "tcp", "")
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	conns[2].Close()
	d.closeAll()
	for i, conn := range conns {
		if _, err := conn.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("connection %d is open still: %v", i, err)
		}
		conn.Close()
	}
	if len(d.conns) != 0 {
		t.Errorf("%d connections are kept note of", len(d.conns))
	}
}

func TestAConfigurationKnowsMoreManagers(t *testing.T) {
	c := Config{Managers: []string{"https://lb.example", "https://10.0.0.1:7400/"}}
	if c.AddManagers("10.0.0.1:7400", "[::]:7400") {
		t.Errorf("it did not know one that it names, or that tells no address: %v", c.Managers)
	}
	if !c.AddManagers("10.0.0.1:7400", "[2001:db8::2]:7400") || strings.Join(c.Managers, " ") != "https://lb.example https://10.0.0.1:7400/ https://[2001:db8::2]:7400" {
		t.Errorf("it knows %v", c.Managers)
	}
}
