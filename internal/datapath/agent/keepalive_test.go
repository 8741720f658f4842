package agent_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/datapath/agent"
	"github.com/weirlb/weir/internal/datapath/agent/session"
)

// shortTick has the clients' clock of a connection wrap within seconds.
const shortTick = time.Millisecond / 64

// TestKeepAlive leaves connections silent for longer than their clients' timestamps bear: the
// workload's next segment arrives all the same, and the sessions have not got younger.
func TestKeepAlive(t *testing.T) {
	w := newOrderedWorld(t)
	w.shortenClock()
	all := w.silentConnections()
	seen := w.lastSeen()
	asked := 0
	end := time.Now().Add(session.CookieBound(shortTick) * 5 / 4)
	for time.Now().Before(end) || asked < 3*len(all) && time.Now().Before(end.Add(patience)) { // it was a while that nobody looked
		time.Sleep(50 * time.Millisecond)
		w.must(w.host.Do(func() error {
			n, err := w.datapath.KeepAlive(session.Now())
			asked += n
			return err
		}))
	}
	if asked < 3*len(all) {
		t.Errorf("asked %d times for %d connections", asked, len(all))
	}
	for client, before := range seen {
		if after := w.lastSeen()[client]; after-before >= time.Second {
			t.Errorf("asking its workload made the session of %s younger by %s", client, after-before)
		}
	}
	for name, c := range all {
		if err := c.speak("still there"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.wantNoDrops()
	w.wantNoOddTimestamps()
}

// TestWithoutKeepAlive shows what KeepAlive is for: the client refuses the workload's segments.
func TestWithoutKeepAlive(t *testing.T) {
	w := newWorld(t)
	w.shortenClock()
	all := w.silentConnections()
	for end := time.Now().Add(session.CookieBound(shortTick) * 5 / 4); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
	}
	for _, c := range all {
		_, err := c.workload.Write([]byte("still there"))
		w.must(err)
	}
	w.eventually("the client refuses every workload's segment", func() bool {
		return w.tcpCounters(w.client)["PAWSEstab"] >= len(all)
	})
}

func (w *world) shortenClock() {
	w.t.Helper()
	w.must(w.datapath.Close(), w.host.Do(func() (err error) {
		w.datapath, err = agent.Open(agent.Config{
			Uplink: "uplink", PinPath: w.pins, MaxSessions: 1 << 12, CookieTick: shortTick,
		})
		return err
	}))
}

type bothEnds struct{ client, workload net.Conn }

// silentConnections are one through each way, over which a few bytes have gone both ways.
func (w *world) silentConnections() map[string]bothEnds {
	w.t.Helper()
	all := make(map[string]bothEnds)
	for name, way := range w.ways() {
		listener := listen(w.t, way.server, way.dip)
		c := bothEnds{client: dial(w.t, w.client, way.vip)}
		accepted, err := listener.Accept()
		w.must(err, listener.Close())
		c.workload = accepted
		w.t.Cleanup(func() { c.client.Close(); c.workload.Close() })
		_, err = c.client.Write([]byte("hello"))
		w.must(err)
		_, err = c.workload.Read(make([]byte, 5))
		w.must(err, c.speak("hello yourself"))
		all[name] = c
	}
	return all
}

// speak has the workload send and the client receive.
func (c bothEnds) speak(text string) error {
	if _, err := c.workload.Write([]byte(text)); err != nil {
		return err
	}
	buffer := make([]byte, 100)
	n, err := c.client.Read(buffer)
	if err != nil || string(buffer[:n]) != text {
		return fmt.Errorf("client got %q: %w", buffer[:n], err)
	}
	return nil
}

func (w *world) lastSeen() map[string]time.Duration {
	seen := make(map[string]time.Duration)
	for _, s := range w.sessions() {
		seen[s.Client.String()] = s.LastSeen
	}
	return seen
}
