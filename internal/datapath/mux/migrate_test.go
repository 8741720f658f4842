package mux

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// anotherLayout is the program with counters that have a member more: what a version before or after
// this one might have.
func anotherLayout(t *testing.T, c Config) (bpf.Sizes, *ebpf.CollectionSpec) {
	t.Helper()
	sizes, spec := ourLayout(t, c)
	verdicts := spec.Maps[bpf.MuxMapVerdicts]
	counter := btf.Copy(verdicts.Value).(*btf.Struct)
	word := counter.Members[0].Type
	counter.Members = append(counter.Members, btf.Member{Name: "fragments", Type: word, Offset: btf.Bits(8 * counter.Size)})
	counter.Size += 8
	verdicts.Value, verdicts.ValueSize = counter, counter.Size
	return sizes, spec
}

func ourLayout(t *testing.T, c Config) (bpf.Sizes, *ebpf.CollectionSpec) {
	t.Helper()
	sizes, err := c.sizes()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := sizes.Spec()
	if err != nil {
		t.Fatal(err)
	}
	return sizes, spec
}

type layout func(*testing.T, Config) (bpf.Sizes, *ebpf.CollectionSpec)

func (p place) openLayout(t *testing.T, l layout) *Datapath {
	t.Helper()
	sizes, spec := l(t, p.config)
	var d *Datapath
	err := p.ns.Do(func() (err error) {
		d, err = open(p.config, sizes, spec)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestTablesOfAnotherLayoutMakeWay upgrades and downgrades under traffic, and loses no packet.
func TestTablesOfAnotherLayoutMakeWay(t *testing.T) {
	larger := func(t *testing.T, c Config) (bpf.Sizes, *ebpf.CollectionSpec) {
		c.MaxEndpoints *= 2
		return ourLayout(t, c)
	}
	for name, c := range map[string]struct{ from, to layout }{
		"upgrade":       {anotherLayout, ourLayout},
		"downgrade":     {ourLayout, anotherLayout},
		"larger tables": {ourLayout, larger},
	} {
		t.Run(name, func(t *testing.T) { makeWay(t, c.from, c.to) })
	}
}

func makeWay(t *testing.T, from, to layout) {
	const before, after = tunnel4, "10.0.0.2"
	p := newPlace(t)
	old := p.openLayout(t, from)
	fill(t, old, before)
	f := p.traffic(t)
	f.more(before, 100)
	program := programID(t, old)
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}

	// A process that ends before it has filled its tables has disturbed nothing.
	if err := p.openLayout(t, to).Close(); err != nil {
		t.Fatal(err)
	}
	old = p.openLayout(t, from)
	if old.predecessor != nil || programID(t, old) != program {
		t.Error("an attempt to migrate changed what is live")
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}

	d := p.openLayout(t, to)
	if d.predecessor == nil {
		t.Fatal("tables of another layout were adopted")
	}
	keys, err := d.Endpoints()
	want := []model.EndpointKey{newEndpoint(vip4, model.TCP).Key, newEndpoint(vip4, model.UDP).Key}
	if err != nil || !slices.Equal(keys, want) {
		t.Errorf("to be announced: %v, error %v, want %v", keys, err, want)
	}
	fill(t, d, after)
	f.more(before, 100)
	if got := programID(t, d); got != program {
		t.Errorf("program %d is attached before it took over, want %d", got, program)
	}
	if err := d.TakeOver(); err != nil {
		t.Fatal(err)
	}
	f.more(after, 100)
	if err := errors.Join(d.TakeOver(), d.Close()); err != nil {
		t.Fatal(err)
	}

	// What took over is whole: the next start adopts it.
	d = p.openLayout(t, to)
	defer d.Close()
	if d.predecessor != nil {
		t.Error("what took over was not adopted")
	}
	if names, err := d.folder.Names(""); err != nil || len(names) != len(d.tables.Pinned())+3 {
		t.Errorf("live pins are %v, error %v", names, err)
	}
	f.more(after, 100)
	f.end(before, after)
}

// TestAnotherProgramIsReplacedAtTheStart attaches a program that is not the pinned one, as a process does
// that is killed while it captures.
func TestAnotherProgramIsReplacedAtTheStart(t *testing.T) {
	p := newPlace(t)
	d := p.mustOpen(t)
	fill(t, d, tunnel4)
	id := programID(t, d)
	f := p.traffic(t)
	f.more(tunnel4, 20)
	_, spec := ourLayout(t, p.config)
	other, err := bpf.Load(spec, &d.tables)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.link.Update(other.Program); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(other.Tables.Close(), other.Programs.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	f.more(tunnel4, 20)
	d = p.mustOpen(t)
	defer d.Close()
	if got := programID(t, d); got != id {
		t.Errorf("program %d is attached, want the pinned one, %d", got, id)
	}
	f.more(tunnel4, 20)
	f.end(tunnel4)
}

func TestInspectRefusesAnotherLayout(t *testing.T) {
	p := newPlace(t)
	if err := p.openLayout(t, anotherLayout).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Inspect(p.config.PinPath); err == nil || !strings.Contains(err.Error(), "ask the weir-mux of the version that runs") {
		t.Errorf("error is %v", err)
	}
}

// Tables that do not say which VIPs they hold can't be replaced without a gap in their routes.
func TestTablesWithoutReadableKeysAreRefused(t *testing.T) {
	p := newPlace(t)
	unreadable := func(t *testing.T, c Config) (bpf.Sizes, *ebpf.CollectionSpec) {
		sizes, spec := ourLayout(t, c)
		key := btf.Copy(spec.Maps[bpf.MuxMapEndpoints].Key).(*btf.Struct)
		key.Members[0].Name = "address"
		spec.Maps[bpf.MuxMapEndpoints].Key = key
		return sizes, spec
	}
	if err := p.openLayout(t, unreadable).Close(); err != nil {
		t.Fatal(err)
	}
	d, err := p.open()
	if err == nil {
		_ = d.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "which VIPs they hold can't be read") {
		t.Errorf("error is %v", err)
	}
}

func TestPinsOfAVersionWithMoreTables(t *testing.T) {
	p := newPlace(t)
	d := p.mustOpen(t)
	extra, err := ebpf.NewMap(&ebpf.MapSpec{Name: "extra", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer extra.Close()
	if err := errors.Join(extra.Pin(d.folder.Live("extra")), d.Close()); err != nil {
		t.Fatal(err)
	}
	d = p.mustOpen(t)
	defer d.Close()
	if d.predecessor == nil {
		t.Error("tables of which one is unknown were adopted")
	}
	fill(t, d, tunnel4)
	if err := d.TakeOver(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.folder.Live("extra")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unknown table is still pinned: %v", err)
	}
	chosen(t, d, pkt.TCP(client4, vip4, pkt.SYN))
}
