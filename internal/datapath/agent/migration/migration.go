package migration

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"reflect"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/agent/attachment"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/pin"
)

// Migration brings the rows of live tables into new ones of this version's layout and size, while the
// programs of the old version go on running with the old ones.
type Migration struct {
	spec   *ebpf.CollectionSpec
	folder *pin.Folder
	live   map[string]*ebpf.Map // of every table of spec that is pinned

	Changed []string // tables that are live in another layout or size
	Missing []string // tables that the old version did not have

	seed   maphash.Seed
	copied map[uint64]struct{} // sums of the rows of copyAll: what is as it was need not be copied again
}

// New compares what is live in the folder with what this version has.
func New(folder *pin.Folder, spec *ebpf.CollectionSpec) (_ *Migration, err error) {
	m := &Migration{
		spec: spec, folder: folder, live: make(map[string]*ebpf.Map), seed: maphash.MakeSeed(), copied: make(map[uint64]struct{}),
	}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	if err := m.checkPins(); err != nil {
		return nil, err
	}
	for name, ours := range spec.Maps {
		if name == constants {
			continue
		}
		live, err := ebpf.LoadPinnedMap(folder.Live(pinName(name)), nil)
		if errors.Is(err, fs.ErrNotExist) {
			m.Missing = append(m.Missing, name)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("adopt table %s: %w", pinName(name), err)
		}
		m.live[name] = live
		if same, err := isSame(live, ours); err != nil {
			return nil, fmt.Errorf("adopt table %s: %w", pinName(name), err)
		} else if !same {
			m.Changed = append(m.Changed, name)
		}
	}
	slices.Sort(m.Changed)
	return m, nil
}

// checkPins refuses pins that a newer version has left.
func (m *Migration) checkPins() error {
	names, err := m.folder.Names("")
	if err != nil {
		return err
	}
	known := make(map[string]bool)
	for name := range m.spec.Maps {
		known[pinName(name)] = true
	}
	for _, name := range names {
		if !known[name] && attachment.ProgramOf(name) == "" {
			return fmt.Errorf("adopt table %s: this version has none", name)
		}
	}
	return nil
}

func isSame(live *ebpf.Map, spec *ebpf.MapSpec) (bool, error) {
	if spec.Compatible(live) != nil {
		return false, nil
	}
	if spec.Type == ebpf.PerCPUArray || spec.Type == ebpf.RingBuf { // of these the kernel takes no types
		return true, nil
	}
	ours, err := specLayout(spec)
	if err != nil {
		return false, err
	}
	theirs, err := liveLayout(live, spec)
	return err == nil && theirs.equal(ours), err
}

// Close lets go of the live tables.
func (m *Migration) Close() {
	for _, table := range m.live {
		table.Close()
	}
}

// Unchanged are the tables that both versions can share.
func (m *Migration) Unchanged() map[string]*ebpf.Map {
	shared := make(map[string]*ebpf.Map)
	for name, table := range m.live {
		if !slices.Contains(m.Changed, name) {
			shared[name] = table
		}
	}
	return shared
}

// copyAll fills the new tables. Nobody uses them yet.
func (m *Migration) copyAll(to map[string]*ebpf.Map) error {
	for _, name := range m.Changed {
		if err := m.copyTable(name, to[name], ebpf.UpdateAny); err != nil {
			return fmt.Errorf("migrate table %s: %w", pinName(name), err)
		}
	}
	return derive(to[settingsTable])
}

// derive sets what follows from other settings, and tables of a release before do not have: the programs need it at once.
func derive(table *ebpf.Map) error {
	var settings bpf.AgentAgentSettings
	if err := table.Lookup(uint32(0), &settings); err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	if settings.Mss4 != 0 || settings.Mss6 != 0 {
		return nil
	}
	settings.SetMSS()
	if err := table.Put(uint32(0), &settings); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	return nil
}

// copyLate brings what became of sessions since copyAll.
func (m *Migration) copyLate(to map[string]*ebpf.Map) error {
	for _, name := range []string{"new_sessions", "sessions"} {
		if !slices.Contains(m.Changed, name) {
			continue
		}
		if err := m.copyTable(name, to[name], ebpf.UpdateNoExist); err != nil {
			return fmt.Errorf("migrate late sessions: %w", err)
		}
	}
	return nil
}

// repliesWrite are the members of a session that only the programs of replies write.
var repliesWrite = []string{"cookie", "cookie_scale", "last_sent", "tsval", "client_next", "workload_seq", "tsvals", "shift", "clock_shift", "window_shift", "token"}

// mergeLate brings a late row into a new one. What clients' packets write is newer there; what replies
// write, whose programs are still the old ones, in the late row; both set events.
func mergeLate(row, late []byte, values []move) {
	for _, v := range values {
		switch {
		case v.name == "events":
			for i := range v.size {
				row[v.to+i] |= late[v.from+i]
			}
		case slices.Contains(repliesWrite, v.name):
			v.apply(row, late)
		}
	}
}

// putLate adds a row of an old table to the new one, or merges it into the one that is there.
func putLate(to *ebpf.Map, key, late []byte, values []move) error {
	row, err := to.LookupBytes(key)
	if err != nil {
		return err
	}
	if row == nil {
		err := to.Update(key, moved(late, values, to.ValueSize()), ebpf.UpdateNoExist)
		if errors.Is(err, ebpf.ErrKeyExist) {
			return nil
		}
		return err
	}
	merged := slices.Clone(row)
	mergeLate(merged, late, values)
	if slices.Equal(merged, row) {
		return nil
	}
	return to.Put(key, merged)
}

func (m *Migration) copyTable(name string, to *ebpf.Map, flags ebpf.MapUpdateFlags) error {
	from, spec := m.live[name], m.spec.Maps[name]
	ours, err := specLayout(spec)
	if err != nil {
		return err
	}
	if name == "muxes" && from.Type() == ebpf.Hash {
		return copyMuxes(from, to)
	}
	if name == bpf.AgentMapReplyFragments {
		return nil // it tells of datagrams that are on their way this moment
	}
	if spec.Type == ebpf.PerCPUArray || spec.Type == ebpf.RingBuf {
		return nil // counters of other verdicts begin anew; what user space did not read is lost
	}
	theirs, err := liveLayout(from, spec)
	if err != nil {
		return err
	}
	keys, err := movesOf(theirs.key, ours.key)
	if err != nil {
		return err
	}
	values, err := movesOf(theirs.value, ours.value)
	if err != nil {
		return err
	}
	return eachRow(from, func(key, value []byte) error {
		sum := maphash.Bytes(m.seed, append(append([]byte(name), key...), value...))
		if flags == ebpf.UpdateNoExist {
			if _, same := m.copied[sum]; same {
				return nil
			}
			return putLate(to, moved(key, keys, to.KeySize()), value, values)
		}
		m.copied[sum] = struct{}{}
		err := to.Update(moved(key, keys, to.KeySize()), moved(value, values, to.ValueSize()), flags)
		if errors.Is(err, unix.E2BIG) {
			return fmt.Errorf("has more rows than there is room for: %d", to.MaxEntries())
		}
		return err
	})
}

// copyMuxes makes a prefix of each address: the first version had no others.
func copyMuxes(from, to *ebpf.Map) error {
	return eachRow(from, func(key, value []byte) error {
		bits := binary.NativeEndian.AppendUint32(nil, uint32(8*len(key)))
		return to.Put(append(bits, key...), value)
	})
}

// eachRow reads tables of any layout. A row that is made or goes meanwhile may be missed or seen twice.
func eachRow(table *ebpf.Map, visit func(key, value []byte) error) error {
	const batch = 1024
	buffer := func(size uint32) reflect.Value {
		return reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(int(size), reflect.TypeFor[byte]())), batch, batch)
	}
	keys, values := buffer(table.KeySize()), buffer(table.ValueSize())
	var cursor ebpf.MapBatchCursor
	for {
		n, err := table.BatchLookup(&cursor, keys.Interface(), values.Interface(), nil)
		last := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !last {
			return err
		}
		for i := range n {
			if err := visit(keys.Index(i).Bytes(), values.Index(i).Bytes()); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
	}
}

// Run lets collection, which shares unchanged tables, take the place of what is live. New connections that begin between
// the first program's change and the last one's may have to send their SYN again: within milliseconds, or up to a second
// when the table is full.
func (m *Migration) Run(collection *ebpf.Collection) error {
	if err := m.copyAll(collection.Maps); err != nil {
		return err
	}
	links, err := m.folder.Names("")
	if err != nil {
		return err
	}
	links = slices.DeleteFunc(links, func(name string) bool { return attachment.ProgramOf(name) == "" })
	return m.folder.Replace(
		func(folder string) error {
			return errors.Join(PinTables(folder, collection), m.folder.PinLinks(folder, links))
		},
		func() error { return m.swap(links, collection) })
}

// swap changes the programs: first the one that makes sessions, so that after it no old table gets
// new ones; then those that replies pass. When one can't be changed, all are as before.
func (m *Migration) swap(links []string, collection *ebpf.Collection) (err error) {
	before := make(map[string]*ebpf.Program)
	defer func() {
		for name, program := range before {
			if err != nil {
				replaced, undone := m.folder.Update(name, program)
				if err = errors.Join(err, undone); replaced != nil {
					replaced.Close()
				}
			}
			program.Close()
		}
	}()
	change := func(name string) error {
		old, err := m.folder.Update(name, collection.Programs[attachment.ProgramOf(name)])
		if old != nil {
			before[name] = old
		}
		return err
	}
	rest := slices.DeleteFunc(slices.Clone(links), func(name string) bool { return name == attachment.FromUplink })
	if len(rest) != len(links) {
		if err := change(attachment.FromUplink); err != nil {
			return err
		}
	}
	if err := m.copyLate(collection.Maps); err != nil {
		return err
	}
	for _, name := range rest {
		if err := change(name); err != nil {
			return err
		}
	}
	return nil
}
