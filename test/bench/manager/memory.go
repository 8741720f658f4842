package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/testkit/scrape"
)

// memoryUse is what a manager's process takes, in bytes.
type memoryUse struct {
	live     float64 // of its heap, as a collection found it
	resident float64 // of the machine: garbage, and pages of the store's file, too
}

// readsAtMost bounds the pages that are read until the collector ran: each leaves some MiB of garbage, or a VIP's part.
const readsAtMost = 20_000

// memoryUse tells what the first manager takes. Pages of VIPs are read, which changes nothing, until the garbage of that
// has the collector run twice: the second collection began after the call.
func (w *world) memoryUse(ctx context.Context) (use memoryUse, err error) {
	p := w.managers[0]
	kib, err := p.memory("VmRSS")
	if err != nil {
		return use, err
	}
	use.resident = float64(kib) * 1024
	begin, err := p.metric("go_gc_duration_seconds_count")
	if err != nil {
		return use, err
	}
	for range readsAtMost {
		if _, err := w.client.ListVIPs(ctx, &weirv1.ListVIPsRequest{}); err != nil {
			return use, fmt.Errorf("read VIPs: %w", err)
		}
		collections, err := p.metric("go_gc_duration_seconds_count")
		if err != nil {
			return use, err
		}
		if collections >= begin+2 {
			use.live, err = p.metric("go_gc_heap_live_bytes")
			return use, err
		}
	}
	return use, fmt.Errorf("manager %s did not collect garbage twice while %d pages were read", p.name, readsAtMost)
}

// metric is what the process shows of a metric without labels.
func (p *managerProcess) metric(name string) (float64, error) {
	for line := range strings.Lines(scrape.Text("http://" + p.metrics)) {
		if value, is := strings.CutPrefix(line, name+" "); is {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("manager %s does not show %s", p.name, name)
}

// memory is what the process takes by a field of its status, in KiB.
func (p *managerProcess) memory(field string) (kib int, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "\n"+field+":")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		return 0, fmt.Errorf("read %s of manager %s: %w", field, p.name, err)
	}
	return kib, nil
}
