package overlay

import (
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	twin "github.com/weirlb/weir/internal/testkit/bpftest/overlay"
)

var testHashKey = func() (key [10]uint32) {
	for i := range key {
		key[i] = uint32(0x9e3779b9 * (i + 1))
	}
	return key
}()

func load(t *testing.T, sets uint32) (*twin.Twin, *Table) {
	t.Helper()
	program, err := twin.Load(sets)
	if err != nil {
		t.Fatalf("%+v (these tests need root)", err)
	}
	table, err := Map(program.Table())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = table.Close(), program.Close() })
	return program, table
}

func TestRowsHaveTheProgramsSize(t *testing.T) {
	if unsafe.Sizeof(row{}) != RowSize || unsafe.Sizeof(set{}) != setSize {
		t.Errorf("a row has %d bytes, a set %d", unsafe.Sizeof(row{}), unsafe.Sizeof(set{}))
	}
}

func keyOf(n int) twin.Key {
	return twin.Key{
		Client:     netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), uint16(n)+1),
		Attachment: uint32(n % 3), Port: 80,
	}
}

// The table is a map from connections to rows: what is put is found until it is freed, at the number that it had, and
// nothing else is.
func TestTheTableIsAMap(t *testing.T) {
	program, table := load(t, 4)
	must := func(t *rapid.T, row int, err error) int {
		if err != nil {
			t.Fatal(err)
		}
		return row
	}
	rapid.Check(t, func(t *rapid.T) {
		for s := range table.All() {
			table.Free(s)
		}
		model := map[int]int{}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				n := rapid.IntRange(0, 80).Draw(t, "n")
				row, err := program.Put(keyOf(n), 1, 0)
				got := must(t, row, err)
				_, known := model[n]
				switch {
				case known && got >= 0:
					t.Fatalf("a second row for connection %d", n)
				case !known && got == twin.GaveWay:
					t.Fatalf("connection %d gave way to none", n)
				case got >= 0:
					model[n] = got
				case !known && len(model) < 32:
					t.Fatalf("full with %d of 64 rows", len(model))
				}
			},
			"renew": func(t *rapid.T) {
				n := rapid.IntRange(0, 80).Draw(t, "n")
				row, err := program.Renew(keyOf(n), 2)
				if got := must(t, row, err); got != want(model, n) {
					t.Fatalf("renewed in row %d, it is in %d", got, want(model, n))
				}
			},
			"free": func(t *rapid.T) {
				n := rapid.IntRange(0, 80).Draw(t, "n")
				if row, ok := model[n]; ok {
					s, found := table.Get(uint32(row))
					if !found || !table.Free(s) || table.Free(s) {
						t.Fatalf("row %d is not freed once", row)
					}
					delete(model, n)
				}
			},
			"": func(t *rapid.T) { compare(t, program, table, model) },
		})
	})
}

// compare finds all connections of the model in the table, at their rows, and no other.
func compare(t *rapid.T, program *twin.Twin, table *Table, model map[int]int) {
	rows := map[uint32]bool{}
	for s := range table.All() {
		rows[s.Row] = true
	}
	if len(rows) != len(model) {
		t.Fatalf("%d rows, %d connections", len(rows), len(model))
	}
	for n, row := range model {
		got, err := program.Find(keyOf(n))
		s, _ := table.Get(uint32(row))
		if err != nil || got != row || s.Client != keyOf(n).Client || s.Attachment != keyOf(n).Attachment {
			t.Fatalf("connection %d found in row %d, not %d: %+v", n, got, row, s)
		}
	}
}

func want(model map[int]int, n int) int {
	if row, ok := model[n]; ok {
		return row
	}
	return twin.None
}

// Two CPUs make the same connections at the same time: none is made twice.
func TestTwoCPUsMakeNoConnectionTwice(t *testing.T) {
	const connections = 3000
	program, table := load(t, 1024)
	var both sync.WaitGroup
	for cpu := range min(2, runtime.NumCPU()) {
		both.Go(func() {
			runtime.LockOSThread() // and never unlocks: the thread ends with its affinity
			var only unix.CPUSet
			only.Set(cpu)
			if err := unix.SchedSetaffinity(0, &only); err != nil {
				t.Error(err)
			}
			for n := range connections {
				if _, err := program.Put(keyOf(n), 1, 0); err != nil {
					t.Error(err)
				}
			}
			if _, err := program.Fill(keyOf(60000), 8000, 1); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	seen := map[netip.AddrPort]bool{}
	for s := range table.All() {
		if seen[s.Client] {
			t.Errorf("%s was made twice", s.Client)
		}
		seen[s.Client] = true
	}
	for n := range connections { // who gave way comes again
		row, err := program.Find(keyOf(n))
		if err == nil && row < 0 {
			row, err = program.Put(keyOf(n), 1, 0)
		}
		if err != nil || row < 0 {
			t.Fatalf("connection %d: row %d, %v", n, row, err)
		}
	}
}

func TestTheTableFillsBeforeItRefuses(t *testing.T) {
	program, table := load(t, 4096)
	made, err := program.Fill(keyOf(0), 65536, 1)
	if err != nil {
		t.Fatal(err)
	}
	if full := float64(made) / float64(table.Rows()); full < 0.84 {
		t.Errorf("refused at %.3f", full)
	} else {
		t.Logf("refused at %.3f", full)
	}
}

// The quarantine of a row is by what was seen of its connection; the sweep frees it after that, and a SYN that finds no
// free row takes it.
func TestRowsAreInQuarantine(t *testing.T) {
	program, table := load(t, 4)
	for _, c := range []struct {
		events Event
		after  uint32 // ticks; 0: never
	}{
		{0, 1789},
		{ServerAnswer, 1789},
		{ClientACK | ServerAnswer, 0},
		{ClientACK | ClientFIN, 0},
		{ClientACK | ClientFIN | ServerFIN, 7154},
		{ClientACK | Reset, 597},
	} {
		const began = 1<<32 - 100 // ticks wrap
		if row, err := program.Put(keyOf(1), began, uint32(c.events)); err != nil || row < 0 {
			t.Fatalf("row %d, %v", row, err)
		}
		now := uint32(began)
		if c.after == 0 {
			c.after = 1 << 30
		} else {
			now += c.after - 1
		}
		if r := table.Sweep(now, nil, nil); r.Freed != 0 {
			t.Errorf("%x: freed before its time", c.events)
		}
		r := table.Sweep(began+c.after, nil, nil)
		if want := c.after != 1<<30; (r.Freed == 1) != want {
			t.Errorf("%x: freed %d after %d ticks", c.events, r.Freed, c.after)
		}
		for s := range table.All() {
			table.Free(s)
		}
	}
	made, err := program.Fill(keyOf(0), 1000, 1)
	if err != nil || made == 0 {
		t.Fatalf("made %d, %v", made, err)
	}
	if made, err = program.Fill(keyOf(5), 1000, 1000); err != nil || made > 40 {
		t.Fatalf("made %d in a table that is full, %v", made, err)
	}
	if made, err = program.Fill(keyOf(7), 16, 4000); err != nil || made != 16 {
		t.Fatalf("made %d of 16 where all rows have rested, %v", made, err)
	}
}

// A table grows under use: rows stay at their numbers and are found, what the old programs made after the first copy is
// brought by the second one, and what is new is in the new places.
func TestTheTableGrowsUnderUse(t *testing.T) {
	old, oldTable := load(t, 64)
	rows := map[int]int{}
	put := func(program *twin.Twin, n int) {
		t.Helper()
		row, err := program.Put(keyOf(n), 1, uint32(ClientACK))
		if err != nil || row < 0 {
			t.Fatalf("connection %d: row %d, %v", n, row, err)
		}
		rows[n] = row
	}
	for n := range 500 {
		put(old, n)
	}
	grown, table := load(t, 256)
	table.mirror(oldTable)
	for n := 500; n < 600; n++ {
		put(old, n)
	}
	for s := range oldTable.All() { // ends before the programs change
		if n := int(s.Client.Port()) - 1; n >= 450 && n < 500 {
			oldTable.Free(s)
			delete(rows, n)
		}
	}
	table.mirror(oldTable)
	if err := grown.Masks(256, 64); err != nil {
		t.Fatal(err)
	}
	for n := 600; n < 1500; n++ {
		put(grown, n)
	}
	for n, row := range rows {
		if got, err := grown.Find(keyOf(n)); err != nil || got != row {
			t.Fatalf("connection %d in row %d, %d after the table grew, %v", n, row, got, err)
		}
		if again, err := grown.Put(keyOf(n), 1, 0); err != nil || again != twin.GaveWay {
			t.Fatalf("connection %d made again in row %d, %v", n, again, err)
		}
	}
	if len(rows) != 1450 {
		t.Errorf("%d connections", len(rows))
	}
	forgetOldPlaces(t, grown, table, rows)
}

// What programs note in a table that is being replaced comes to the rows that take its place; what is there already is
// kept, and a row that was made late finds its place or is lost.
func TestLateNotesAreMerged(t *testing.T) {
	old, oldTable := load(t, 4)
	grown, table := load(t, 8)
	if err := grown.Masks(8, 4); err != nil {
		t.Fatal(err)
	}
	put := func(n int) int {
		row, err := old.Put(keyOf(n), 10, uint32(ServerAnswer))
		if err != nil || row < 0 {
			t.Fatalf("row %d, %v", row, err)
		}
		return row
	}
	at := func(t *Table, number int) *row { return &t.sets[number/Ways].rows[number%Ways] }
	both := put(1)
	table.mirror(oldTable)
	late := put(2)
	now, was := at(table, both), at(oldTable, both)
	now.events, was.events = ClientACK, ServerFIN
	now.clientNext, was.clientNext = 5, 1<<32-5 // wraps: the new one is later
	now.serverNext, was.serverNext = 5, 9
	if lost := table.merge(oldTable); lost != 0 {
		t.Errorf("%d lost", lost)
	}
	if now.events != ClientACK|ServerFIN || now.clientNext != 5 || now.serverNext != 9 {
		t.Errorf("row after the merge: %+v", now)
	}
	for n, row := range map[int]int{1: both, 2: late} {
		if got, err := grown.Find(keyOf(n)); err != nil || got != row {
			t.Errorf("connection %d in row %d, not %d, %v", n, got, row, err)
		}
	}
	third := put(3)
	table.sets[third/Ways].tags[third%Ways] = live | 1<<9 // another one's meanwhile
	if lost := table.merge(oldTable); lost != 1 {
		t.Errorf("%d lost, not the one whose place is taken", lost)
	}
}

// forgetOldPlaces frees the rows of the smaller table, connections below 600: then its mask is needed no more.
func forgetOldPlaces(t *testing.T, grown *twin.Twin, table *Table, rows map[int]int) {
	t.Helper()
	hash := func(s Session) uint64 { return Hash(testHashKey, s) }
	if !table.AnyOutOfPlace(64, hash) {
		t.Error("no row is in an old place")
	}
	for s := range table.All() {
		if n := int(s.Client.Port()) - 1; n < 600 {
			table.Free(s)
			delete(rows, n)
		}
	}
	if table.AnyOutOfPlace(64, hash) {
		t.Error("a row that the grown table made is in an old place")
	}
	if err := grown.Masks(256, 256); err != nil {
		t.Fatal(err)
	}
	for n, row := range rows {
		if got, err := grown.Find(keyOf(n)); err != nil || got != row {
			t.Fatalf("connection %d in row %d, found in %d, %v", n, row, got, err)
		}
	}
}
