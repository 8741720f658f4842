// Package syncookie runs bpf/net/syncookie.h for tests, which compare it with its twin in Go. For tests
// only.
package syncookie

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/syncookie"
)

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package syncookie -type call twin bpf/syncookie.bpf.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I../../../../bpf -I../../../../bpf/include

// Twin is the program.
type Twin struct{ objects twinObjects }

// Load loads it.
func Load() (*Twin, error) {
	t := &Twin{}
	if err := loadTwinObjects(&t.objects, nil); err != nil {
		return nil, fmt.Errorf("load twin: %w", err)
	}
	return t, nil
}

// Close unloads it.
func (t *Twin) Close() error { return t.objects.Close() }

// Question is a cookie to be made, and to be checked with some of its bits turned over.
type Question struct {
	Secret        model.SYNSecret
	Flow          syncookie.Flow
	MSS           uint16
	Options       uint32 // of enum syn_option
	Slot          model.Slot
	Made, Checked time.Time
	Flip          uint32
}

// Answer is what became of it.
type Answer struct {
	Cookie, TSval, Kept uint32
	MSS                 int32 // or enum syn_refusal
}

// Ask runs the program.
func (t *Twin) Ask(q Question) (Answer, error) {
	call := twinCall{
		Made: uint64(q.Made.UnixNano()), Checked: uint64(q.Checked.UnixNano()),
		Mss: uint32(q.MSS), Options: q.Options, Slot: uint32(q.Slot), Flip: q.Flip,
	}
	call.Secret.Id = q.Secret.ID
	for i := range call.Secret.Key {
		call.Secret.Key[i] = binary.LittleEndian.Uint64(q.Secret.Secret[8*i:])
	}
	call.Flow.Client.Words, call.Flow.Vip.Words = words(q.Flow.Client.Addr()), words(q.Flow.VIP.Addr())
	call.Flow.ClientPort, call.Flow.VipPort = turned(q.Flow.Client.Port()), turned(q.Flow.VIP.Port())
	call.Flow.Vni = q.Flow.VNI
	call.Flow.Isn = binary.LittleEndian.Uint32(binary.BigEndian.AppendUint32(nil, q.Flow.ISN))
	code, err := t.objects.Twin.Run(&ebpf.RunOptions{Context: call, ContextOut: &call})
	if err == nil && code != 0 {
		err = errors.New("the program failed")
	}
	if err != nil {
		return Answer{}, fmt.Errorf("run twin: %w", err)
	}
	return Answer{Cookie: call.Cookie, TSval: call.Tsval, Kept: call.Kept, MSS: call.Verdict}, nil
}

func words(a netip.Addr) (w [4]uint32) {
	bytes := a.As16()
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(bytes[4*i:])
	}
	return w
}

// turned is a port as it is on the wire.
func turned(port uint16) uint16 { return port<<8 | port>>8 }
