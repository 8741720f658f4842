package rpc

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// told has a fence take over what a manager says, and returns whether it refuses that.
func told(f *fence, cluster, epoch, generation uint64) (refused bool) {
	return errors.As(f.pass(&weirv1.SyncMuxResponse{Cluster: cluster, Epoch: epoch, Generation: generation}), new(*StaleError))
}

// says is what a node tells a manager that it has seen.
func says(f *fence) seen {
	r := &weirv1.SyncHostRequest{}
	f.stamp(r)
	return seen{r.GetCluster(), model.Epoch(r.GetEpoch()), model.Generation(r.GetGeneration())}
}

func TestANodeRemembersOverItsRestart(t *testing.T) {
	dir, log := filepath.Join(t.TempDir(), "not", "there"), slog.New(slog.DiscardHandler)
	first := newFence(dir, log)
	for _, said := range []seen{{1, 20, 200}, {1, 0, 201}, {1, 21, 201}} {
		if told(first, said.cluster, uint64(said.epoch), uint64(said.generation)) {
			t.Fatalf("%v is refused", said)
		}
	}
	second := newFence(dir, log)
	if got, want := says(second), (seen{1, 21, 201}); got != want {
		t.Errorf("started anew, the node says that it has seen %v, want %v", got, want)
	}
	if !told(second, 1, 20, 300) || !told(second, 1, 21, 200) {
		t.Error("started anew, the node takes what is older")
	}
	if got, want := says(newFence(dir, log)), (seen{1, 21, 201}); got != want {
		t.Errorf("what was refused is remembered: %v, want %v", got, want)
	}
	if told(second, 2, 3, 4) {
		t.Error("another cluster is refused")
	}
	if got, want := says(newFence(dir, log)), (seen{2, 3, 4}); got != want {
		t.Errorf("of another cluster the node remembers %v, want %v", got, want)
	}
}

// Switches say it as hosts do.
func TestASwitchSaysWhatItHasSeen(t *testing.T) {
	f := newFence("", slog.New(slog.DiscardHandler))
	if told(f, 1, 20, 200) {
		t.Fatal("the first is refused")
	}
	r, report := &weirv1.SyncSwitchRequest{}, &weirv1.ReportSwitchRequest{}
	f.stamp(r)
	f.stamp(report)
	if r.GetCluster() != 1 || r.GetEpoch() != 20 || r.GetGeneration() != 200 || report.GetEpoch() != 20 {
		t.Errorf("it says %v and %v", r, report)
	}
	if err := f.pass(&weirv1.SyncSwitchResponse{Cluster: 1, Epoch: 19, Generation: 201}); err == nil {
		t.Error("a manager that is behind is believed")
	}
}

// Whatever the file is like, the node starts, says so, and remembers from then on.
func TestADamagedMemoryIsNone(t *testing.T) {
	whole := seen{1, 20, 200}.String()
	damaged := map[string]string{
		"longer": whole + "x", "twice": whole + whole, "no line end": strings.TrimSpace(whole) + " ",
		"zeros": string(make([]byte, len(whole))), "negative": strings.Replace(whole, " 000000000000000", " -00000000000000", 1),
	}
	for n := range len(whole) {
		damaged["cut off at "+whole[:n]] = whole[:n]
		flipped := []byte(whole)
		flipped[n] ^= 1
		damaged["flipped "+string(flipped)] = string(flipped)
	}
	for name, text := range damaged {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, memoryFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		f := newFence(dir, slog.New(slog.NewTextHandler(&log, nil)))
		if got := says(f); got != (seen{}) || !strings.Contains(log.String(), "what this node has seen of the cluster is lost") {
			t.Errorf("%s: the node says that it has seen %v, and logs %q", name, got, log.String())
		}
		if told(f, 1, 3, 4) {
			t.Errorf("%s: the node believes nobody", name)
		}
		if got, want := says(newFence(dir, slog.New(slog.DiscardHandler))), (seen{1, 3, 4}); got != want {
			t.Errorf("%s: the node remembers %v, want %v", name, got, want)
		}
	}
}

// A node that can't write goes on without a memory of its own, and says so once.
func TestAMemoryThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, memoryFile), 0o700); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	f := newFence(dir, slog.New(slog.NewTextHandler(&log, nil)))
	log.Reset()
	for generation := uint64(200); generation < 210; generation++ {
		if told(f, 1, 20, generation) {
			t.Errorf("generation %d is refused", generation)
		}
	}
	if !told(f, 1, 19, 300) {
		t.Error("the node takes what is older")
	}
	if n := strings.Count(log.String(), "can't keep what this node has seen"); n != 1 {
		t.Errorf("logged %d times: %q", n, log.String())
	}
}

// A user's client leaves no file behind.
func TestOnlyNodesRemember(t *testing.T) {
	if f := newFence("", nil); f.memory != nil || told(f, 1, 20, 200) {
		t.Error("a client without a data directory keeps something, or refuses it")
	}
}
