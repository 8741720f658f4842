package overlay

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/trust"
)

// WorkloadName names a workload of a network.
type WorkloadName struct{ Network, Workload string }

// String is "network/workload".
func (w WorkloadName) String() string { return w.Network + "/" + w.Workload }

// Interfaces say which interfaces workloads have on this host, instead of those that their network names: an orchestrator
// often knows no sooner. Whose addresses a workload has is for the network alone to say.
type Interfaces map[WorkloadName]string

const (
	interfacesFile = "ports.yaml"
	// mostInterfaces and mostBytes bound the file.
	mostInterfaces = vnet.MaxWorkloads
	mostBytes      = 4 << 20
)

// ReadInterfaces reads those of a host's data directory; none is no error.
func ReadInterfaces(dataDir string) (Interfaces, error) {
	all := Interfaces{}
	path := filepath.Join(dataDir, interfacesFile)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ports: %w", err)
	}
	if info.Size() > mostBytes {
		return nil, fmt.Errorf("read ports: %s has %d bytes, more than %d", path, info.Size(), mostBytes)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read ports: %w", err)
	}
	var lines map[string]string
	if err := yaml.Unmarshal(text, &lines); err != nil {
		return nil, fmt.Errorf("read ports: %s: %w", path, err)
	}
	for name, device := range lines {
		network, workload, _ := strings.Cut(name, "/")
		if err := all.Set(WorkloadName{network, workload}, device); err != nil {
			return nil, fmt.Errorf("read ports: %s: %w", path, err)
		}
	}
	return all, nil
}

// Set says which interface a workload has. An interface is one workload's.
func (i Interfaces) Set(workload WorkloadName, device string) error {
	if !model.ValidName(workload.Network) || !model.ValidName(workload.Workload) {
		return fmt.Errorf("add port: network and workload must be DNS labels, are %.64q and %.64q", workload.Network, workload.Workload)
	}
	if reason := vnet.InterfaceName(device); reason != "" {
		return fmt.Errorf("add port: interface %s", reason)
	}
	for other, has := range i {
		if has == device && other != workload {
			return fmt.Errorf("add port: %s is the interface of %s: remove that first", device, other)
		}
	}
	if i[workload] = device; len(i) > mostInterfaces {
		return fmt.Errorf("add port: there are %d, the most that there may be", mostInterfaces)
	}
	return nil
}

// Remove forgets an interface.
func (i Interfaces) Remove(device string) error {
	for workload, has := range i {
		if has == device {
			delete(i, workload)
			return nil
		}
	}
	return fmt.Errorf("remove port: none was added for interface %s", device)
}

// ChangeInterfaces reads the file, and replaces it as change says, while no other process does. A daemon that runs follows
// within seconds.
func ChangeInterfaces(dataDir string, change func(Interfaces) error) error {
	lock, err := os.OpenFile(filepath.Join(dataDir, interfacesFile+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("lock ports: %w", err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock ports: %w", err)
	}
	all, err := ReadInterfaces(dataDir)
	if err != nil {
		return err
	}
	if err := change(all); err != nil {
		return err
	}
	return all.write(dataDir)
}

// write replaces the file in one step.
func (i Interfaces) write(dataDir string) error {
	var b strings.Builder
	b.WriteString("# Interfaces of virtual networks' workloads on this host: written by weir-agent port.\n")
	for _, name := range slices.SortedFunc(maps.Keys(i), func(a, b WorkloadName) int { return strings.Compare(a.String(), b.String()) }) {
		fmt.Fprintf(&b, "%s: %q\n", name, i[name])
	}
	if err := trust.WriteFile(filepath.Join(dataDir, interfacesFile), []byte(b.String())); err != nil {
		return fmt.Errorf("write ports: %w", err)
	}
	return nil
}

// followInterfaces reads the file again if it has changed, and says whether it has.
func (c *Controller) followInterfaces() (changed bool, err error) {
	if c.config.DataDir == "" {
		return false, nil
	}
	info, err := os.Stat(filepath.Join(c.config.DataDir, interfacesFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		changed, c.interfaces, c.interfacesAt = len(c.interfaces) > 0, nil, nil
		return changed, nil
	case err != nil:
		return false, fmt.Errorf("read ports: %w", err)
	case c.interfacesAt != nil && os.SameFile(info, c.interfacesAt) && info.ModTime().Equal(c.interfacesAt.ModTime()):
		return false, nil
	}
	next, err := ReadInterfaces(c.config.DataDir)
	if err != nil {
		return false, err // what was read last goes on
	}
	changed = !maps.Equal(next, c.interfaces)
	c.interfaces, c.interfacesAt = next, info
	return changed, nil
}
