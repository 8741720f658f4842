package keyring

import (
	"testing"
	"time"

	"github.com/weirlb/weir/internal/model"
)

// A key is known for a whole life before it signs, and is gone when the next one signs.
func TestKeysRotate(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	keys := nextKeys(nil, now, time.Hour)
	if len(keys) != 2 || keys[0].ID != 1 || keys[1].ID != 2 || keys[0].Secret == keys[1].Secret || keys[0].Secret == [32]byte{} {
		t.Fatalf("%v", keys)
	}
	if next := nextKeys(keys, now.Add(time.Hour-time.Second), time.Hour); next != nil {
		t.Errorf("too early: %v", next)
	}
	next := nextKeys(keys, now.Add(time.Hour), time.Hour)
	if len(next) != 2 || next[0] != keys[1] || next[1].ID != 3 {
		t.Errorf("%v follow %v", next, keys)
	}
	if again := nextKeys([]model.FastpathKey{keys[1]}, now, time.Hour); len(again) != 2 || again[0] != keys[1] || again[1].ID != 3 {
		t.Errorf("%v follow one key", again)
	}
}
