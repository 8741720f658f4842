package mux

import (
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
)

// endpointIndex are the tables endpoint_index and endpoint_rows, in memory shared with the kernel, and which endpoints
// have which word of the index.
type endpointIndex struct {
	ids     [][bpf.IndexPerRow]uint32
	rows    []endpointWords
	holders map[uint32][]uint32 // ids by word of the index
	raw     [][]byte
}

// endpointWords is a bpf.MuxEndpointRow as packets load it: the key's three words, then the endpoint's.
type endpointWords [unsafe.Sizeof(bpf.MuxEndpointRow{}) / 8]uint64

const keyWords = unsafe.Sizeof(bpf.MuxEndpointKey{}) / 8

func mapEndpointIndex(t *bpf.Tables) (*endpointIndex, error) {
	s := &endpointIndex{holders: map[uint32][]uint32{}}
	var err error
	if s.ids, err = bpf.MapRows[[bpf.IndexPerRow]uint32](&s.raw, t.EndpointIndex); err != nil {
		return nil, fmt.Errorf("map table endpoint_index: %w", err)
	}
	if s.rows, err = bpf.MapRows[endpointWords](&s.raw, t.EndpointRows); err != nil {
		s.close()
		return nil, fmt.Errorf("map table endpoint_rows: %w", err)
	}
	return s, nil
}

// openEndpointIndex shares the tables with packets, once.
func (d *Datapath) openEndpointIndex() (err error) {
	if d.index == nil {
		d.index, err = mapEndpointIndex(&d.tables)
	}
	return err
}

// adoptEndpointIndex brings adopted tables, whose process may have ended halfway, to what endpoints says.
func (d *Datapath) adoptEndpointIndex() error {
	if err := d.openEndpointIndex(); err != nil {
		return err
	}
	for key, live := range d.live {
		d.index.put(bpf.ToKey(key), live.row)
	}
	for vip := range d.snat.vips {
		d.index.put(bpf.ToKey(vipKey(vip)), d.vips.live[vip].row)
	}
	d.index.noteAll()
	return nil
}

func (d *Datapath) closeShared() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.index != nil {
		d.index.close()
		d.index = nil
	}
	d.snat.close()
	d.sources.close()
	d.limits.close()
}

func (s *endpointIndex) close() {
	for _, raw := range s.raw {
		_ = unix.Munmap(raw)
	}
}

// put lets packets find the endpoint, whose row is in endpoints already.
func (s *endpointIndex) put(key bpf.MuxEndpointKey, row bpf.MuxEndpoint) {
	s.write(key, row)
	at := s.of(key)
	if !slices.Contains(s.holders[at], row.Id) {
		s.holders[at] = append(s.holders[at], row.Id)
	}
	s.note(at)
}

// remove takes away the way to an endpoint that is about to leave endpoints.
func (s *endpointIndex) remove(key bpf.MuxEndpointKey, id uint32) {
	at := s.of(key)
	s.holders[at] = slices.DeleteFunc(s.holders[at], func(held uint32) bool { return held == id })
	if len(s.holders[at]) == 0 {
		delete(s.holders, at)
	}
	s.note(at)
}

// noteAll stores what holders says, of those too that it says nothing of.
func (s *endpointIndex) noteAll() {
	for at := range uint32(len(s.ids) * bpf.IndexPerRow) {
		s.note(at)
	}
}

// of is the twin of endpoint_index_of in bpf/mux/endpoint.h.
func (s *endpointIndex) of(key bpf.MuxEndpointKey) uint32 {
	words := (*[keyWords]uint64)(unsafe.Pointer(&key))
	hash := (words[0]^words[2])*0x9e3779b97f4a7c15 + words[1]*0xff51afd7ed558ccd
	return uint32(hash>>32) & uint32(len(s.ids)*bpf.IndexPerRow-1)
}

// note stores what holders says of the word.
func (s *endpointIndex) note(at uint32) {
	id := uint32(bpf.MuxEndpointIndexEntryENDPOINT_INDEX_NONE)
	switch holders := s.holders[at]; len(holders) {
	case 0:
	case 1:
		id = holders[0]
	default:
		id = uint32(bpf.MuxEndpointIndexEntryENDPOINT_INDEX_COLLISION)
	}
	to := &s.ids[at/uint32(bpf.IndexPerRow)][at%uint32(bpf.IndexPerRow)]
	if atomic.LoadUint32(to) != id {
		atomic.StoreUint32(to, id)
	}
}

// write stores the row word by word, for packets load each at once. Of a row that was another endpoint's
// the key goes first and comes last, so that no packet takes the one for the other.
func (s *endpointIndex) write(key bpf.MuxEndpointKey, row bpf.MuxEndpoint) {
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
