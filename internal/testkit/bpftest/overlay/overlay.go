// Package overlay runs bpf/net/session/table.h for tests, which compare the session table with a map. For tests only.
package overlay

import (
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
)

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package overlay -type call twin bpf/overlay.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -I../../../../bpf -I../../../../bpf/include

// Twin is the program and its table.
type Twin struct{ objects twinObjects }

// Load makes a table of so many sets, a power of two.
func Load(sets uint32) (*Twin, error) {
	spec, err := loadTwin()
	if err != nil {
		return nil, err
	}
	spec.Maps["session_sets"].MaxEntries = sets
	t := &Twin{}
	if err := spec.LoadAndAssign(&t.objects, nil); err != nil {
		return nil, fmt.Errorf("load twin: %w", err)
	}
	key := twinFlowhashKey{}
	for i := range key.Words {
		key.Words[i] = uint32(0x9e3779b9 * (i + 1))
	}
	if err := t.objects.HashKey.Set(&key); err != nil {
		return nil, fmt.Errorf("set hash key: %w", err)
	}
	return t, t.Masks(sets, sets)
}

// Close unloads it.
func (t *Twin) Close() error { return t.objects.Close() }

// Table is the map of sets.
func (t *Twin) Table() *ebpf.Map { return t.objects.SessionSets }

// Masks tells the program how many sets it uses, and how many it used before the table grew.
func (t *Twin) Masks(sets, old uint32) error {
	return t.objects.Settings.Set(&twinOverlaySettings{SetMask: sets - 1, OldMask: old - 1})
}

// Key is a connection.
type Key struct {
	Client     netip.AddrPort
	Attachment uint32
	Port       uint16 // the VIP's
}

// What the program says instead of a row.
const (
	None    = -1
	Full    = -1
	GaveWay = -2
)

const (
	find = iota
	put
	renew
	fill
)

func (t *Twin) run(k Key, call twinCall) (int, error) {
	call.Key.Client.Words = abi.Words(k.Client.Addr())
	call.Key.ClientPort, call.Key.VipPort = abi.Port(k.Client.Port()), abi.Port(k.Port)
	call.Key.Attachment = k.Attachment
	if _, err := t.objects.Table.Run(&ebpf.RunOptions{Context: call, ContextOut: &call}); err != nil {
		return 0, fmt.Errorf("run twin: %w", err)
	}
	return int(call.Answer), nil
}

// Find returns the row of a connection, or None.
func (t *Twin) Find(k Key) (int, error) { return t.run(k, twinCall{Operation: find}) }

// Put makes a row at a time, in ticks, of what has been seen of the connection: its number, Full or GaveWay.
func (t *Twin) Put(k Key, now, events uint32) (int, error) {
	return t.run(k, twinCall{Operation: put, Now: now, Events: events})
}

// Renew begins a connection anew.
func (t *Twin) Renew(k Key, now uint32) (int, error) {
	return t.run(k, twinCall{Operation: renew, Now: now})
}

// Fill makes connections of clients that differ until one is refused, and returns how many were made.
func (t *Twin) Fill(k Key, count, now uint32) (int, error) {
	return t.run(k, twinCall{Operation: fill, Count: count, Now: now, Step: 0x9e3779b1})
}
