package syncookie

import (
	"time"

	"github.com/weirlb/weir/internal/model"
)

// NextSecrets are the secrets that follow; nil: those that there are will do. The newest is known for a
// whole life before it makes a cookie, and the oldest was the last that did.
func NextSecrets(secrets []model.SYNSecret, now time.Time, life time.Duration, draw func() [16]byte) []model.SYNSecret {
	if len(secrets) >= 2 && now.Sub(secrets[len(secrets)-1].Made) < life {
		return nil
	}
	next := append([]model.SYNSecret(nil), secrets...)
	for added := false; !added || len(next) < 2; added = true {
		secret := model.SYNSecret{ID: 1, Made: now.UTC().Truncate(time.Second), Secret: draw()}
		if len(next) > 0 {
			secret.ID = next[len(next)-1].ID + 1
		}
		next = append(next, secret)
	}
	return next[max(0, len(next)-model.SYNSecrets):]
}
