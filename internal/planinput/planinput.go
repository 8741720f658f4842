// Package planinput reads what weir plan works on: a fabric, and a trace of traffic or flags to generate one.
package planinput

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/manifest"
	"github.com/weirlb/weir/internal/traffic"
)

// Input is what all plans are made of.
type Input struct {
	fabricFile, traceFile string
	total                 bits
	workload              traffic.Workload
	intervals             int
}

// Flags adds the flags to cmd.
func (p *Input) Flags(cmd *cobra.Command) {
	p.total = bits(traffic.DefaultWorkload.Total)
	p.fabricFlag(cmd, "`file` with a manifest of the kind Fabric; without it, the network of the paper")
	flags := cmd.Flags()
	flags.StringVar(&p.traceFile, "trace", "", "`file` of traffic, as docs/operations/plan.md describes it; without it, traffic is generated")
	flags.Var(&p.total, "traffic", "sum of generated traffic, in bit/s with a unit: 10T, 800G")
	flags.IntVar(&p.workload.VIPs, "vips", traffic.DefaultWorkload.VIPs, "number of generated VIPs")
	flags.Float64Var(&p.workload.Skew, "skew", traffic.DefaultWorkload.Skew, "standard deviation of the logarithm of the rates of generated VIPs")
	flags.Float64Var(&p.workload.MaxShare, "max-share", traffic.DefaultWorkload.MaxShare, "most of all traffic that one generated VIP has")
	flags.Uint64Var(&p.workload.Seed, "seed", traffic.DefaultWorkload.Seed, "seed of generated traffic: the same one gives the same traffic")
	flags.IntVar(&p.intervals, "intervals", 1, "number of generated intervals; rates change from one to the next")
	cmd.MarkFlagFilename("trace") //nolint:errcheck // the flag stands above
}

// FabricFlag adds the flag of the network alone; it has to be given.
func (p *Input) FabricFlag(cmd *cobra.Command) {
	p.fabricFlag(cmd, "`file` with a manifest of the kind Fabric, with prefixes of racks")
}

func (p *Input) fabricFlag(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVar(&p.fabricFile, "fabric", "", usage)
	cmd.MarkFlagFilename("fabric") //nolint:errcheck // the flag stands above
}

// Check refuses flags that contradict each other.
func (p *Input) Check(cmd *cobra.Command) error {
	if p.traceFile != "" {
		for _, name := range []string{"traffic", "vips", "skew", "max-share", "seed", "intervals"} {
			if cmd.Flags().Changed(name) {
				return fmt.Errorf("--%s is of generated traffic, not of a trace", name)
			}
		}
	}
	if p.intervals < 1 || p.intervals > MaxIntervals {
		return fmt.Errorf("--intervals %d is not from 1 to %d", p.intervals, MaxIntervals)
	}
	for name, isZero := range map[string]bool{
		"vips": p.workload.VIPs == 0, "skew": p.workload.Skew == 0, "max-share": p.workload.MaxShare == 0, "seed": p.workload.Seed == 0,
	} {
		if isZero && cmd.Flags().Changed(name) { // the workload would take its default
			return fmt.Errorf("--%s must not be 0", name)
		}
	}
	return nil
}

// MaxIntervals bounds the intervals that are generated or recorded.
const MaxIntervals = 10_000

// Fabric reads the network that --fabric names; read gives the documents of a file.
func (p *Input) Fabric(read func(string) ([]manifest.Resource, error)) (*fabric.Fabric, error) {
	if p.fabricFile == "" {
		spec, err := fabric.PaperClos.Spec()
		if err != nil {
			return nil, err
		}
		return fabric.New(spec)
	}
	resources, err := read(p.fabricFile)
	if err != nil {
		return nil, err
	}
	var found *weirv1.Fabric
	for _, r := range resources {
		if m, is := r.Message.(*weirv1.Fabric); is && found == nil {
			found = m
		} else if is {
			return nil, fmt.Errorf("read %s: there are several of the kind %s: one is planned with", p.fabricFile, manifest.KindFabric)
		}
	}
	if found == nil {
		return nil, fmt.Errorf("read %s: there is no document of the kind %s", p.fabricFile, manifest.KindFabric)
	}
	return compile.Fabric(found)
}

// EachInterval calls do with each interval of traffic in the fabric.
func (p *Input) EachInterval(ctx context.Context, f *fabric.Fabric, do func(traffic.Interval) error) error {
	if p.traceFile != "" {
		return p.eachOfTrace(ctx, f, do)
	}
	w := p.workload
	w.Racks, w.Total = len(f.Racks), traffic.Rate(p.total)
	var failed error
	err := traffic.Series{Workload: w, Intervals: p.intervals}.Generate(func(i traffic.Interval) bool {
		failed = cmp.Or(ctx.Err(), do(i))
		return failed == nil
	})
	return cmp.Or(failed, err)
}

func (p *Input) eachOfTrace(ctx context.Context, f *fabric.Fabric, do func(traffic.Interval) error) error {
	file, err := os.Open(p.traceFile)
	if err != nil {
		return fmt.Errorf("read the trace: %w", err)
	}
	defer file.Close()
	r := traffic.NewReader(file, RackNames(f), traffic.DefaultLimits)
	for {
		i, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", p.traceFile, err)
		}
		if err := cmp.Or(ctx.Err(), do(i)); err != nil {
			return err
		}
	}
}

// RackNames are those of the fabric's racks, by their numbers.
func RackNames(f *fabric.Fabric) []string {
	names := make([]string, len(f.Racks))
	for i, r := range f.Racks {
		names[i] = r.Name
	}
	return names
}

// bits is a rate in kbit/s that flags have in bit/s with a unit. It is a pflag.Value.
type bits traffic.Rate

// bitUnits are those of rates, in kbit/s.
var bitUnits = []struct {
	suffix string
	kbit   float64
}{{"T", 1e9}, {"G", 1e6}, {"M", 1e3}, {"k", 1}}

// Type is what help calls the value.
func (b *bits) Type() string { return "rate" }

func (b *bits) String() string { return FormatBits(traffic.Rate(*b)) }

// Set reads the flag.
func (b *bits) Set(text string) error {
	for _, unit := range bitUnits {
		number, has := strings.CutSuffix(text, unit.suffix)
		if !has {
			continue
		}
		value, err := strconv.ParseFloat(number, 64)
		if rate := value * unit.kbit; err == nil && rate >= 1 && rate <= float64(traffic.MaxRate) {
			*b = bits(math.Round(rate))
			return nil
		}
	}
	return errors.New("must be a number of bit/s with one of the units k, M, G and T, such as 3.6G, from 1k to 1000T")
}

// FormatBits writes a rate with the largest unit that it has one of: 3.6G.
func FormatBits(rate traffic.Rate) string {
	for _, unit := range bitUnits {
		if float64(rate) >= unit.kbit*0.99995 {
			return strconv.FormatFloat(math.Round(float64(rate)/unit.kbit*100)/100, 'f', -1, 64) + unit.suffix
		}
	}
	return "0"
}

// WriteWhole writes a file whole or not at all.
func WriteWhole(path string, write func(io.Writer) error) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	err = errors.Join(write(file), file.Chmod(0o644), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(file.Name()))
	}
	return nil
}

// WriteText writes a text as a file.
func WriteText(path, text string) error {
	return WriteWhole(path, func(w io.Writer) error {
		_, err := io.Copy(w, bytes.NewReader([]byte(text)))
		return err
	})
}
