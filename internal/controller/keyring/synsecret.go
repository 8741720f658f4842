package keyring

import (
	"context"
	"time"

	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/syncookie"
)

const (
	// secretLook is how often secrets are looked at.
	secretLook = time.Second
	// DefaultSecretLife is how long a secret is used. It is known for as long before, and after.
	DefaultSecretLife = time.Hour
)

// RotateSYNSecrets replaces the secrets of SYN cookies in time, until ctx ends. The first ones are made with the
// store.
func (c *Controller) RotateSYNSecrets(ctx context.Context) error {
	return c.replaceInTime(ctx, "the secrets of syn cookies", func(s *store.State) (change store.Change, due bool) {
		change.SYNSecrets = syncookie.NextSecrets(s.SYNSecrets, c.Now(), c.SecretLife, store.DrawSYNSecret)
		return change, change.SYNSecrets != nil
	})
}

// replaceInTime writes what follows the secrets of a State when that is due, until ctx ends.
func (c *Controller) replaceInTime(ctx context.Context, what string, next func(*store.State) (change store.Change, due bool)) error {
	ticker := time.NewTicker(secretLook)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if _, due := next(c.Store.State()); !due {
			continue
		}
		_, err := c.Store.UpdateAs(ctx, store.Health, func(s *store.State) (store.Change, error) {
			change, _ := next(s)
			return change, nil
		})
		if err != nil && ctx.Err() == nil {
			c.Log.Warn("can't change "+what+", trying again", "err", err)
		}
	}
}
