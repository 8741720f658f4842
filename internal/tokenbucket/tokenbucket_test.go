package tokenbucket

import (
	"strconv"
	"testing"
	"time"
)

func TestTakeWaitsForTokens(t *testing.T) {
	var b Buckets
	now := time.Unix(1000, 0)
	for range 5 {
		if wait := b.Take("a", 1, 5, 1, now); wait != 0 {
			t.Fatalf("within the burst: wait %s", wait)
		}
	}
	if wait := b.Take("a", 1, 5, 1, now); wait != time.Second {
		t.Errorf("beyond the burst: wait %s", wait)
	}
	if wait := b.Take("b", 1, 5, 1, now); wait != 0 {
		t.Errorf("another name: wait %s", wait)
	}
	if wait := b.Take("a", 1, 5, 1, now.Add(time.Second)); wait != 0 {
		t.Errorf("a second later: wait %s", wait)
	}
}

// Names beyond maxBuckets share a bucket; full buckets are dropped after a while.
func TestBucketsAreBounded(t *testing.T) {
	var b Buckets
	now := time.Unix(1000, 0)
	for i := range maxBuckets {
		b.Take(strconv.Itoa(i), 1, 1, 1, now)
	}
	if b.Take("x", 1, 1, 1, now) != 0 || b.Take("y", 1, 1, 1, now) == 0 {
		t.Error("two more names do not share a bucket")
	}
	b.Take("z", 1, 1, 1, now.Add(time.Minute))
	if len(b.of) != 1 {
		t.Errorf("%d buckets are left, want 1", len(b.of))
	}
}
