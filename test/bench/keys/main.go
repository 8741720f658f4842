// Command keys is an experiment beside Weir: MPLB's own way to have joins of Multipath TCP find their server, keys that the mux
// chooses for it (HotMiddlebox 2016, Figure 6). It times the paper's algorithm in XDP by the kernel's test run, and shows that
// servers with a stock kernel take such a key while they answer SYNs with cookies, and only then.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/weirlb/weir/internal/testkit/benchlab"
)

func main() {
	out := flag.String("out", "out/bench/keys.json", "file for the results")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintf(os.Stderr, "bench keys: %v\n", err)
		os.Exit(1)
	}
}

// report is what the bench writes.
type report struct {
	Packets []packets  `json:"packets"`
	Adopted []adoption `json:"adopted"`
}

func run(out string) (err error) {
	var all report
	if all.Adopted, err = adopt(); err != nil { // before the thread is bound to a CPU
		return err
	}
	for _, a := range all.Adopted {
		fmt.Printf("tcp_syncookies=%d: %d of %d connections were joined, %d answers had another key\n", a.SYNCookies, a.Joined, a.Connections, a.Replaced)
	}
	if all.Packets, err = measure(); err != nil {
		return err
	}
	for _, p := range all.Packets {
		fmt.Printf("%-8s %8d flows %7.1f ns, %.2f of the floor\n", p.Class, p.Flows, p.Nanos, p.Ratio)
	}
	return benchlab.Write(out, all)
}
