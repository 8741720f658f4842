// Command papers tells, for each figure and table of the four papers that Weir follows, which command reproduces it;
// runs those that are asked for; and writes docs/papers.md, which compares the papers' numbers with the measured ones.
//
// The figures are data: ananta.go, duet.go, mplb.go and nglb.go. A figure that a new bench reproduces needs its command
// and, for each value, where the bench's JSON holds it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"
)

func main() {
	names := flag.String("figures", "", "names of figures to reproduce, with commas between; empty: list all")
	with := flag.String("with", "", "more flags of the benches, as '-seeds 1': the page says so")
	page := flag.Bool("page", false, "write docs/papers.md anew from the results that are kept, without a run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	err := run(ctx, ".", *names, *with, *page)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "papers: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root, names, with string, page bool) error {
	if names == "" && !page {
		return list(os.Stdout)
	}
	asked, err := findFigures(names)
	if err != nil {
		return err
	}
	for i := range asked {
		asked[i].bench = asked[i].bench.with(strings.Fields(with))
	}
	failed := reproduce(ctx, root, asked)
	return errors.Join(failed, writePage(root))
}

// findFigures returns the figures that have the names, each of which has a command.
func findFigures(names string) (found []figure, err error) {
	for name := range strings.FieldsFuncSeq(names, func(r rune) bool { return r == ',' || r == ' ' }) {
		f, known := figureNamed(name)
		switch {
		case !known:
			err = errors.Join(err, fmt.Errorf("there is no figure %q: without FIGURES, all are listed", name))
		case f.bench == nil:
			err = errors.Join(err, fmt.Errorf("%s can't be reproduced: %s", name, f.state(nil)))
		case !slices.ContainsFunc(found, func(other figure) bool { return other.name == name }):
			found = append(found, f)
		}
	}
	return found, err
}

func figureNamed(name string) (figure, bool) {
	for _, p := range papers {
		for _, f := range p.entries {
			if f.name == name {
				return f, true
			}
		}
	}
	return figure{}, false
}

// list prints all figures, each with its command or with why there is none.
func list(to *os.File) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, p := range papers {
		fmt.Fprintf(w, "%s\n", p.title)
		for _, f := range p.entries {
			how := f.state(nil)
			if f.bench != nil {
				how = f.bench.command()
			}
			fmt.Fprintf(w, "  %s\t%s\t%s\n", f.name, f.place(), how)
		}
	}
	return w.Flush()
}
