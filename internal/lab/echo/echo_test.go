package echo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

func start(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler(Config{Backend: "host1-w1", Host: "host1"}))
	t.Cleanup(server.Close)
	return server
}

func do(t *testing.T, method, url, body string) (int, []byte) {
	t.Helper()
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, data
}

func TestAnswerTellsWhoAndWhom(t *testing.T) {
	server := start(t)
	_, body := do(t, "GET", server.URL+"/shop?x=1", "")
	var answer Answer
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Backend != "host1-w1" || answer.Host != "host1" || answer.Path != "/shop" || "http://"+answer.Server != server.URL {
		t.Errorf("answer %+v", answer)
	}
	if client, err := netip.ParseAddrPort(answer.Client); err != nil || !client.Addr().IsLoopback() {
		t.Errorf("client %q: %v", answer.Client, err)
	}
}

func TestHealthFailsWhenTold(t *testing.T) {
	server := start(t)
	for _, step := range []struct {
		tell string
		want int
	}{{"", 200}, {"fail", 503}, {"pass", 200}} {
		if step.tell != "" {
			do(t, "POST", server.URL+"/health/"+step.tell, "")
		}
		if status, _ := do(t, "GET", server.URL+"/healthz", ""); status != step.want {
			t.Errorf("after %q: status %d, want %d", step.tell, status, step.want)
		}
	}
}

func TestUploadIsTheDownload(t *testing.T) {
	server := start(t)
	const size = 200_003
	_, got := do(t, "GET", server.URL+"/bytes/200003", "")
	want, err := io.ReadAll(io.LimitReader(&Pattern{}, size))
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("download of %d bytes differs from the pattern: %v", len(got), err)
	}
	_, body := do(t, "PUT", server.URL+"/upload", string(got))
	var received Received
	if err := json.Unmarshal(body, &received); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(want)
	if received.Size != size || received.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("received %+v", received)
	}
}

func TestServeAnswersPacketsUntilTheEnd(t *testing.T) {
	probe, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := netip.MustParseAddrPort(probe.LocalAddr().String())
	probe.Close()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	listening := Config{Backend: "b", Listen: []netip.AddrPort{address}}
	go func() { ended <- Serve(ctx, listening) }()

	conn, err := net.Dial("udp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	buffer := make([]byte, 100)
	var n int
	for n == 0 { // refused until it listens
		if _, err := conn.Write([]byte("hello")); err != nil {
			continue
		}
		n, _ = conn.Read(buffer)
	}
	if want := "b " + conn.LocalAddr().String() + " hello"; string(buffer[:n]) != want {
		t.Errorf("answer %q, want %q", buffer[:n], want)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
