// Package reported reads, for controllers, one part of what nodes said last, to this manager or to another one. Of what was
// said to another it keeps what it parsed, for as long as the status in the store is the same.
package reported

import (
	"bytes"
	"log/slog"
	"maps"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

// Source is where reports are.
type Source struct {
	Newest func(node string, stored nodestatus.Status) (seen time.Time, detail *weirv1.NodeStatus, known bool) // but by the store
	Stale  time.Duration                                                                                       // how old a report that counts may be: longer than other managers take to tell it, or the store to have it
	Log    *slog.Logger
}

// Part reads a list that nodes report.
type Part[T any] struct {
	source *Source
	key    []byte // of its field, in JSON
	of     func(*weirv1.NodeStatus) []T
	read   map[string]stored[T] // by node
}

type stored[T any] struct {
	seen time.Time
	part []T
}

// New reads the list with the name that it has in JSON.
func New[T any](source *Source, name string, of func(*weirv1.NodeStatus) []T) *Part[T] {
	return &Part[T]{source: source, key: []byte(`"` + name + `"`), of: of, read: map[string]stored[T]{}}
}

// Of is what a node said last; nothing, if that is too long ago.
func (p *Part[T]) Of(s *store.State, node string, now time.Time) []T {
	status := s.Status.At(node)
	if seen, newest, here := p.source.Newest(node, status); here {
		if now.Sub(seen) > p.source.Stale {
			return nil
		}
		return p.of(newest)
	}
	if now.Sub(status.Seen) > p.source.Stale || !bytes.Contains(status.Detail, p.key) {
		return nil
	}
	if read, known := p.read[node]; known && read.seen.Equal(status.Seen) {
		return read.part
	}
	detail := &weirv1.NodeStatus{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(status.Detail, detail); err != nil {
		p.source.Log.Warn("can't read the status of a node", "node", node, "err", err)
	}
	p.read[node] = stored[T]{status.Seen, p.of(detail)}
	return p.read[node].part
}

// Forget drops what was read of nodes without a stream.
func (p *Part[T]) Forget(s *store.State) {
	maps.DeleteFunc(p.read, func(node string, _ stored[T]) bool { return !s.Streams.Has(node) })
}
