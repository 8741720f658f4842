package store

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lowRoom is what shall be free on the disk of the embedded etcd, in bytes: its log grows by segments of 64 MiB,
	// and its database by 16, and it ends itself when one of them fails.
	lowRoom = 96 << 20
	// roomEvery is how often a leader looks, and handOverEvery how often it tries to be one no more.
	roomEvery     = time.Second
	handOverEvery = time.Minute
)

// FullError says that nothing is changed because the disk is almost full. What is there is read on, and what nodes
// say is written: that takes the room of what it replaces.
type FullError struct {
	dir  string
	free uint64 // bytes
}

func (e *FullError) Error() string {
	return fmt.Sprintf("the disk of this manager is almost full: %d MiB are free where %s is, less than %d: free some: until then nothing is changed",
		e.free>>20, e.dir, lowRoom>>20)
}

// room says whether the disk of the embedded etcd has none.
func (s *Store) room() error {
	if s.member == nil {
		return nil
	}
	free, err := freeBytes(s.member.dir)
	if err != nil || free >= s.lowRoom { // what ails a disk that can't be asked is etcd's to find out
		return nil
	}
	return &FullError{s.member.dir, free}
}

// freeBytes is what may be written yet where dir is.
func freeBytes(dir string) (uint64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, fmt.Errorf("ask how full the disk is: %w", err)
	}
	return stat.Bavail * uint64(stat.Bsize), nil
}

// watchRoom tells when the disk gets full, and has another replica lead then, until ctx ends.
func (s *Store) watchRoom(ctx context.Context) error {
	tick := time.NewTicker(roomEvery)
	defer tick.Stop()
	full, tried := false, time.Time{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := s.room()
		if now := err != nil; now != full {
			if full = now; full {
				s.log.Error("nothing is changed by this manager", "err", err)
			} else {
				s.log.Info("the disk has room again")
			}
		}
		if !full || !s.member.leads() || len(s.member.members()) == 1 || time.Since(tried) < handOverEvery {
			continue
		}
		tried = time.Now()
		trying, cancel := context.WithTimeout(ctx, callTimeout)
		s.log.Info("hands the lead on", "result", s.member.handOver(trying))
		cancel()
	}
}
