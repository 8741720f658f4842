package netlab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/weirlb/weir/internal/lab/frr"
	"github.com/weirlb/weir/internal/lab/netns"
)

// Root holds one folder per lab.
const Root = "/run/weir-lab"

// Config says what Up builds.
type Config struct {
	Plan
	Bin string // folder with the programs of Weir

	// Workload starts what a workload serves. Nil: the echo of weir lab echo, on port 8080.
	Workload func(lab *Lab, node Node) error

	// Store starts an etcd that the managers use instead of their own, and returns its URLs, as --etcd-endpoints takes them.
	Store func(lab *Lab) (endpoints string, err error)

	// MuxFlags are more flags of the muxes' programs.
	MuxFlags []string

	// Later names muxes and hosts whose programs Up does not start: they take part from Join on.
	Later []string

	// Tied ends the lab's processes when this process ends, however it ends.
	Tied bool
}

// Lab is a running lab.
type Lab struct {
	Plan
	bin   string
	dir   string
	tied  bool
	flags []string // of muxes

	mu        sync.Mutex
	spaces    map[string]*netns.NS
	processes []*Process

	joining sync.Mutex
	tokens  map[string][]string // flags of those that join, by role
}

// Dir is the lab's folder.
func (l *Lab) Dir() string { return l.dir }

// LogDir is where each process has its log.
func (l *Lab) LogDir() string { return filepath.Join(l.dir, "log") }

// PinPath is the folder of a node's pinned data plane.
func (l *Lab) PinPath(node string) string { return filepath.Join(l.dir, "bpf", node) }

func (l *Lab) frrDir() string { return filepath.Join(l.dir, "frr") }

// Router is the lab's FRR.
func (l *Lab) Router() *frr.Router { return frr.Open(l.frrDir()) }

// Up builds a lab and waits until it works: nodes registered, BGP established. What was built is
// taken down again if a step fails.
func Up(ctx context.Context, config Config) (*Lab, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("build lab: %w", err)
	}
	if err := Requirements(config.Bin); err != nil {
		return nil, err
	}
	dir := filepath.Join(Root, config.Name)
	if _, err := os.Stat(dir); err == nil {
		return nil, fmt.Errorf("build lab %s: there is one of this name: take it down first (weir lab down --name %s)", config.Name, config.Name)
	}
	l := &Lab{Plan: config.Plan, bin: config.Bin, dir: dir, tied: config.Tied, flags: config.MuxFlags, spaces: map[string]*netns.NS{}, tokens: map[string][]string{}}
	if err := l.build(ctx, config); err != nil {
		return nil, fmt.Errorf("build lab %s: %w", config.Name, errors.Join(err, l.Down()))
	}
	return l, nil
}

func (l *Lab) build(ctx context.Context, config Config) error {
	if config.Workload == nil {
		config.Workload = (*Lab).startEcho
	}
	steps := []func() error{
		l.makeFolders, l.save, l.buildNetwork, l.startRouter,
		func() error { return l.startManagers(ctx, config.Store) },
		func() error { return l.startNodes(config.Later) },
		func() error { return l.startWorkloads(config.Workload) },
		l.startOutside,
		func() error { return l.WaitReady(ctx) },
	}
	for _, step := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// Open finds a lab that runs, perhaps built by another process.
func Open(name string) (*Lab, error) {
	l := &Lab{Plan: Plan{Name: name}, dir: filepath.Join(Root, name), spaces: map[string]*netns.NS{}, tokens: map[string][]string{}}
	if err := l.load(); err != nil {
		return nil, fmt.Errorf("open lab %s: %w", name, err)
	}
	return l, nil
}

// NS is the namespace of a node. A native workload has none: its host's is returned.
func (l *Lab) NS(name string) (*netns.NS, error) {
	node, err := l.Node(name)
	if err != nil {
		return nil, err
	}
	if node.Native {
		name = node.Host
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if ns := l.spaces[name]; ns != nil {
		return ns, nil
	}
	ns, err := netns.Open(l.space(name))
	if err != nil {
		return nil, err
	}
	l.spaces[name] = ns
	return ns, nil
}

func (l *Lab) prefix() string { return "weir-" + l.Name + "-" }

func (l *Lab) space(node string) string { return l.prefix() + node }

// Run runs a program on a node to its end.
func (l *Lab) Run(node, program string, args ...string) (output string, err error) {
	ns, err := l.NS(node)
	if err != nil {
		return "", err
	}
	return ns.Run(program, args...)
}

// Weir runs the command line against the lab's managers, as the cluster's first user.
func (l *Lab) Weir(args ...string) (output string, err error) {
	return l.Run(l.operator(), filepath.Join(l.bin, "weir"), append([]string{"--config", l.AdminFile(), "--manager", l.ManagerURLs()}, args...)...)
}
