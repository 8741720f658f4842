package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

// When the disk is full nothing is changed, what is there is read, what nodes say is written, and all goes on when
// there is room again.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it mounts a small disk")
	}
	dir := t.TempDir()
	if err := unix.Mount("disk", dir, "tmpfs", 0, "mode=700,size=400m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s, _ := open(t, etcd.Config{DataDir: dir})
	mustUpdate(t, s, Change{VIPs: []model.VIP{vip("before", "203.0.113.1")}, Nodes: []model.Node{{Name: "mux1", Role: model.RoleMux}}})
	eventually(t, "room for the database is reserved", func() bool {
		var stat unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, "etcd", "member", "snap", "db"), &stat); err != nil {
			t.Fatal(err)
		}
		return stat.Blocks*512 >= stat.Size
	})
	filler := filepath.Join(dir, "filler")
	file, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 1<<20); err == nil; {
		_, err = file.Write(block)
	}
	file.Close()
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	_, err = s.Update(t.Context(), change(Change{VIPs: []model.VIP{vip("during", "203.0.113.2")}}))
	if full := new(etcd.NoSpaceError); !errors.As(err, &full) || !strings.Contains(err.Error(), dir) {
		t.Errorf("on a full disk: %v", err)
	}
	detail := func() ([]byte, error) { return []byte("{}"), nil }
	for generation := model.Generation(1); generation < 200; generation++ {
		s.Status.Put("mux1", nodestatus.Write{
			Status: nodestatus.Status{Generation: generation}, Detail: detail, News: true, Failed: func(err error) { t.Error(err) },
		})
		eventually(t, "what a node said is there", func() bool { return s.State().Status.At("mux1").Generation == generation })
	}
	if _, err := s.Current(t.Context()); err != nil || !s.State().VIPs.Has("before") || s.State().VIPs.Has("during") {
		t.Errorf("what was there is not: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	mustUpdate(t, s, Change{VIPs: []model.VIP{vip("after", "203.0.113.3")}})
}
