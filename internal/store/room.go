package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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

// reserve has the disk give the database the room that its file claims. bbolt makes the file larger by 16 MiB at a
// time, and does not fill that; what it writes there later must not fail.
func (m *member) reserve() error {
	file, err := os.OpenFile(m.database(), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer file.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return fmt.Errorf("look at the database: %w", err)
	}
	if stat.Blocks*blockSize >= stat.Size {
		return nil
	}
	if err := unix.Fallocate(int(file.Fd()), 0, 0, stat.Size); err != nil {
		return fmt.Errorf("reserve room for the database: %w", err)
	}
	return nil
}

func (m *member) database() string { return filepath.Join(m.dir, "etcd", "member", "snap", "db") }

// blockSize is that of stat(2).
const blockSize = 512

// watchRoom tells when the disk gets full, and has another replica lead then, until ctx ends.
func (s *Store) watchRoom(ctx context.Context) error {
	tick := time.NewTicker(roomEvery)
	defer tick.Stop()
	full, tried := false, time.Time{}
	for {
		if err := s.member.reserve(); err != nil {
			s.log.Debug("can't reserve room for the database", "err", err)
		}
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
