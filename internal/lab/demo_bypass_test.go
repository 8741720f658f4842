package lab

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// A caller has one connection: when that ends it says so, and opens no other.
func TestACallerHasOneConnection(t *testing.T) {
	var opened atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := w.Write([]byte(`{"client": "` + r.RemoteAddr + `"}`)); err != nil {
			t.Error(err)
		}
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := newCaller("acme1", 0, conn)
	for range 3 {
		if local, err := c.call(); err != nil || local != conn.LocalAddr().String() {
			t.Fatalf("the server knows %s as %q (%v)", conn.LocalAddr(), local, err)
		}
	}
	server.CloseClientConnections()
	if _, err := c.call(); err == nil {
		t.Error("a call on a connection that has ended is answered")
	}
	if n := opened.Load(); n != 1 {
		t.Errorf("%d connections were opened", n)
	}
}
