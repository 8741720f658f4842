// Package keyring rotates the pool's keys while a manager leads: those that sign Fastpath messages, and the secrets of SYN
// cookies.
//
// Invariant: a key is in the store, and so with all nodes, for one interval before it is used.
package keyring

import (
	"log/slog"
	"time"

	"github.com/weirlb/weir/internal/store"
)

// Controller rotates keys.
type Controller struct {
	Store       *store.Store
	KeyInterval time.Duration // how long a key of Fastpath signs
	SecretLife  time.Duration // how long a secret makes SYN cookies
	Now         func() time.Time
	Log         *slog.Logger
}
