package importer

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/manifest"
)

// Command returns the command import.
func Command() *cobra.Command {
	var hosts []string
	cmd := &cobra.Command{
		Use: "import keepalived|ipvs FILE", Short: "Turn a configuration of keepalived or IPVS into manifests",
		Args: session.Arguments(2, 2, "keepalived|ipvs FILE"), ValidArgs: []string{"keepalived", "ipvs"},
		Long: `Turn the virtual_server blocks of keepalived.conf, or what ipvsadm-save -n writes, into
manifests on standard output. FILE is - for standard input. Standard error tells, by line,
what has no counterpart. Nothing is applied: look at it, then weir apply -f.

A real server's host is the node that has its address, unless --host names another.`,
		Example: `  weir import keepalived /etc/keepalived/keepalived.conf >vips.yaml
  ipvsadm-save -n | weir import ipvs - --host 10.0.0.11=host1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			parse := map[string]func(string) (*result, error){"keepalived": parseKeepalived, "ipvs": parseIPVS}[args[0]]
			if parse == nil {
				return session.NewUsageError(cmd, fmt.Errorf("what to import is keepalived or ipvs, not %.64q", args[0]))
			}
			named, err := hostNames(hosts)
			if err != nil {
				return session.NewUsageError(cmd, err)
			}
			text, err := readFile(cmd, args[1])
			if err != nil {
				return err
			}
			r, err := parse(text)
			if err != nil {
				return fmt.Errorf("read %s: %w", args[1], err)
			}
			return r.write(cmd.OutOrStdout(), cmd.ErrOrStderr(), named)
		},
	}
	cmd.Flags().StringArrayVar(&hosts, "host", nil, "`ADDRESS=NAME` of a real server's host; repeatable")
	return cmd
}

func hostNames(pairs []string) (map[netip.Addr]string, error) {
	named := map[netip.Addr]string{}
	for _, pair := range pairs {
		address, name, ok := strings.Cut(pair, "=")
		a, err := netip.ParseAddr(address)
		if !ok || err != nil || name == "" {
			return nil, fmt.Errorf("--host %q must be ADDRESS=NAME", pair)
		}
		named[a.Unmap()] = name
	}
	return named, nil
}

func readFile(cmd *cobra.Command, path string) (string, error) {
	from := cmd.InOrStdin()
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return "", err
		}
		defer file.Close()
		from = file
	}
	text, err := io.ReadAll(io.LimitReader(from, mostBytes+1))
	if err == nil && len(text) > mostBytes {
		err = errTooLarge
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return string(text), nil
}

func (r *result) write(out, notes io.Writer, hosts map[netip.Addr]string) error {
	vips := r.vips(hosts)
	documents := make([]manifest.Document, 0, len(vips))
	for _, vip := range vips {
		documents = append(documents, manifest.Document{Message: vip})
	}
	for _, note := range r.notes {
		fmt.Fprintln(notes, note)
	}
	if r.more > 0 {
		fmt.Fprintf(notes, "and %d more\n", r.more)
	}
	text, err := manifest.Encode(documents...)
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}
