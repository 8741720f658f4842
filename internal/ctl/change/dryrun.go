package change

import (
	"fmt"
	"io"
	"strings"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/rpc"
)

// printDryRun says what applying would do to each VIP and to the tables of its endpoints.
func printDryRun(w io.Writer, vips []*weirv1.AppliedVIP) error {
	for _, vip := range vips {
		fmt.Fprintf(w, "vip %s %s\n", vip.GetName(), wouldBe(vip.GetChange()))
		if m := vip.GetMove(); m != nil {
			fmt.Fprintf(w, "  would be served by %s instead of %s\n", servedBy(m.GetTo()), servedBy(m.GetFrom()))
		}
		printPending(w, vip.GetPending())
		if len(vip.GetEffects()) == 0 {
			continue
		}
		t := table.New("  ", "",
			"ENDPOINT", "TABLE", "BUCKETS MOVED", "WAITING", "CONNECTIONS", "NO COOKIE", "CHAINED", "MEMORY")
		for _, e := range vip.GetEffects() {
			t.Add(table.EndpointName(e.GetEndpoint()), e.GetChange(), bucketsMoved(e), e.GetBucketsWaiting(),
				e.GetSessions(), e.GetSessionsWithoutCookie(), e.GetSessionsChained(),
				byteCount(e.GetTableBytesBefore())+" -> "+byteCount(e.GetTableBytesAfter()))
		}
		if err := t.Write(w); err != nil {
			return err
		}
	}
	return nil
}

// printPending says what is waited for.
func printPending(w io.Writer, lines []string) {
	for _, line := range lines {
		fmt.Fprintln(w, "  waits: "+line)
	}
}

// servedBy are switches; none: the muxes.
func servedBy(switches []string) string {
	if len(switches) == 0 {
		return "muxes"
	}
	return "switches " + strings.Join(switches, ", ")
}

// wouldBe is what a change would be.
func wouldBe(change string) string {
	if change == rpc.Unchanged {
		return "would stay as it is"
	}
	return "would be " + change
}

// bucketsMoved is "128 of 512 (25.0%)".
func bucketsMoved(e *weirv1.EndpointEffect) string {
	if e.GetBucketsTotal() == 0 {
		return "-"
	}
	return fmt.Sprintf("%d of %d (%.1f%%)", e.GetBucketsMoved(), e.GetBucketsTotal(),
		100*float64(e.GetBucketsMoved())/float64(e.GetBucketsTotal()))
}

// byteCount is "620 B" or "12.5 KiB".
func byteCount(n uint64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/1024)
}
