package overlay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
)

// grow makes a larger session table beside the live one, and lets programs that use it take the place of those that
// run. New connections that begin in the milliseconds in between have to send their SYN again.
func (d *Datapath) grow(spec *ebpf.CollectionSpec, live map[string]*ebpf.Map, settings *overlayOverlaySettings) error {
	grown := *settings
	grown.SetMask, grown.OldMask, grown.Paused = d.config.Sets-1, settings.SetMask, 0
	grown.Uplink, grown.Mtu, grown.Seal, grown.UplinkMac = uint32(d.config.Uplink), d.config.MTU, d.config.Seal, macOf(d.config.Uplink)
	if err := spec.Variables[overlayVarSettings].Set(&grown); err != nil {
		return fmt.Errorf("set settings: %w", err)
	}
	shared := maps.Clone(live)
	delete(shared, overlayMapSessionSets)
	delete(shared, settingsTable)
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		return fmt.Errorf("load programs: %w", err)
	}
	defer collection.Close()
	g := growth{d: d, programs: collection.Programs, settings: live[settingsTable], was: *settings}
	if g.from, err = Map(live[overlayMapSessionSets]); err != nil {
		return err
	}
	defer g.from.Close()
	if g.to, err = Map(collection.Maps[overlayMapSessionSets]); err != nil {
		return err
	}
	defer g.to.Close()
	if g.links, err = d.folder.Names(""); err != nil {
		return err
	}
	g.links = slices.DeleteFunc(g.links, func(name string) bool { return programOf(name) == "" })
	g.to.mirror(g.from) // most of it while all goes on
	err = d.folder.Replace(func(folder string) error {
		return errors.Join(pinTables(folder, collection.Maps), d.folder.PinLinks(folder, g.links))
	}, g.swap)
	if err != nil {
		return err
	}
	d.config.Log.Info("session table has grown", "old", settings.SetMask+1, "new", d.config.Sets, "ended", g.lost)
	return collection.Assign(&d.objects)
}

// growth is the change from one table to another.
type growth struct {
	d        *Datapath
	links    []string
	programs map[string]*ebpf.Program
	settings *ebpf.Map // of the programs that run
	was      overlayOverlaySettings
	from, to *Table
	lost     int
}

func (g *growth) pause(paused uint32) error {
	settings := g.was
	settings.Paused = paused
	if err := g.settings.Put(uint32(0), &settings); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	return nil
}

// swap changes the programs, while no session begins. When one can't be changed, all are as before.
func (g *growth) swap() (err error) {
	before := make(map[string]*ebpf.Program)
	defer func() {
		for name, program := range before {
			if err != nil {
				replaced, undone := g.d.folder.Update(name, program)
				if err = errors.Join(err, undone); replaced != nil {
					replaced.Close()
				}
			}
			program.Close()
		}
		if err != nil {
			err = errors.Join(err, g.pause(0))
		}
	}()
	if err := g.pause(1); err != nil {
		return err
	}
	g.to.mirror(g.from)
	// Sessions begin in from_underlay: it is the first.
	slices.SortFunc(g.links, strings.Compare)
	for _, name := range g.links {
		old, err := g.d.folder.Update(name, g.programs[programOf(name)])
		if err != nil {
			return err
		}
		if old != nil {
			before[name] = old
		}
	}
	g.lost = g.to.merge(g.from)
	return nil
}

// forgetOldPlaces sets the mask of the smaller table to the table's own, if no row needs it.
func (d *Datapath) forgetOldPlaces() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var s overlayOverlaySettings
	var key [10]uint32
	if err := errors.Join(d.objects.Settings.Get(&s), d.objects.HashKey.Get(&key)); err != nil {
		return err
	}
	if s.OldMask == s.SetMask || d.AnyOutOfPlace(int(s.OldMask)+1, func(row Session) uint64 { return Hash(key, row) }) {
		return nil
	}
	s.OldMask = s.SetMask
	return d.objects.Settings.Set(&s)
}

// mirror makes the rows those of a table that is not larger, at their numbers. Nobody else may use t meanwhile.
func (t *Table) mirror(old *Table) {
	for i := range old.sets {
		for way := range Ways {
			from, to := &old.sets[i], &t.sets[i]
			tag := atomic.LoadUint32(&from.tags[way])
			to.rows[way] = from.rows[way]
			if tag&stateMask != live || atomic.LoadUint32(&from.tags[way]) != tag {
				tag = 0 // a row that is being made: paused programs make none
			}
			atomic.StoreUint32(&to.tags[way], tag)
		}
	}
}

// merge brings what programs have noted in the rows of old since they were mirrored. Programs use both tables. A row
// that was made late and whose place is taken is lost.
func (t *Table) merge(old *Table) (lost int) {
	for i := range old.sets {
		for way := range Ways {
			from, to := &old.sets[i], &t.sets[i]
			tag := atomic.LoadUint32(&from.tags[way])
			if tag&stateMask != live {
				continue
			}
			if atomic.LoadUint32(&to.tags[way]) == tag {
				to.rows[way].note(&from.rows[way])
				continue
			}
			if !atomic.CompareAndSwapUint32(&to.tags[way], 0, tag&^stateMask|pending) {
				lost++
				continue
			}
			to.rows[way] = from.rows[way]
			atomic.StoreUint32(&to.tags[way], tag)
		}
	}
	return lost
}

// note adds what another copy of the row tells: events, and numbers and times that are later.
func (r *row) note(other *row) {
	const eventsShift = 16 // in the word of the last bytes of the MAC
	if learnt := Proxied | ServerAnswer; other.events&learnt == learnt {
		atomic.StoreUint32(&r.shift, other.shift) // before the event that tells of it
	}
	atomic.OrUint32((*uint32)(unsafe.Pointer(&r.clientMAC[4])), uint32(other.events)<<eventsShift)
	for _, word := range []struct{ to, from *uint32 }{
		{&r.clientNext, &other.clientNext}, {&r.serverNext, &other.serverNext}, {&r.seen, &other.seen},
	} {
		was, late := atomic.LoadUint32(word.to), atomic.LoadUint32(word.from)
		if int32(late-was) > 0 {
			atomic.CompareAndSwapUint32(word.to, was, late)
		}
	}
}

// AnyOutOfPlace says whether a row is where only the mask of a smaller table finds it. A table that has grown may forget
// that mask once there is none.
func (t *Table) AnyOutOfPlace(oldSets int, hash func(Session) uint64) bool {
	mask := uint64(len(t.sets) - 1)
	for s := range t.All() {
		if int(s.Row/Ways) >= oldSets {
			continue
		}
		h, at := hash(s), uint64(s.Row/Ways)
		if h&mask != at && h>>18&mask != at {
			return true
		}
	}
	return false
}

// Hash is the hash of a session, as the programs compute it: see overlay_key_hash() in C.
func Hash(key [10]uint32, s Session) uint64 {
	c := abi.Words(s.Client.Addr())
	var ports [4]byte
	binary.BigEndian.PutUint16(ports[0:], s.Client.Port())
	binary.BigEndian.PutUint16(ports[2:], s.Port)
	term := func(a, b uint32, at int) uint64 { return uint64(a+key[at]) * uint64(b+key[at+1]) }
	attachment := s.Attachment
	if s.Events&UDP != 0 {
		attachment |= 1 << 31
	}
	h := term(c[0], c[1], 0) + term(c[2], c[3], 2) + term(attachment, binary.NativeEndian.Uint32(ports[:]), 4)
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
