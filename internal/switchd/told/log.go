package told

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/trust"
)

const (
	file = "told"
	// maxBytes bounds the file.
	maxBytes = 64 << 20
	// slack is what the messages since the snapshot may take beside the snapshot, before a new one is written.
	slack = 1 << 20
)

// head is length and checksum of a record.
type head struct{ Length, Sum uint32 }

// Log is the file.
type Log struct {
	path     string
	file     *os.File // nil: there is none, the next record must be a snapshot
	size     int64
	snapshot int64 // bytes of it
}

// Open reads the log of a data directory: its messages in order, and when the manager was last heard. A log that is
// damaged says nothing, and why. Nothing is changed.
func Open(dataDir string) (l *Log, messages []*weirv1.SyncSwitchResponse, heard time.Time, damage error) {
	l = &Log{path: filepath.Join(dataDir, file)}
	messages, heard, err := l.load()
	if errors.Is(err, os.ErrNotExist) {
		return l, nil, time.Time{}, nil
	}
	if err != nil {
		l.Close() // the next record begins it anew
		return l, nil, time.Time{}, fmt.Errorf("read what the manager last told: %w", err)
	}
	return l, messages, heard, nil
}

func (l *Log) load() (messages []*weirv1.SyncSwitchResponse, heard time.Time, err error) {
	opened, err := os.OpenFile(l.path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return nil, heard, err
	}
	l.file = opened
	info, err := opened.Stat()
	if err != nil {
		return nil, heard, err
	}
	if l.size = info.Size(); l.size > maxBytes {
		return nil, heard, fmt.Errorf("%s has %d bytes, more than %d", l.path, l.size, maxBytes)
	}
	in := bufio.NewReader(opened)
	for at := int64(0); at < l.size; {
		m, n, err := readRecord(in, l.size-at)
		if err != nil {
			return nil, heard, fmt.Errorf("%s, from byte %d: %w", l.path, at, err)
		}
		if m.GetSnapshot() != (at == 0) {
			return nil, heard, fmt.Errorf("%s, from byte %d: a snapshot must come first, and alone", l.path, at)
		}
		if at == 0 {
			l.snapshot = n
		}
		messages, at = append(messages, m), at+n
	}
	return messages, info.ModTime(), nil
}

func readRecord(in io.Reader, left int64) (m *weirv1.SyncSwitchResponse, n int64, err error) {
	var h head
	if err := binary.Read(in, binary.BigEndian, &h); err != nil {
		return nil, 0, err
	}
	n = int64(binary.Size(h)) + int64(h.Length)
	if n > left {
		return nil, 0, io.ErrUnexpectedEOF
	}
	body := make([]byte, h.Length)
	if _, err := io.ReadFull(in, body); err != nil {
		return nil, 0, err
	}
	if h.Length == 0 || crc32.ChecksumIEEE(body) != h.Sum {
		return nil, 0, errors.New("the checksum is wrong")
	}
	m = &weirv1.SyncSwitchResponse{}
	return m, n, proto.Unmarshal(body, m)
}

func record(m *weirv1.SyncSwitchResponse) ([]byte, error) {
	body, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	text, err := binary.Append(nil, binary.BigEndian, head{uint32(len(body)), crc32.ChecksumIEEE(body)})
	return append(text, body...), err
}

// Append keeps a message; whole is all that has been told, with the message. After an error the file is gone, and the next
// message is kept again.
func (l *Log) Append(m *weirv1.SyncSwitchResponse, whole func() *weirv1.SyncSwitchResponse) error {
	if err := l.append(m, whole); err != nil {
		return fmt.Errorf("keep what the manager told: %w", errors.Join(err, l.forget()))
	}
	return nil
}

func (l *Log) append(m *weirv1.SyncSwitchResponse, whole func() *weirv1.SyncSwitchResponse) error {
	text, err := record(m)
	if err != nil {
		return err
	}
	if m.GetSnapshot() || l.file == nil || l.size+int64(len(text)) > 2*l.snapshot+slack {
		return l.begin(whole())
	}
	if _, err := l.file.Write(text); err != nil {
		return err
	}
	l.size += int64(len(text))
	return nil
}

// begin writes a snapshot in the file's place.
func (l *Log) begin(whole *weirv1.SyncSwitchResponse) error {
	text, err := record(whole)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(l.path), 0o700); err != nil {
		return err
	}
	if err := trust.WriteFile(l.path, text); err != nil {
		return err
	}
	l.Close()
	if l.file, err = os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND, 0); err != nil {
		return err
	}
	l.size, l.snapshot = int64(len(text)), int64(len(text))
	return nil
}

// forget takes the file away: it is not what was last told.
func (l *Log) forget() error {
	l.Close()
	if err := os.Remove(l.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: remove it by hand before the next start", err)
	}
	return nil
}

// Heard notes that the manager was heard.
func (l *Log) Heard(now time.Time) error {
	if l.file == nil {
		return nil
	}
	return os.Chtimes(l.path, now, now)
}

// Close closes the file.
func (l *Log) Close() {
	if l.file != nil {
		l.file.Close()
		l.file = nil
	}
}
