package manager

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/rpc"
)

// watching opens a watch and returns what gives its next message.
func watching(t *testing.T, client *rpc.Client, r *weirv1.WatchVIPsRequest) func() *weirv1.WatchVIPsResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	stream, err := client.WatchVIPs(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Close() })
	return func() *weirv1.WatchVIPsResponse {
		t.Helper()
		if !stream.Receive() {
			t.Fatalf("the watch ended: %v", stream.Err())
		}
		return stream.Msg()
	}
}

// want reads until a message that is no bookmark, and no repetition by conditions of the VIP seen last.
func want(t *testing.T, next func() *weirv1.WatchVIPsResponse, kind, name string) *weirv1.WatchVIPsResponse {
	t.Helper()
	for {
		m := next()
		if m.Type == kind && m.Vip.GetName() == name {
			return m
		}
		if m.Type != "bookmark" && m.Type != "modified" {
			t.Fatalf("got %s %s, want %s %s", m.Type, m.Vip.GetName(), kind, name)
		}
	}
}

func TestWatchVIPs(t *testing.T) {
	url, _ := start(t, Config{})
	client := dial(t, url)
	write := func(vip *weirv1.VIP) {
		t.Helper()
		if _, err := client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{vip}}); err != nil {
			t.Fatal(err)
		}
	}
	write(bare("a", "203.0.113.1", "app=shop"))
	write(bare("b", "203.0.113.2", "app=blog"))
	next := watching(t, client, &weirv1.WatchVIPsRequest{LabelSelector: "app=shop"})
	want(t, next, "added", "a")
	listed := want(t, next, "bookmark", "")

	write(bare("b", "203.0.113.2", "app=shop"))
	want(t, next, "added", "b") // it was there, and is chosen now
	write(bare("a", "203.0.113.3", "app=shop"))
	if m := want(t, next, "modified", "a"); m.Vip.Address != "203.0.113.3" {
		t.Errorf("got %v", m.Vip)
	}
	write(bare("b", "203.0.113.2"))
	want(t, next, "deleted", "b") // it is there, and is not chosen any more
	if _, err := client.DeleteVIP(t.Context(), &weirv1.DeleteVIPRequest{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	if m := want(t, next, "deleted", "a"); m.ResourceVersion <= listed.ResourceVersion {
		t.Errorf("resource versions do not grow: %d, then %d", listed.ResourceVersion, m.ResourceVersion)
	}

	// From before: what became of a and b since, once each.
	again := watching(t, client, &weirv1.WatchVIPsRequest{ResourceVersion: listed.ResourceVersion})
	for {
		m := again()
		if m.Type == "deleted" && m.Vip.Name == "a" {
			break
		}
		if m.Type == "added" || m.Type == "deleted" {
			t.Errorf("got %s %s", m.Type, m.Vip.Name)
		}
	}
}

func TestWatchOutOfRange(t *testing.T) {
	dir := t.TempDir()
	url, stop := start(t, Config{DataDir: dir})
	client := dial(t, url)
	list, err := client.ListVIPs(t.Context(), &weirv1.ListVIPsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CreateVIP(t.Context(), &weirv1.CreateVIPRequest{Vip: bare("a", "203.0.113.1")}); err != nil {
		t.Fatal(err)
	}
	stop() // the journal is gone with it
	url, _ = start(t, Config{DataDir: dir})
	client = dial(t, url)
	for version, text := range map[uint64]string{list.ResourceVersion: "is not known here any more: list again", 1 << 40: "is newer than the newest"} {
		stream, err := client.WatchVIPs(t.Context(), &weirv1.WatchVIPsRequest{ResourceVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		for stream.Receive() {
			t.Errorf("from %d: got %v", version, stream.Msg())
		}
		if err := stream.Err(); connect.CodeOf(err) != connect.CodeOutOfRange || !strings.Contains(err.Error(), text) {
			t.Errorf("from %d: %v, want %s", version, err, text)
		}
		stream.Close()
	}
	if code, answer := call(t, "GET", url+"/v1/vips:watch?resourceVersion=1", ""); code != 400 || !strings.Contains(answer["message"].(string), "list again") {
		t.Errorf("REST: %d %v", code, answer)
	}
}

func TestWatchByREST(t *testing.T) {
	url, _ := start(t, Config{}, func(m *Manager) { m.resources.Bookmark = 20 * time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/vips:watch?namePrefix=a", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if kind := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK || kind != "application/x-ndjson" {
		t.Fatalf("%s %s", response.Status, kind)
	}
	if _, err := dial(t, url).CreateVIP(t.Context(), &weirv1.CreateVIPRequest{Vip: bare("a", "203.0.113.1")}); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		var line struct {
			Type string
			VIP  struct{ Name string }
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		if line.Type == "added" && line.VIP.Name == "a" {
			return
		}
	}
	t.Errorf("the watch ended: %v", errors.Join(lines.Err(), ctx.Err()))
}
