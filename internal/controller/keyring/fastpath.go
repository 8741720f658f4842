package keyring

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// How long a key of Fastpath signs. It is known for as long before, and of no use after it: messages live for
// seconds, and nodes learn of a key within a second.
const (
	DefaultKeyInterval = time.Hour
	MinKeyInterval     = 10 * time.Second
)

const (
	// fastpathLook is how often the keys of Fastpath are looked at.
	fastpathLook = time.Second
	// fastpathKeys are valid at a time: one that signs, and the one that will.
	fastpathKeys = 2
)

// RotateFastpathKeys makes keys for Fastpath while any VIP has it, until ctx ends. The older of two keys signs, the
// newer one is known to all before it does.
func (c *Controller) RotateFastpathKeys(ctx context.Context) error {
	ticker := time.NewTicker(fastpathLook)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		s := c.Store.State()
		if !desired.WantsFastpath(s.State) || nextKeys(s.FastpathKeys, c.Now(), c.KeyInterval) == nil {
			continue
		}
		_, err := c.Store.UpdateAs(ctx, store.Health, func(s *store.State) (store.Change, error) {
			return store.Change{FastpathKeys: nextKeys(s.FastpathKeys, c.Now(), c.KeyInterval)}, nil
		})
		if err != nil && ctx.Err() == nil {
			c.Log.Warn("can't change the keys of fastpath, trying again", "err", err)
		}
	}
}

// nextKeys are the keys that follow; nil: those that there are will do.
func nextKeys(keys []model.FastpathKey, now time.Time, life time.Duration) []model.FastpathKey {
	if len(keys) == fastpathKeys && now.Sub(keys[len(keys)-1].Made) < life {
		return nil
	}
	next := append([]model.FastpathKey(nil), keys...)
	for {
		key := model.FastpathKey{ID: 1, Made: now.UTC().Truncate(time.Second)}
		if len(next) > 0 {
			key.ID = next[len(next)-1].ID + 1
		}
		_, _ = rand.Read(key.Secret[:]) // never fails
		next = append(next, key)
		if len(next) >= fastpathKeys {
			return next[len(next)-fastpathKeys:]
		}
	}
}
