package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/output"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/daemon"
	"github.com/weirlb/weir/internal/rpc"
)

// Bounds of what is asked for.
const (
	partTime = 15 * time.Second
	mostLog  = "5000" // lines of each unit
	mostList = 1000   // of events, and of entries of the audit log
)

// Command returns the command support-bundle.
func Command(s *session.Session) *cobra.Command {
	file := ""
	cmd := &cobra.Command{
		Use: "support-bundle", Short: "Collect what somebody who helps needs to see, without secrets, in one file",
		Args: session.Arguments(0, 0, ""),
		Long: `Collect what somebody who helps needs to see in one tar.gz: status, nodes, VIPs, events and
audit log of the cluster; and of this machine the kernel, the daemons' configuration, their
logs, and what weir doctor sees of interfaces. Keys, tokens and passwords are taken out; it
has at most 32 MiB before compression. What can't be had is named in it: users without the
role admin have no audit log, and only root has logs.

It has addresses and names of your network: look into it before you give it away.`,
		Example: `  sudo weir support-bundle -w weir-support.tar.gz`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			now := s.Now()
			if file == "" {
				file = "weir-support-" + now.UTC().Format("20060102-150405") + ".tar.gz"
			}
			missing, err := write(cmd, s, file, now)
			if err != nil {
				return fmt.Errorf("write %s: %w", file, err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "wrote %s; %d parts could not be had, as its MISSING tells\n", file, missing)
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "write", "w", "", "`file` to write; else weir-support-TIME.tar.gz here")
	return cmd
}

// part is a file of the archive.
type part struct {
	name string
	get  func(context.Context) ([]byte, error)
}

// write writes the archive, which only its owner may read. What exists is not written over.
func write(cmd *cobra.Command, s *session.Session, path string, now time.Time) (missing int, err error) {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	parts := machineParts()
	client, err := s.Connect()
	if err != nil {
		parts = append(parts, part{"cluster", func(context.Context) ([]byte, error) { return nil, err }})
	} else {
		defer client.Close()
		parts = append(parts, clusterParts(client)...)
	}
	a, notes := newArchive(out, now), ""
	progress := s.Progress(cmd.ErrOrStderr())
	defer progress.Done()
	for _, p := range parts {
		progress.Tell("%s", p.name)
		text, err := p.bounded(cmd.Context())
		if err != nil {
			missing++
			notes += p.name + ": " + err.Error() + "\n"
			continue
		}
		note, err := a.add(p.name, text)
		if err != nil {
			return missing, err
		}
		notes += note
	}
	if notes != "" {
		a.left += mostOfPart // what is missing is always told
		if _, err := a.add("MISSING", []byte(notes)); err != nil {
			return missing, err
		}
	}
	return missing, a.close()
}

func (p part) bounded(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, partTime)
	defer cancel()
	return p.get(ctx)
}

// message asks for one message, and writes it as JSON.
func message[T proto.Message](name string, call func(context.Context) (T, error)) part {
	return part{name, func(ctx context.Context) ([]byte, error) {
		answer, err := call(ctx)
		if err != nil {
			return nil, err
		}
		text, err := protojson.Marshal(answer)
		if err != nil {
			return nil, err
		}
		var lines bytes.Buffer
		err = json.Indent(&lines, text, "", " ") // lines, so that it can be cut
		return lines.Bytes(), err
	}}
}

func clusterParts(c *rpc.Client) []part {
	return []part{
		message("cluster/status.json", func(ctx context.Context) (*weirv1.GetStatusResponse, error) {
			return c.Status(ctx)
		}),
		message("cluster/managers.json", func(ctx context.Context) (*weirv1.ListManagersResponse, error) {
			return c.ListManagers(ctx, &weirv1.ListManagersRequest{})
		}),
		message("cluster/nodes.json", func(ctx context.Context) (*weirv1.ListNodesResponse, error) {
			nodes, err := c.Nodes(ctx, "")
			return &weirv1.ListNodesResponse{Nodes: nodes}, err
		}),
		{"cluster/vips.json", func(ctx context.Context) ([]byte, error) {
			vips, err := session.ListVIPs(ctx, c, &weirv1.ListVIPsRequest{})
			if err != nil {
				return nil, err
			}
			return json.MarshalIndent(output.Documents(vips, output.VIPStatus), "", " ")
		}},
		message("cluster/pools.json", func(ctx context.Context) (*weirv1.ListAddressPoolsResponse, error) {
			pools, err := session.ListPools(ctx, c, "")
			return &weirv1.ListAddressPoolsResponse{Pools: pools}, err
		}),
		message("cluster/tenants.json", func(ctx context.Context) (*weirv1.ListTenantsResponse, error) {
			tenants, err := session.ListTenants(ctx, c)
			return &weirv1.ListTenantsResponse{Tenants: tenants}, err
		}),
		message("cluster/events.json", func(ctx context.Context) (*weirv1.ListEventsResponse, error) {
			events, err := session.ListEvents(ctx, c, &weirv1.ListEventsRequest{})
			return &weirv1.ListEventsResponse{Events: events[max(0, len(events)-mostList):]}, err
		}),
		message("cluster/audit.json", func(ctx context.Context) (*weirv1.ListAuditResponse, error) {
			return c.ListAudit(ctx, &weirv1.ListAuditRequest{Limit: mostList})
		}),
	}
}

// machineParts are of the machine that the program runs on. What is not there, as of a daemon of another role, is left out.
func machineParts() []part {
	parts := []part{
		{"machine/version", func(context.Context) ([]byte, error) {
			kernel, err := os.ReadFile("/proc/version")
			return append([]byte(fmt.Sprintf("weir %s %s/%s\n", daemon.Version, runtime.GOOS, runtime.GOARCH)), kernel...), err
		}},
		command("machine/addresses", "ip", "address"),
		command("machine/routes4", "ip", "-4", "route", "show", "table", "all"),
		command("machine/routes6", "ip", "-6", "route", "show", "table", "all"),
		command("machine/links", "ip", "-s", "link"),
	}
	for name, file := range map[string]string{
		"weir-manager": "manager.yaml", "weir-mux": "mux.yaml", "weir-agent": "agent.yaml", "weir-switch": "switch.yaml",
	} {
		path := filepath.Join("/etc/weir", file)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		parts = append(parts,
			part{"machine/" + file, func(context.Context) ([]byte, error) { return readBounded(path) }},
			command("machine/"+name+".log", "journalctl", "--no-pager", "--utc", "-o", "short-iso", "-n", mostLog, "-u", name))
	}
	return parts
}

func readBounded(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, mostOfPart+1))
}

// command is what a program of the machine writes.
func command(name string, args ...string) part {
	return part{name, func(ctx context.Context) ([]byte, error) {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		text, err := io.ReadAll(io.LimitReader(pipe, mostOfPart+1))
		if len(text) > mostOfPart {
			cmd.Process.Kill() //nolint:errcheck // it would write into a pipe that nobody reads
			cmd.Wait()         //nolint:errcheck // so it ends with an error
			return text, nil
		}
		return text, errors.Join(err, cmd.Wait())
	}}
}
