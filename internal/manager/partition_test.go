package manager

import (
	"strings"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/replica"
)

// A manager that is cut off from the others sends its nodes to another one, takes none, and answers reads; when it
// is back, nodes come again.
func TestNodesLeaveAManagerThatIsCutOff(t *testing.T) {
	t.Parallel()
	impatient := func(m *Manager) { m.replica.PartitionedAfter = 3 * time.Second }
	var urls []string
	var stops []func()
	configs := make([]Config, 3)
	for i, name := range []string{"m1", "m2", "m3"} {
		configs[i] = Config{Name: name, PeerListen: freeAddress(t), DataDir: t.TempDir()}
		joins := configs[i]
		if i > 0 {
			joins.Join = urls[0]
		}
		url, stop := start(t, joins, impatient)
		urls, stops = append(urls, url), append(stops, stop)
	}
	client := dial(t, urls[2])
	startHost(t, urls[2], "host1", "10.2.1.2")
	startHost(t, urls[2], "host2", "10.2.2.2")
	eventually(t, "both are connected", func() bool { return nodes(t, client) == 2 })
	apply(t, urls[2], shop())
	open := func() (first bool, err error) {
		stream, err := client.SyncMux(t.Context(), &weirv1.SyncMuxRequest{Name: "mux1", Addresses: []string{"10.1.1.2"}})
		if err != nil {
			return false, err
		}
		defer stream.Close()
		first = stream.Receive()
		for stream.Receive() { // until the manager ends it
		}
		return first, stream.Err()
	}
	ended := make(chan error, 1)
	go func() {
		_, err := open()
		ended <- err
	}()
	eventually(t, "the mux is connected", func() bool { return nodes(t, client) == 3 })
	stops[0]()
	stops[1]()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), replica.ErrPartitioned.Error()) {
		t.Errorf("the stream ended with: %v", err)
	}
	if first, err := open(); first || err == nil || !strings.Contains(err.Error(), replica.ErrPartitioned.Error()) {
		t.Errorf("a mux that comes gets a message: %t, and %v", first, err)
	}
	if r, err := client.GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: "shop"}); err != nil || r.GetVip().GetName() != "shop" {
		t.Errorf("a read is answered %v, %v", r, err)
	}
	start(t, configs[0], impatient)
	startMux(t, urls[2], "mux1", "10.1.1.2")
	eventually(t, "the mux is connected again", func() bool { return nodes(t, client) == 3 })
}
