// Package fbt runs bpf/net/fbt.h and what removes the option for tests, which compare them with their twin in Go. For tests only.
package fbt

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/fbt"
)

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package fbt maker bpf/make.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -I../../../../bpf -I../../../../bpf/include
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package fbt stripper bpf/strip.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -I../../../../bpf -I../../../../bpf/include

// Twin is the programs.
type Twin struct {
	maker    makerObjects
	stripper stripperObjects
}

// Load loads them.
func Load() (*Twin, error) {
	t := &Twin{}
	if err := loadMakerObjects(&t.maker, nil); err != nil {
		return nil, fmt.Errorf("load maker: %w", err)
	}
	if err := loadStripperObjects(&t.stripper, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("load stripper: %w", err), t.maker.Close())
	}
	return t, nil
}

// Close unloads them.
func (t *Twin) Close() error { return errors.Join(t.maker.Close(), t.stripper.Close()) }

// Make returns the option of a segment.
func (t *Twin) Make(key fbt.Key, s fbt.Segment, c fbt.Content) (option [fbt.Length]byte, err error) {
	call := makerCall{}
	call.Key.Id = key.ID
	for i := range call.Key.Key {
		call.Key.Key[i] = binary.LittleEndian.Uint64(key.Secret[8*i:])
	}
	call.Segment.Outer.Words = abi.Words(s.Outer)
	call.Segment.Client.Words, call.Segment.Vip.Words = abi.Words(s.Client.Addr()), abi.Words(s.VIP.Addr())
	call.Segment.ClientPort, call.Segment.VipPort = abi.Port(s.Client.Port()), abi.Port(s.VIP.Port())
	call.Segment.Seq = onWire(s.Seq)
	call.Says.Vni, call.Says.Host = c.VNI, onWire(c.Number)
	if c.Host.IsValid() {
		host := c.Host.As4()
		call.Says.Host = binary.NativeEndian.Uint32(host[:])
	} else {
		call.Says.Flags |= uint8(makerFbtFormatFBT_NUMBER)
	}
	if c.Via {
		call.Says.Flags |= uint8(makerFbtFormatFBT_VIA)
	}
	if err := t.maker.Made.Set(&call); err != nil {
		return option, fmt.Errorf("set call: %w", err)
	}
	if _, err := t.maker.Make.Run(&ebpf.RunOptions{}); err != nil {
		return option, fmt.Errorf("run make: %w", err)
	}
	if err := t.maker.Made.Get(&call); err != nil {
		return option, fmt.Errorf("get answer: %w", err)
	}
	_, err = binary.Encode(option[:], binary.NativeEndian, call.Fbt)
	return option, err
}

// Strip removes the option from a frame; nil when it has none.
func (t *Twin) Strip(frame []byte) ([]byte, error) {
	const none, stripped = 0, 1
	options := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64)}
	code, err := t.stripper.Strip.Run(options)
	switch {
	case err != nil:
		return nil, fmt.Errorf("run strip: %w", err)
	case code == none:
		return nil, nil
	case code != stripped:
		return nil, fmt.Errorf("run strip: code %d", code)
	}
	return options.DataOut, nil
}

// onWire is a number as the CPU loads it from the wire.
func onWire(n uint32) uint32 {
	return binary.NativeEndian.Uint32(binary.BigEndian.AppendUint32(nil, n))
}
