package rpc

import (
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/weirlb/weir/internal/model"
)

// seen is the highest epoch and generation that a node has seen of a cluster.
type seen struct {
	cluster    uint64
	epoch      model.Epoch
	generation model.Generation
}

// memoryFile is the file of a node's data directory that keeps what it has seen.
const memoryFile = "seen"

// memory keeps what a node has seen over its restarts. What is written lies in the kernel's hands at once: a crash of
// the program loses nothing of it, one of the machine the last half a minute.
type memory struct {
	path   string
	log    *slog.Logger
	failed bool // and told so
}

// recall opens the memory in a data directory, and returns what is in there: nothing, if it can't be read.
func recall(dataDir string, log *slog.Logger) (*memory, seen) {
	m := &memory{path: filepath.Join(dataDir, memoryFile), log: log}
	text, err := os.ReadFile(m.path)
	if errors.Is(err, os.ErrNotExist) {
		return m, seen{}
	}
	var s seen
	if err == nil {
		s, err = parseSeen(string(text))
	}
	if err != nil {
		log.Warn("what this node has seen of the cluster is lost: it believes the first manager that it reaches", "file", m.path, "err", err)
	}
	return m, s
}

// save writes what was seen over what was there: the line is always as long, and written in one go.
func (m *memory) save(s seen) {
	err := m.write(s.String())
	if err != nil && !m.failed {
		m.log.Warn("can't keep what this node has seen of the cluster, for its next start", "file", m.path, "err", err)
	}
	m.failed = err != nil
}

func (m *memory) write(line string) error {
	file, err := os.OpenFile(m.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(m.path), 0o700); err == nil {
			file, err = os.OpenFile(m.path, os.O_WRONLY|os.O_CREATE, 0o600)
		}
	}
	if err != nil {
		return err
	}
	_, err = file.WriteAt([]byte(line), 0)
	return errors.Join(err, file.Truncate(int64(len(line))), file.Close())
}

// seenForm is a line of the memory, before its checksum: cluster, epoch, generation.
const seenForm = "weir seen 1 %016x %016x %016x"

// String is the line that the memory holds.
func (s seen) String() string {
	text := fmt.Sprintf(seenForm, s.cluster, uint64(s.epoch), uint64(s.generation))
	return fmt.Sprintf("%s %08x\n", text, crc32.ChecksumIEEE([]byte(text)))
}

// parseSeen reads what String wrote, and nothing else.
func parseSeen(line string) (s seen, err error) {
	if _, err = fmt.Sscanf(line, seenForm, &s.cluster, &s.epoch, &s.generation); err != nil || s.String() != line {
		const most = 80
		return seen{}, fmt.Errorf("it is not what a node wrote: %.*q", most, strings.TrimSpace(line))
	}
	return s, nil
}
