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

	// Store starts an etcd that the managers use instead of their own, and returns its URLs, as --etcd-endpoints takes
	// them.
	Store func(lab *Lab) (endpoints string, err error)

	// MuxFlags are more flags of the muxes' programs.
	MuxFlags []string

	// Later names muxes and hosts whose programs Up does not start: they take part from Join on.
	Later []string

	// Tied ends the lab's processes when this process ends, however it ends.
	Tied bool
}

// Lab is a running lab. Each of its parts needs only those within it.
type Lab struct {
	cluster
	flags []string // of muxes
}

// cluster is what the programs do together: what the managers, the router and the muxes say of it, and who may join.
type cluster struct {
	programs
	joining sync.Mutex
	tokens  map[string][]string // flags of those that join, by role
}

// programs are the processes on the nodes.
type programs struct {
	network
	bin  string
	tied bool

	processesMu sync.Mutex
	processes   []*Process
}

// network is the plan, with the namespaces and links that it became.
type network struct {
	Plan
	dir string

	spacesMu sync.Mutex
	spaces   map[string]*netns.NS
}

// newLab returns the lab of a plan, of which nothing needs to be there.
func newLab(plan Plan) *Lab {
	l := &Lab{}
	l.Plan, l.dir = plan, filepath.Join(Root, plan.Name)
	l.spaces, l.tokens = map[string]*netns.NS{}, map[string][]string{}
	return l
}

// Dir is the lab's folder.
func (l *network) Dir() string { return l.dir }

// LogDir is where each process has its log.
func (l *network) LogDir() string { return filepath.Join(l.dir, "log") }

// PinPath is the folder of a node's pinned data plane.
func (l *network) PinPath(node string) string { return filepath.Join(l.dir, "bpf", node) }

func (l *network) frrDir() string { return filepath.Join(l.dir, "frr") }

// Router is the lab's FRR.
func (l *network) Router() *frr.Router { return frr.Open(l.frrDir()) }

// Up builds a lab and waits until it works: nodes registered, BGP established. What was built is
// taken down again if a step fails.
func Up(ctx context.Context, config Config) (*Lab, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("build lab: %w", err)
	}
	if err := Requirements(config.Bin); err != nil {
		return nil, err
	}
	l := newLab(config.Plan)
	if _, err := os.Stat(l.dir); err == nil {
		return nil, fmt.Errorf("build lab %s: there is one of this name: take it down first (weir lab down --name %[1]s)",
			config.Name)
	}
	l.bin, l.tied, l.flags = config.Bin, config.Tied, config.MuxFlags
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
		l.makeFolders, l.save, l.writeNetworks, l.buildNetwork, l.startRouter, l.startFabric,
		func() error { return l.startManagers(ctx, config.Store) },
		func() error { return l.startNodes(config.Later) },
		func() error { return l.startWorkloads(config.Workload) },
		l.startOutside,
		func() error { return l.WaitReady(ctx) },
		func() error { return l.WaitFabric(ctx) },
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
	l := newLab(Plan{Name: name})
	if err := l.load(); err != nil {
		return nil, fmt.Errorf("open lab %s: %w", name, err)
	}
	return l, nil
}

// NS is the namespace of a node. A native workload has none: its host's is returned.
func (l *network) NS(name string) (*netns.NS, error) {
	node, err := l.Node(name)
	if err != nil {
		return nil, err
	}
	if node.Native {
		name = node.Host
	}
	l.spacesMu.Lock()
	defer l.spacesMu.Unlock()
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

func (l *network) prefix() string { return "weir-" + l.Name + "-" }

func (l *network) space(node string) string { return l.prefix() + node }

// Run runs a program on a node to its end.
func (l *network) Run(node, program string, args ...string) (output string, err error) {
	ns, err := l.NS(node)
	if err != nil {
		return "", err
	}
	return ns.Run(program, args...)
}

// Weir runs the command line against the lab's managers, as the cluster's first user.
func (l *cluster) Weir(args ...string) (output string, err error) {
	args = append([]string{"--config", l.AdminFile(), "--manager", l.ManagerURLs()}, args...)
	return l.Run(l.operator(), filepath.Join(l.bin, "weir"), args...)
}
