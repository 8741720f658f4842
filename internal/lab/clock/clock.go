// Package clock steps the time of day of a single process. Linux has no time of day of a namespace, and Go reads it without a
// system call, by the code that the kernel maps into each process (vdso(7)). What is mapped may be written to, a page of its
// own for each process, as debuggers do: the code is replaced by one that makes the system call and adds an offset. The
// program is as it is. For tests and the lab only.
package clock

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Step steps the time of day that a process has, in addition to steps before. Time that only passes (CLOCK_MONOTONIC) goes on
// as it did.
func Step(pid int, by time.Duration) error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("step the clock on %s: %w", runtime.GOARCH, errors.ErrUnsupported)
	}
	if err := step(pid, by); err != nil {
		return fmt.Errorf("step the clock of process %d: %w", pid, err)
	}
	return nil
}

// steppedClock is a clock_gettime(clockid in edi, timespec in rsi); seconds to add are behind it.
var steppedClock = []byte{
	0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, 228 (clock_gettime)
	0x0f, 0x05, // syscall
	0x85, 0xff, // test edi, edi
	0x75, 0x0a, // jne +10, unless it is CLOCK_REALTIME
	0x48, 0x8b, 0x0d, 0x06, 0x00, 0x00, 0x00, // mov rcx, [rip+6]
	0x48, 0x01, 0x0e, // add [rsi], rcx
	0xc3, // ret
	0x90, 0x90,
}

const (
	secondsSize = 8
	// stopTime bounds how long a process takes to stand still.
	stopTime = 5 * time.Second
)

func step(pid int, by time.Duration) error {
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	at, err := clockGettime(memory, pid)
	if err != nil {
		return err
	}
	code := make([]byte, len(steppedClock)+secondsSize)
	if _, err := memory.ReadAt(code, int64(at)); err != nil {
		return fmt.Errorf("read the clock's code: %w", err)
	}
	offset := code[len(steppedClock):]
	if !bytes.HasPrefix(code, steppedClock) {
		copy(code, steppedClock)
		clear(offset)
	}
	seconds := int64(binary.LittleEndian.Uint64(offset)) + int64(by/time.Second)
	binary.LittleEndian.PutUint64(offset, uint64(seconds))
	resume, err := standStill(pid, at, at+uint64(len(code)))
	if err != nil {
		return err
	}
	_, err = memory.WriteAt(code, int64(at))
	return errors.Join(err, resume())
}

// clockGettime is where a process has the kernel's code that tells the time.
func clockGettime(memory *os.File, pid int) (address uint64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		if !strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			return 0, fmt.Errorf("read where the vdso is: %w", err)
		}
		image := make([]byte, to-from)
		if _, err := memory.ReadAt(image, int64(from)); err != nil {
			return 0, fmt.Errorf("read the vdso: %w", err)
		}
		file, err := elf.NewFile(bytes.NewReader(image))
		if err != nil {
			return 0, fmt.Errorf("read the vdso: %w", err)
		}
		symbols, err := file.DynamicSymbols()
		if err != nil {
			return 0, fmt.Errorf("read the vdso: %w", err)
		}
		for _, symbol := range symbols {
			if symbol.Name == "__vdso_clock_gettime" {
				return from + symbol.Value, nil
			}
		}
	}
	return 0, errors.New("it has no vdso with a clock")
}

// standStill stops a process where none of its threads is between two addresses, until resume.
func standStill(pid int, from, to uint64) (resume func() error, err error) {
	resume = func() error { return unix.Kill(pid, unix.SIGCONT) }
	for end := time.Now().Add(stopTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			return nil, err
		}
		stopped, inside, err := threads(pid, from, to)
		switch {
		case err != nil:
			return nil, errors.Join(err, resume())
		case stopped && !inside:
			return resume, nil
		case stopped:
			if err := resume(); err != nil {
				return nil, err
			}
		}
	}
	return nil, errors.Join(fmt.Errorf("it did not stand still within %v", stopTime), resume())
}

// threads says whether all threads of a process are stopped, and one of them between two addresses.
func threads(pid int, from, to uint64) (stopped, inside bool, err error) {
	calls, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	if err != nil {
		return false, false, err
	}
	for _, file := range calls {
		line, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return false, false, err
		}
		fields := strings.Fields(string(line)) // its last one is the instruction's address
		if len(fields) < 3 {
			return false, false, nil // it runs
		}
		at, err := strconv.ParseUint(fields[len(fields)-1], 0, 64)
		if err != nil {
			return false, false, fmt.Errorf("read %s: %w", file, err)
		}
		inside = inside || at > from && at < to
	}
	return len(calls) > 0, inside, nil
}
