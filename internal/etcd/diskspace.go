package etcd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// minFree is what shall be free on the disk of the embedded etcd, in bytes: its log grows by segments of 64 MiB,
	// and its database by 16, and it ends itself when one of them fails.
	minFree = 96 << 20
	// spaceEvery is how often a leader looks, and handOverEvery how often it tries to be one no more.
	spaceEvery    = time.Second
	handOverEvery = time.Minute
)

// NoSpaceError says that nothing is changed because the disk is almost full. What is there is read on, and what nodes
// say is written: that takes the room of what it replaces.
type NoSpaceError struct {
	dir  string
	free uint64 // bytes
}

func (e *NoSpaceError) Error() string {
	return fmt.Sprintf("the disk of this manager is almost full: %d MiB are free where %s is, less than %d: free some: until then nothing is changed",
		e.free>>20, e.dir, minFree>>20)
}

// checkDiskSpace refuses when the disk is almost full.
func (s *Server) checkDiskSpace() error {
	free, err := s.FreeDisk()
	if err != nil || free >= minFree { // what ails a disk that can't be asked is etcd's to find out
		return nil
	}
	return &NoSpaceError{s.dir, free}
}

// FreeDisk is how many bytes may be written yet where the data directory is.
func (s *Server) FreeDisk() (uint64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(s.dir, &stat); err != nil {
		return 0, fmt.Errorf("ask how full the disk is: %w", err)
	}
	return stat.Bavail * uint64(stat.Bsize), nil
}

// reserve has the disk give the database the room that its file claims. bbolt makes the file larger by 16 MiB at a
// time, and does not fill that; what it writes there later must not fail.
func (s *Server) reserve() error {
	file, err := os.OpenFile(s.database(), os.O_RDWR, 0)
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

func (s *Server) database() string { return filepath.Join(s.dir, "etcd", "member", "snap", "db") }

// blockSize is that of stat(2).
const blockSize = 512

// watchDiskSpace tells when the disk gets full, and has another replica lead then, until ctx ends.
func (s *Server) watchDiskSpace(ctx context.Context) error {
	tick := time.NewTicker(spaceEvery)
	defer tick.Stop()
	full, tried := false, time.Time{}
	for {
		if err := s.reserve(); err != nil {
			s.log.Debug("can't reserve room for the database", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := s.checkDiskSpace()
		if now := err != nil; now != full {
			if full = now; full {
				s.log.Error("nothing is changed by this manager", "err", err)
			} else {
				s.log.Info("the disk has room again")
			}
		}
		if !full || !s.Leads() || len(s.memberNames()) == 1 || time.Since(tried) < handOverEvery {
			continue
		}
		tried = time.Now()
		trying, cancel := context.WithTimeout(ctx, CallTimeout)
		s.log.Info("hands the lead on", "result", s.MoveLeader(trying))
		cancel()
	}
}
