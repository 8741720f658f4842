package agent_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
)

// Rows as the first version had them, which testdata/first.o.gz is the programs of.
type (
	firstAddress [4]uint32
	firstRuleKey struct {
		VIP, Tunnel   firstAddress
		Port          uint16
		Protocol, Pad uint8
	}
	firstRule struct {
		DIP       firstAddress
		Port, Pad uint16
	}
	firstSettings struct {
		Generation  uint64
		Uplink, MTU uint32
	}
)

func toFirst(a string) firstAddress { return abi.Words(netip.MustParseAddr(a)) }

// TestUpgradeFromTheFirstVersion migrates its tables while connections live: none breaks, and their
// sessions go on as what they are. Those that begin afterwards carry cookies.
func TestUpgradeFromTheFirstVersion(t *testing.T) {
	w := newOrderedWorld(t)
	w.must(w.datapath.Unload())
	w.datapath = nil
	w.startFirst()

	silent := w.silentConnections()
	done := make(chan error)
	for _, way := range w.ways() {
		listener, size := listen(t, way.server, way.dip), 60<<20
		go func() { done <- serveAll(listener, size) }()
		connection := dial(t, w.client, way.vip)
		t.Cleanup(func() { connection.Close() })
		go func() { done <- exchange(connection, size) }()
	}
	w.start()
	for range 2 * len(w.ways()) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for name, c := range silent {
		if err := c.speak("from before"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if g, err := w.datapath.Generation(); err != nil || g != 41 {
		t.Errorf("generation is %d (%v), not 41", g, err)
	}
	for _, s := range w.sessions() {
		if s.Cookie != 0 {
			t.Errorf("session from before cookies has one: %s", s)
		}
	}
	w.wantNoDrops()

	w.fill() // as the manager does, with slots
	for _, c := range w.silentConnections() {
		if got := w.cookieOf(c.client.LocalAddr()); got != slot {
			t.Errorf("cookie of a new connection is %d, not %d", got, slot)
		}
	}
	w.must(w.datapath.Close())
	w.start() // adopts what was migrated
	for name, c := range silent {
		if err := c.speak("still"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.wantNoOddTimestamps()
}

// startFirst runs the first version's data plane, with the tables of fill.
func (w *world) startFirst() {
	w.t.Helper()
	collection := w.loadFirst()
	defer collection.Close()
	live := filepath.Join(w.pins, "live")
	w.must(os.MkdirAll(live, 0o700))
	for name, m := range collection.Maps {
		w.must(m.Pin(filepath.Join(live, strings.TrimPrefix(name, ".data."))))
	}
	uplink, err := w.host.Index("uplink")
	w.must(err)
	w0, err := w.host.Index("w0")
	w.must(err)
	tables := collection.Maps
	w.must(
		tables[".data.settings"].Put(uint32(0), firstSettings{41, uint32(uplink), 1500}),
		tables["muxes"].Put(toFirst("10.77.2.254"), uint8(1)), tables["muxes"].Put(toFirst("fd77:2::254"), uint8(1)),
		tables["tunnels"].Put(toFirst(hostDIP4), uint8(1)), tables["tunnels"].Put(toFirst(workloadDIP6), uint8(1)))
	for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
		for _, b := range []model.HostBackend{
			backend(protocol, nativeVIP4, hostDIP4, hostDIP4), backend(protocol, nativeVIP6, hostDIP4, hostDIP6),
			backend(protocol, interfaceVIP4, workloadDIP6, workloadDIP4), backend(protocol, interfaceVIP6, workloadDIP6, workloadDIP6),
		} {
			w.must(tables["nat_rules"].Put(
				firstRuleKey{abi.Words(b.Endpoint.VIP), abi.Words(b.Tunnel), abi.Port(b.Endpoint.Port), uint8(protocol), 0},
				firstRule{abi.Words(b.Backend.Addr()), abi.Port(b.Backend.Port()), 0}))
		}
	}
	for dip, at := range map[string]int{hostDIP4: 0, hostDIP6: 0, workloadDIP4: w0, workloadDIP6: w0} {
		w.must(tables["workloads"].Put(toFirst(dip), uint32(at)))
	}
	programs := collection.Programs
	w.attachFirst("from_uplink", uplink, programs["from_uplink"], ebpf.AttachTCXIngress)
	w.attachFirst("to_uplink", uplink, programs["to_uplink"], ebpf.AttachTCXEgress)
	w.attachFirst("from_workload_"+strconv.Itoa(w0), w0, programs["from_workload"], ebpf.AttachTCXIngress)
}

func (w *world) loadFirst() *ebpf.Collection {
	w.t.Helper()
	file, err := os.Open("testdata/first.o.gz")
	w.must(err)
	defer file.Close()
	packed, err := gzip.NewReader(file)
	w.must(err)
	object, err := io.ReadAll(packed)
	w.must(err)
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	w.must(err)
	spec.Maps["sessions"].MaxEntries = 1 << 12
	collection, err := ebpf.NewCollection(spec)
	w.must(err)
	return collection
}

func (w *world) attachFirst(name string, at int, program *ebpf.Program, where ebpf.AttachType) {
	w.t.Helper()
	var attached link.Link
	w.must(w.host.Do(func() (err error) {
		attached, err = link.AttachTCX(link.TCXOptions{Interface: at, Program: program, Attach: where})
		return err
	}))
	w.must(attached.Pin(filepath.Join(w.pins, "live", name)), attached.Close())
}

// TestOtherSizes keeps sessions and connections in tables of another size.
func TestOtherSizes(t *testing.T) {
	w := newOrderedWorld(t)
	silent := w.silentConnections()
	before := len(w.sessions())
	for _, size := range []int{77, 1 << 13} {
		w.must(w.datapath.Close(), w.host.Do(func() (err error) {
			w.datapath, err = agent.Open(agent.Config{Uplink: "uplink", PinPath: w.pins, MaxSessions: size})
			return err
		}))
		if after := len(w.sessions()); after != before {
			t.Errorf("%d sessions in a table of %d, not %d", after, size, before)
		}
		for name, c := range silent {
			if err := c.speak("still there"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	w.wantNoDrops()
	w.wantNoOddTimestamps()
}

// TestReplyFragmentsAreTakenAnew: of a version that kept datagrams in a table of rows nothing is brought along, and
// what datagrams are hashed with stays over restarts.
func TestReplyFragmentsAreTakenAnew(t *testing.T) {
	w := newWorld(t)
	silent := w.silentConnections()
	w.must(w.datapath.Close())
	path := filepath.Join(w.pins, "live", "reply_fragments")
	w.must(os.Remove(path))
	rows, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.LRUHash, KeySize: 40, ValueSize: 16, MaxEntries: 8192})
	w.must(err)
	defer rows.Close()
	w.must(rows.Put(make([]byte, 40), make([]byte, 16)), rows.Pin(path))
	hashKey := func() (key flowhash.Key) {
		table, err := ebpf.LoadPinnedMap(filepath.Join(w.pins, "live", "hash_key"), nil)
		w.must(err)
		defer table.Close()
		w.must(table.Lookup(uint32(0), &key))
		return key
	}
	before := hashKey()
	w.start()
	for name, c := range silent {
		if err := c.speak("with other fragments"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if key := hashKey(); key != before || key == (flowhash.Key{}) {
		t.Errorf("the key is %x, and was %x", key, before)
	}
}

// TestWhatCantBeMigrated is refused, and told with what to do; what runs goes on.
func TestWhatCantBeMigrated(t *testing.T) {
	w := newWorld(t)
	silent := w.silentConnections()
	w.must(w.datapath.Close())
	refuse := func(what string, config agent.Config, words ...string) {
		t.Helper()
		config.Uplink, config.PinPath = "uplink", w.pins
		err := w.host.Do(func() error {
			_, err := agent.Open(config)
			return err
		})
		for _, word := range append(words, "weir-agent unload") {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: got %v, without %q", what, err, word)
			}
		}
		for name, c := range silent {
			if err := c.speak(what); err != nil {
				t.Errorf("%s: %s: %v", what, name, err)
			}
		}
	}
	refuse("too few rules", agent.Config{MaxSessions: 1 << 12, MaxRules: 3}, "migrate table", "room for")

	later, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	w.must(err)
	defer later.Close()
	path := filepath.Join(w.pins, "live", "later")
	w.must(later.Pin(path))
	refuse("a table of a later version", agent.Config{MaxSessions: 1 << 12}, "table later", "this version has none")
	w.must(later.Unpin())
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error("the pin is still there")
	}
	w.start()
}

// serveAll receives and sends, whatever the size of segments.
func serveAll(listener net.Listener, size int) error {
	defer listener.Close()
	accepted, err := listener.Accept()
	if err != nil {
		return err
	}
	defer accepted.Close()
	return errors.Join(receive(accepted, size), send(accepted, size))
}
