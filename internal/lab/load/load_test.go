package load

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/echo"
)

func serve(t *testing.T, handle http.HandlerFunc) (url string, connections *atomic.Int64) {
	t.Helper()
	connections = &atomic.Int64{}
	server := httptest.NewUnstartedServer(handle)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return server.URL, connections
}

func answer(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set(echo.BackendHeader, "b1")
	w.Header().Set(echo.ClientHeader, "192.0.2.1")
}

func run(t *testing.T, config Config) Result {
	t.Helper()
	r, err := Run(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestEveryRequestIsCounted(t *testing.T) {
	for _, c := range []struct{ perConn, connections int }{{1, 100}, {10, 10}} {
		url, connections := serve(t, answer)
		r := run(t, Config{URL: url, Requests: 100, Concurrency: 1, PerConn: c.perConn})
		if r.Requests != 100 || r.Failed != 0 || r.Backends["b1"] != 100 || r.Clients["192.0.2.1"] != 100 {
			t.Errorf("%d on a connection: %+v", c.perConn, r)
		}
		if got := connections.Load(); got != int64(c.connections) {
			t.Errorf("%d on a connection: %d connections, want %d", c.perConn, got, c.connections)
		}
	}
}

func TestFailuresAreCountedAndRetried(t *testing.T) {
	var asked atomic.Int64
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1)%2 == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		answer(w, r)
	})
	r := run(t, Config{URL: url, Requests: 10, Concurrency: 1, Attempts: 2})
	if r.Requests != 10 || r.Failed != 0 || r.Retried != 10 || len(r.Failures) != 10 {
		t.Errorf("with a second attempt: %+v", r)
	}
	r = run(t, Config{URL: url, Requests: 10, Concurrency: 1})
	if r.Requests != 10 || r.Failed != 5 || r.Retried != 0 || r.Backends["b1"] != 5 {
		t.Errorf("without: %+v", r)
	}
}

func TestAttemptsAreRecordedWhenAsked(t *testing.T) {
	var asked atomic.Int64
	url, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		answer(w, nil)
	})
	began := time.Now()
	r := run(t, Config{URL: url, Requests: 3, Concurrency: 1, Record: true})
	if len(r.Attempts) != 3 || !r.Attempts[0].Failed || r.Attempts[1].Failed || r.Attempts[2].Failed {
		t.Fatalf("%+v", r.Attempts)
	}
	for _, a := range r.Attempts {
		if a.Started.Before(began) || a.Took <= 0 || a.Again != 0 {
			t.Errorf("%+v", a)
		}
	}
	if r := run(t, Config{URL: url, Requests: 3, Concurrency: 1}); len(r.Attempts) > 0 {
		t.Errorf("not asked for, recorded all the same: %+v", r.Attempts)
	}
}

func TestSilentServerEndsByTimeout(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // never accepts
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	r := run(t, Config{URL: "http://" + listener.Addr().String() + "/", Requests: 3, Rate: 100, Timeout: 50 * time.Millisecond})
	if r.Failed != 3 || r.Outage() <= 0 {
		t.Errorf("%+v, outage %v", r, r.Outage())
	}
}

func TestBadConfigurationIsRefused(t *testing.T) {
	for _, config := range []Config{{URL: "ftp://x/", Requests: 1}, {URL: "http://x/"}, {URL: "://", Requests: 1}} {
		if _, err := Run(context.Background(), config); err == nil {
			t.Errorf("%+v was accepted", config)
		}
	}
}
