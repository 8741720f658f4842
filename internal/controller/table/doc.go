// Package table keeps the bucket tables of endpoints what they should be, while a manager leads: they follow the health of
// backends, moves of buckets end when no connection lives by them, and freed slots are reserved for a while.
//
// Invariant: how long a slot is free counts by the clock of whoever leads, from when it first saw the slot free.
//
// What a table should be is package desired.
package table

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weirlb/weir/internal/sessioncount"
	"github.com/weirlb/weir/internal/store"
)

// Controller keeps bucket tables.
type Controller struct {
	Store    *store.Store
	View     func() *store.State // with what nodes of all managers run
	Sessions sessioncount.Counts
	Settle   time.Duration // how long a move of buckets lasts at least
	Now      func() time.Time
	Log      *slog.Logger

	free atomic.Pointer[freeSlots]
}
