package manager

import (
	"context"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

const (
	// secretLook is how often the secrets of SYN cookies are looked at.
	secretLook = time.Second
	// defaultSecretLife is how long a secret makes SYN cookies. It is known for as long before, and after.
	defaultSecretLife = time.Hour
)

// rotateSecrets replaces the secrets of SYN cookies in time, until ctx ends. The first ones are made with the
// store.
func (m *Manager) rotateSecrets(ctx context.Context) error {
	ticker := time.NewTicker(secretLook)
	defer ticker.Stop()
	next := func(s *store.State) []model.SYNSecret {
		return model.NextSYNSecrets(s.SYNSecrets, m.now(), m.secretLife, store.DrawSYNSecret)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if next(m.store.State()) == nil {
			continue
		}
		_, err := m.store.UpdateAs(ctx, store.Health, func(s *store.State) (store.Change, error) {
			return store.Change{SYNSecrets: next(s)}, nil
		})
		if err != nil && ctx.Err() == nil {
			m.log.Warn("can't change the secrets of syn cookies, trying again", "err", err)
		}
	}
}
