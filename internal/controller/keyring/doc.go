// Package keyring rotates the pool's keys while a manager leads: those that sign Fastpath messages, the secrets of SYN
// cookies, and the masters of keys of FBTs.
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
	SecretLife  time.Duration // how long a secret makes SYN cookies, or a master FBTs
	Now         func() time.Time
	Log         *slog.Logger
}
