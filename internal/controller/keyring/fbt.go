package keyring

import (
	"context"
	"crypto/rand"

	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/store"
)

// RotateFBTMasters makes what keys of FBTs are derived from while VIPs have attachments, and replaces it in time, until ctx
// ends.
func (c *Controller) RotateFBTMasters(ctx context.Context) error {
	return c.replaceInTime(ctx, "the masters of keys of FBTs", func(s *store.State) (change store.Change, due bool) {
		if s.Networks.Overlay == nil || !s.Networks.Wants() {
			return change, false
		}
		change.FBTMasters = fbt.NextMasters(s.FBTMasters, c.Now(), c.SecretLife, drawMaster)
		return change, change.FBTMasters != nil
	})
}

func drawMaster() (secret [32]byte) {
	_, _ = rand.Read(secret[:]) // never fails
	return secret
}
