package told

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/wire"
)

// kept is a Log with all that it was told.
type kept struct {
	*testing.T
	dir        string
	log        *Log
	told       map[netip.Addr]wire.SwitchEntry
	generation uint64
}

func open(t *testing.T) *kept {
	t.Helper()
	k := &kept{T: t, dir: filepath.Join(t.TempDir(), "data")}
	k.reopen()
	t.Cleanup(func() { k.log.Close() })
	return k
}

func (k *kept) reopen() {
	k.Helper()
	l, messages, _, err := Open(k.dir)
	if err != nil {
		k.Fatal(err)
	}
	k.log, k.told = l, nil
	for _, m := range messages {
		if k.told, err = Merge(k.told, m); err != nil {
			k.Fatal(err)
		}
		k.generation = m.GetGeneration()
	}
}

// tell keeps a message with one entry.
func (k *kept) tell(snapshot bool, vip netip.Addr, members int, announce bool) error {
	k.Helper()
	k.generation++
	e := wire.SwitchEntry{VIP: vip, Announce: announce}
	for i := range members {
		e.Members = append(e.Members, wire.SwitchMember{Tunnel: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), Entries: 1})
	}
	m := wire.SwitchUpdateToProto(wire.SwitchUpdate{Snapshot: snapshot, Entries: []wire.SwitchEntry{e}})
	m.Generation, m.Cluster, m.Epoch = k.generation, 7, 3
	next, err := Merge(k.told, m)
	if err != nil {
		k.Fatal(err)
	}
	k.told = next
	return k.log.Append(m, func() *weirv1.SyncSwitchResponse { return Whole(next, m) })
}

func (k *kept) must(err error) {
	k.Helper()
	if err != nil {
		k.Fatal(err)
	}
}

// wantSame wants another start to know what was told.
func (k *kept) wantSame() {
	k.Helper()
	told, generation := k.told, k.generation
	k.log.Close()
	k.reopen()
	if fmt.Sprint(k.told) != fmt.Sprint(told) || k.generation != generation {
		k.Errorf("after a restart: generation %d of %v, want %d of %v", k.generation, k.told, generation, told)
	}
}

var one, two = netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8::2")

func TestKeepsWhatWasTold(t *testing.T) {
	k := open(t)
	k.must(k.tell(true, one, 2, false))
	k.wantSame()
	k.must(k.tell(false, two, 3, true))
	k.must(k.tell(false, one, 1, true))
	k.wantSame()
	k.must(k.tell(true, two, 1, false)) // forgets the others
	k.wantSame()
	if len(k.told) != 1 {
		t.Errorf("told %v, want one entry", k.told)
	}
}

func TestIsBoundedByWhatIsTold(t *testing.T) {
	k := open(t)
	k.must(k.tell(true, one, 2000, true))
	for range 200 {
		k.must(k.tell(false, one, 2000, true))
	}
	info, err := os.Stat(filepath.Join(k.dir, file))
	k.must(err)
	if info.Size() > 3<<20 {
		t.Errorf("the file has %d bytes", info.Size())
	}
	k.wantSame()
}

func TestSaysWhenTheManagerWasHeard(t *testing.T) {
	k := open(t)
	k.must(k.tell(true, one, 1, true))
	then := time.Now().Add(-time.Hour).Truncate(time.Second)
	k.must(k.log.Heard(then))
	_, _, heard, err := Read(k.dir)
	if err != nil || !heard.Equal(then) {
		t.Errorf("heard %s, %v, want %s", heard, err, then)
	}
}

// A file that is not what was written says nothing, whatever bit it is.
func TestDamageIsNoticed(t *testing.T) {
	k := open(t)
	k.must(k.tell(true, one, 1, true))
	k.must(k.tell(false, two, 1, true))
	path := filepath.Join(k.dir, file)
	whole, err := os.ReadFile(path)
	k.must(err)
	spoil := map[string][]byte{"cut": whole[:len(whole)-1], "more": append(bytes.Clone(whole), 0), "empty head": append(bytes.Clone(whole), make([]byte, 8)...)}
	for i := range whole {
		text := bytes.Clone(whole)
		text[i] ^= 0x40
		spoil[fmt.Sprintf("byte %d", i)] = text
	}
	for name, text := range spoil {
		k.must(os.WriteFile(path, text, 0o600))
		l, messages, _, err := Open(k.dir)
		l.Close()
		if err == nil || len(messages) != 0 {
			t.Errorf("%s: %d messages, %v", name, len(messages), err)
		}
	}
	l, _, _, _ := Open(k.dir)
	defer l.Close()
	k.log = l
	k.must(k.tell(false, one, 2, false)) // begins anew
	k.wantSame()
}

// A full disk takes the file away, and what comes when there is room is kept again.
func TestFullDiskLeavesNothingOld(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mount a small file system: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, 0) })
	k := &kept{T: t, dir: dir}
	k.reopen()
	defer func() { k.log.Close() }()
	k.must(k.tell(true, one, 1, true))
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 128<<10), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill the disk: %v", err)
	}
	err := k.tell(false, one, 400, false)
	if !errors.Is(err, syscall.ENOSPC) || !strings.HasPrefix(err.Error(), "keep what the manager told: ") {
		t.Errorf("error %v, want one of a full disk", err)
	}
	l, messages, _, err := Open(dir)
	l.Close()
	if err != nil || len(messages) != 0 {
		t.Errorf("%d messages are left, %v", len(messages), err)
	}
	if err := k.tell(false, two, 400, true); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("error %v, want one of a full disk", err)
	}
	k.must(os.Remove(filler))
	k.must(k.tell(false, one, 2, true))
	k.wantSame()
}
