package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/testkit/turns"
)

// Figure 12: both ends of all connections are on one CPU, else a round trip is of either of two kinds, by whether the
// other CPU sleeps.
const (
	rttBytes = 128
	rttBurst = 100 // round trips
	rttCPU   = 1
)

var errBroken = errors.New("a connection broke")

// measureRTT has bursts of round trips by each side take turns.
func (w *world) measureRTT(ctx context.Context, how options, to *report) error {
	var clients []int
	for _, s := range w.sides {
		e, err := s.connect()
		if err != nil {
			return err
		}
		defer e.close()
		clients = append(clients, int(e.client.Fd()))
		server := int(e.server.Fd())
		go func() {
			runtime.LockOSThread() // for good: the thread ends with its priority
			if turns.TakeCPU(rttCPU) == nil {
				echo(server, rttBytes)
			}
		}()
	}
	medians := make([][]float64, len(w.sides))
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- takeRTTTurns(ctx, how.pairs, clients, medians)
	}()
	if err := <-done; err != nil {
		return fmt.Errorf("measure round trips: %w", err)
	}
	to.compare(w.sides, medians, "us", map[string]string{device: "rtt-bypass-to-vxlan-device", fullNAT: "rtt-bypass-to-full-nat"})
	return nil
}

func takeRTTTurns(ctx context.Context, pairs int, clients []int, medians [][]float64) error {
	if err := turns.TakeCPU(rttCPU); err != nil {
		return err
	}
	for pair := -1; pair < pairs && ctx.Err() == nil; pair++ {
		for i, fd := range clients {
			median, err := roundTrips(fd)
			if err != nil {
				return err
			}
			if pair >= 0 { // the first is for warmth
				medians[i] = append(medians[i], median)
			}
		}
		time.Sleep(time.Millisecond) // for who else has work on this CPU
	}
	return ctx.Err()
}

// roundTrips is the median of a burst, in µs.
func roundTrips(fd int) (float64, error) {
	message := make([]byte, rttBytes)
	var took [rttBurst]float64
	for i := range took {
		began := time.Now()
		if _, err := unix.Write(fd, message); err != nil {
			return 0, err
		}
		if !read(fd, message) {
			return 0, errBroken
		}
		took[i] = float64(time.Since(began).Nanoseconds()) / 1e3
	}
	return quantile(took[:], 2), nil
}

// compare adds what sides reached in turns, and the medians of ratios: of bypass to each other side, by the row's name.
func (r *report) compare(sides []*side, values [][]float64, unit string, rows map[string]string) {
	what, _, _ := strings.Cut(rows[device], "-bypass")
	for i, s := range sides {
		r.Sides[what+"-"+s.name+"-"+unit] = quantile(values[i], 2)
		if s.name == bypass {
			continue
		}
		ratios := make([]float64, len(values[i]))
		for turn := range ratios {
			ratios[turn] = values[0][turn] / values[i][turn]
		}
		r.Rows = append(r.Rows, row{Name: rows[s.name], Value: quantile(ratios, 2), Low: quantile(ratios, 1), High: quantile(ratios, 3)})
	}
}

// quantile is a quartile: the first, the median or the third.
func quantile(of []float64, quarter int) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)*quarter/4]
}
