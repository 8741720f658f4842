package mux

import (
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
)

// shortcuts are the tables shortcuts and endpoint_rows as the kernel has them, shared with packets, and
// which endpoints have which shortcut.
type shortcuts struct {
	ids     [][bpf.ShortcutsPerRow]uint32
	rows    []endpointWords
	holders map[uint32][]uint32 // ids by shortcut
	raw     [][]byte
}

// endpointWords is a bpf.MuxEndpointRow as packets load it: the key's three words, then the endpoint's.
type endpointWords [unsafe.Sizeof(bpf.MuxEndpointRow{}) / 8]uint64

const keyWords = unsafe.Sizeof(bpf.MuxEndpointKey{}) / 8

func mapShortcuts(t *bpf.Tables) (*shortcuts, error) {
	s := &shortcuts{holders: map[uint32][]uint32{}}
	var err error
	if s.ids, err = bpf.MapRows[[bpf.ShortcutsPerRow]uint32](&s.raw, t.Shortcuts); err != nil {
		return nil, fmt.Errorf("map table shortcuts: %w", err)
	}
	if s.rows, err = bpf.MapRows[endpointWords](&s.raw, t.EndpointRows); err != nil {
		s.close()
		return nil, fmt.Errorf("map table endpoint_rows: %w", err)
	}
	return s, nil
}

// openShortcuts shares the tables with packets, once.
func (d *Datapath) openShortcuts() (err error) {
	if d.shortcuts == nil {
		d.shortcuts, err = mapShortcuts(&d.tables)
	}
	return err
}

// adoptShortcuts brings adopted tables, whose process may have ended halfway, to what endpoints says.
func (d *Datapath) adoptShortcuts() error {
	if err := d.openShortcuts(); err != nil {
		return err
	}
	for key, live := range d.live {
		d.shortcuts.put(bpf.ToKey(key), live.row)
	}
	for vip := range d.snat.vips {
		d.shortcuts.put(bpf.ToKey(vipKey(vip)), d.vips.live[vip].row)
	}
	d.shortcuts.noteAll()
	return nil
}

func (d *Datapath) closeShared() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shortcuts != nil {
		d.shortcuts.close()
		d.shortcuts = nil
	}
	d.snat.close()
	d.sources.close()
	d.limits.close()
}

func (s *shortcuts) close() {
	for _, raw := range s.raw {
		_ = unix.Munmap(raw)
	}
}

// put lets packets find the endpoint, whose row is in endpoints already.
func (s *shortcuts) put(key bpf.MuxEndpointKey, row bpf.MuxEndpoint) {
	s.write(key, row)
	at := s.of(key)
	if !slices.Contains(s.holders[at], row.Id) {
		s.holders[at] = append(s.holders[at], row.Id)
	}
	s.note(at)
}

// remove takes away the way to an endpoint that is about to leave endpoints.
func (s *shortcuts) remove(key bpf.MuxEndpointKey, id uint32) {
	at := s.of(key)
	s.holders[at] = slices.DeleteFunc(s.holders[at], func(held uint32) bool { return held == id })
	if len(s.holders[at]) == 0 {
		delete(s.holders, at)
	}
	s.note(at)
}

// noteAll stores what holders says, of those too that it says nothing of.
func (s *shortcuts) noteAll() {
	for at := range uint32(len(s.ids) * bpf.ShortcutsPerRow) {
		s.note(at)
	}
}

// of is the twin of shortcut_of in bpf/mux/endpoint.h.
func (s *shortcuts) of(key bpf.MuxEndpointKey) uint32 {
	words := (*[keyWords]uint64)(unsafe.Pointer(&key))
	hash := (words[0]^words[2])*0x9e3779b97f4a7c15 + words[1]*0xff51afd7ed558ccd
	return uint32(hash>>32) & uint32(len(s.ids)*bpf.ShortcutsPerRow-1)
}

// note stores what holders says of the shortcut.
func (s *shortcuts) note(at uint32) {
	id := uint32(bpf.MuxShortcutSHORTCUT_NONE)
	switch holders := s.holders[at]; len(holders) {
	case 0:
	case 1:
		id = holders[0]
	default:
		id = uint32(bpf.MuxShortcutSHORTCUT_SHARED)
	}
	to := &s.ids[at/uint32(bpf.ShortcutsPerRow)][at%uint32(bpf.ShortcutsPerRow)]
	if atomic.LoadUint32(to) != id {
		atomic.StoreUint32(to, id)
	}
}

// write stores the row word by word, for packets load each at once. Of a row that was another endpoint's
// the key goes first and comes last, so that no packet takes the one for the other.
func (s *shortcuts) write(key bpf.MuxEndpointKey, row bpf.MuxEndpoint) {
	from, to := (*endpointWords)(unsafe.Pointer(&bpf.MuxEndpointRow{Key: key, Endpoint: row})), &s.rows[row.Id]
	last := keyWords - 1 // port and protocol
	fresh := [keyWords]uint64(to[:keyWords]) != [keyWords]uint64(from[:keyWords])
	if fresh {
		atomic.StoreUint64(&to[last], ^uint64(0)) // nothing's: a VIP's own are 0
	}
	for i := keyWords; i < uintptr(len(to)); i++ {
		atomic.StoreUint64(&to[i], from[i])
	}
	if fresh {
		for i := range keyWords {
			atomic.StoreUint64(&to[i], from[i])
		}
	}
}
