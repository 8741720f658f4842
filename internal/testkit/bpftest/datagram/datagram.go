// Package datagram runs bpf/net/datagram.h for tests, which hold it against what it says of itself. For tests only.
package datagram

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package datagram -type datagram_set twin bpf/datagram.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -I../../../../bpf -I../../../../bpf/include

// Twin is the programs, with one set of cells.
type Twin struct{ objects twinObjects }

// Load loads them.
func Load() (*Twin, error) {
	t := &Twin{}
	if err := loadTwinObjects(&t.objects, nil); err != nil {
		return nil, fmt.Errorf("load twin: %w", err)
	}
	return t, nil
}

// Close unloads them.
func (t *Twin) Close() error { return t.objects.Close() }

// Life is how many ticks a datagram is known.
func (t *Twin) Life() (ticks uint32, err error) {
	return ticks, t.objects.CfgDatagramLife.Get(&ticks)
}

// Place is the index of the cell that a datagram of owner would get in the set.
func (t *Twin) Place(set *twinDatagramSet, hash uint64, owner, now uint32) (uint32, error) {
	o := &t.objects
	err := errors.Join(o.Sets.Put(uint32(0), set), o.Hash.Set(hash), o.Owner.Set(owner), o.Now.Set(now))
	if err != nil {
		return 0, fmt.Errorf("fill the set: %w", err)
	}
	return run(o.Place)
}

// Write has datagrams take each other's cells, a hundred thousand times.
func (t *Twin) Write() error { return finished(run(t.objects.Write)) }

// Read looks for them as often. One at a time may read.
func (t *Twin) Read() error { return finished(run(t.objects.Read)) }

// Found says how many were known to Read, and how many of these were told what no first fragment told.
func (t *Twin) Found() (known, wrong uint64, err error) {
	err = errors.Join(t.objects.Known.Get(&known), t.objects.Wrong.Get(&wrong))
	return known, wrong, err
}

func finished(code uint32, err error) error {
	if err == nil && code != 0 {
		return errors.New("the program stopped early")
	}
	return err
}

func run(program *ebpf.Program) (uint32, error) {
	code, err := program.Run(&ebpf.RunOptions{Data: make([]byte, 14)}) // the least that a frame has
	if err != nil {
		return 0, fmt.Errorf("run twin: %w", err)
	}
	return code, nil
}
