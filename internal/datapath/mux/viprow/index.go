package viprow

import (
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
)

// Index are the tables endpoint_index and endpoint_rows, in memory shared with the kernel, and which endpoints
// have which word of the index.
type Index struct {
	tables  *bpf.Tables
	ids     [][bpf.IndexPerRow]uint32
	Rows    []endpointWords
	Holders map[uint32][]uint32 // ids by word of the index
	raw     [][]byte
}

// endpointWords is a bpf.MuxEndpointRow as packets load it: the key's three words, then the endpoint's.
type endpointWords [unsafe.Sizeof(bpf.MuxEndpointRow{}) / 8]uint64

const keyWords = unsafe.Sizeof(bpf.MuxEndpointKey{}) / 8

func newIndex(tables *bpf.Tables) *Index {
	return &Index{tables: tables, Holders: map[uint32][]uint32{}}
}

// Open shares the tables with packets, once.
func (s *Index) Open() (err error) {
	if s.Rows != nil {
		return nil
	}
	if s.ids, err = abi.MapRows[[bpf.IndexPerRow]uint32](&s.raw, s.tables.EndpointIndex); err != nil {
		return fmt.Errorf("map table endpoint_index: %w", err)
	}
	if s.Rows, err = abi.MapRows[endpointWords](&s.raw, s.tables.EndpointRows); err != nil {
		s.Close()
		return fmt.Errorf("map table endpoint_rows: %w", err)
	}
	return nil
}

// Close ends the sharing.
func (s *Index) Close() {
	abi.Unmap(&s.raw)
	s.ids, s.Rows = nil, nil
}

// Put lets packets find the endpoint, whose row is in endpoints already.
func (s *Index) Put(key bpf.MuxEndpointKey, row bpf.MuxEndpoint) {
	s.write(key, row)
	at := s.wordOf(key)
	if !slices.Contains(s.Holders[at], row.Id) {
		s.Holders[at] = append(s.Holders[at], row.Id)
	}
	s.storeWord(at)
}

// Remove takes away the way to an endpoint that is about to leave endpoints.
func (s *Index) Remove(key bpf.MuxEndpointKey, id uint32) {
	at := s.wordOf(key)
	s.Holders[at] = slices.DeleteFunc(s.Holders[at], func(held uint32) bool { return held == id })
	if len(s.Holders[at]) == 0 {
		delete(s.Holders, at)
	}
	s.storeWord(at)
}

// NoteAll stores what Holders says, of those too that it says nothing of.
func (s *Index) NoteAll() {
	for at := range uint32(len(s.ids) * bpf.IndexPerRow) {
		s.storeWord(at)
	}
}

// wordOf is the twin of endpoint_index_of in bpf/mux/endpoint.h.
func (s *Index) wordOf(key bpf.MuxEndpointKey) uint32 {
	words := (*[keyWords]uint64)(unsafe.Pointer(&key))
	hash := (words[0]^words[2])*0x9e3779b97f4a7c15 + words[1]*0xff51afd7ed558ccd
	return uint32(hash>>32) & uint32(len(s.ids)*bpf.IndexPerRow-1)
}

// storeWord stores what Holders says of the word.
func (s *Index) storeWord(at uint32) {
	id := uint32(bpf.MuxEndpointIndexEntryENDPOINT_INDEX_NONE)
	switch holders := s.Holders[at]; len(holders) {
	case 0:
	case 1:
		id = holders[0]
	default:
		id = uint32(bpf.MuxEndpointIndexEntryENDPOINT_INDEX_COLLISION)
	}
	to := s.stored(at)
	if atomic.LoadUint32(to) != id {
		atomic.StoreUint32(to, id)
	}
}

func (s *Index) stored(at uint32) *uint32 {
	return &s.ids[at/uint32(bpf.IndexPerRow)][at%uint32(bpf.IndexPerRow)]
}

// Stored is the word of the key as packets find it.
func (s *Index) Stored(key bpf.MuxEndpointKey) *uint32 { return s.stored(s.wordOf(key)) }

// write stores the row word by word, for packets load each at once. Of a row that was another endpoint's
// the key goes first and comes last, so that no packet takes the one for the other.
func (s *Index) write(key bpf.MuxEndpointKey, row bpf.MuxEndpoint) {
	from, to := (*endpointWords)(unsafe.Pointer(&bpf.MuxEndpointRow{Key: key, Endpoint: row})), &s.Rows[row.Id]
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
