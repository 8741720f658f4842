package syncookie

import (
	"testing"
	"time"

	"github.com/weirlb/weir/internal/model"
)

// A secret is known for a life before it makes cookies, makes them for a life, and checks them for one more.
func TestSYNSecretsRotate(t *testing.T) {
	drawn := byte(0)
	nextSecrets := func(secrets []model.SYNSecret, now time.Time, life time.Duration) []model.SYNSecret {
		return NextSecrets(secrets, now, life, func() [16]byte { drawn++; return [16]byte{drawn} })
	}
	now := time.Unix(1_700_000_000, 0)
	secrets := nextSecrets(nil, now, time.Hour)
	if len(secrets) != 2 || secrets[0].ID != 1 || secrets[1].ID != 2 || secrets[0].Secret == secrets[1].Secret {
		t.Fatalf("%v", secrets)
	}
	for made := uint32(1); made < 10; made++ {
		if maker := model.MakesSYNCookies(secrets); maker.ID != made {
			t.Fatalf("%v makes, want secret %d", maker, made)
		}
		if next := nextSecrets(secrets, now.Add(time.Hour-time.Second), time.Hour); next != nil {
			t.Errorf("too early: %v", next)
		}
		now = now.Add(time.Hour)
		next := nextSecrets(secrets, now, time.Hour)
		if len(next) != model.SYNSecrets || next[0] != secrets[len(secrets)-2] || next[1] != secrets[len(secrets)-1] ||
			next[2].ID != secrets[len(secrets)-1].ID+1 {
			t.Fatalf("%v follow %v", next, secrets)
		}
		secrets = next
	}
}
