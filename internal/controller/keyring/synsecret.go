package keyring

import (
	"context"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

const (
	// secretLook is how often the secrets of SYN cookies are looked at.
	secretLook = time.Second
	// DefaultSecretLife is how long a secret makes SYN cookies. It is known for as long before, and after.
	DefaultSecretLife = time.Hour
)

// RotateSYNSecrets replaces the secrets of SYN cookies in time, until ctx ends. The first ones are made with the
// store.
func (c *Controller) RotateSYNSecrets(ctx context.Context) error {
	ticker := time.NewTicker(secretLook)
	defer ticker.Stop()
	next := func(s *store.State) []model.SYNSecret {
		return model.NextSYNSecrets(s.SYNSecrets, c.Now(), c.SecretLife, store.DrawSYNSecret)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if next(c.Store.State()) == nil {
			continue
		}
		_, err := c.Store.UpdateAs(ctx, store.Health, func(s *store.State) (store.Change, error) {
			return store.Change{SYNSecrets: next(s)}, nil
		})
		if err != nil && ctx.Err() == nil {
			c.Log.Warn("can't change the secrets of syn cookies, trying again", "err", err)
		}
	}
}
