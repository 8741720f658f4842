package change

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/ctl/manifestfile"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/rpc"
)

// prefixTime is how much longer a call may take than another, for each prefix of a list.
const prefixTime = 60 * time.Microsecond

// PrefixListCommand returns the command prefixlist.
func PrefixListCommand(s *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prefixlist",
		Short: "Change what is in prefix lists, by arguments and text files",
		Long: `Change what is in prefix lists, which endpoints name in allowLists and denyLists.

Prefixes and addresses stand in arguments, or in a text file, one on each line: what is
behind a # is left aside. A change is made as a whole, or not at all, and muxes hear of
what differs alone.`,
		Example: `  weir prefixlist replace blocked --file blocked.txt
  weir prefixlist add blocked 198.51.100.7 2001:db8:bad::/48
  weir prefixlist remove blocked 198.51.100.7`,
	}
	session.Group(cmd)
	cmd.AddCommand(changeListCommand(s, "add", "Add prefixes to a list; those that it has already stay"),
		changeListCommand(s, "remove", "Remove prefixes from a list; those that it does not have are passed over"),
		replaceListCommand(s))
	return cmd
}

func changeListCommand(s *session.Session, verb, short string) *cobra.Command {
	var file string
	var wait waiting
	cmd := &cobra.Command{
		Use:               verb + " NAME [PREFIX...]",
		Short:             short,
		Args:              session.Arguments(1, session.MaxNames, "NAME [PREFIX...]"),
		ValidArgsFunction: s.Complete(1, session.PrefixListNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			prefixes, err := readPrefixes(cmd, args[1:], file)
			if err != nil {
				return err
			}
			request := &weirv1.ChangePrefixListRequest{Name: args[0], Add: prefixes}
			if verb == "remove" {
				request.Add, request.Remove = nil, prefixes
			}
			var response *weirv1.ChangePrefixListResponse
			change := func(ctx context.Context, client *rpc.Client) (err error) {
				response, err = client.ChangePrefixList(ctx, request)
				return err
			}
			err = s.CallWithin(cmd.Context(), listTime(prefixes), change)
			if err != nil {
				return fmt.Errorf("change prefix list %s: %w", args[0], err)
			}
			word := "unchanged"
			if response.GetAdded()+response.GetRemoved() > 0 {
				word = "updated"
			}
			printApplied(cmd.OutOrStdout(), &weirv1.AppliedPrefixList{
				Name: args[0], Change: word, Added: response.GetAdded(), Removed: response.GetRemoved(),
			})
			return wait.forMuxes(s, cmd, response.GetGeneration())
		},
	}
	prefixFileFlag(cmd, &file)
	wait.flags(cmd)
	return cmd
}

func replaceListCommand(s *session.Session) *cobra.Command {
	var file, tenant string
	var wait waiting
	cmd := &cobra.Command{
		Use:   "replace NAME [PREFIX...]",
		Short: "Make a list of these prefixes alone; one that is not there yet is created",
		Long: `Make a list of these prefixes alone; one that is not there yet is created, of --tenant, or
for all tenants. One that is there keeps its tenant and its labels.`,
		Args:              session.Arguments(1, session.MaxNames, "NAME [PREFIX...]"),
		ValidArgsFunction: s.Complete(1, session.PrefixListNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			prefixes, err := readPrefixes(cmd, args[1:], file)
			if err != nil {
				return err
			}
			list := &weirv1.PrefixList{Name: args[0], Tenant: tenant, Prefixes: prefixes}
			var response *weirv1.ApplyVIPsResponse
			err = s.CallWithin(cmd.Context(), listTime(prefixes), func(ctx context.Context, client *rpc.Client) error {
				now, err := listHead(ctx, client, args[0])
				if err != nil {
					return err
				}
				if now != nil {
					list.Labels = now.GetLabels()
					if !cmd.Flags().Changed("tenant") {
						list.Tenant = now.GetTenant()
					}
				}
				response, err = client.ApplyVIPs(ctx, &weirv1.ApplyVIPsRequest{PrefixLists: []*weirv1.PrefixList{list}})
				return err
			})
			if err != nil {
				return fmt.Errorf("replace prefix list %s: %w", args[0], err)
			}
			for _, applied := range response.GetPrefixLists() {
				printApplied(cmd.OutOrStdout(), applied)
			}
			return wait.forMuxes(s, cmd, response.GetGeneration())
		},
	}
	prefixFileFlag(cmd, &file)
	cmd.Flags().StringVar(&tenant, "tenant", "", "whose endpoints may name the list (default: those of all tenants)")
	wait.flags(cmd)
	return cmd
}

// listHead is the list without its prefixes, nil if there is none.
func listHead(ctx context.Context, client *rpc.Client, name string) (*weirv1.PrefixList, error) {
	response, err := client.ListPrefixLists(ctx, &weirv1.ListPrefixListsRequest{NamePrefix: name, PageSize: 1})
	if err != nil {
		return nil, err
	}
	for _, list := range response.GetPrefixLists() {
		if list.GetName() == name { // the first of those that begin so
			return list, nil
		}
	}
	return nil, nil //nolint:nilnil // that there is none is no error
}

func listTime(prefixes []string) time.Duration {
	return session.CallTime + time.Duration(len(prefixes))*prefixTime
}

func prefixFileFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "file", "", "`file` of prefixes, one on each line, - for standard input")
}

// printApplied says what became of a list.
func printApplied(w io.Writer, list *weirv1.AppliedPrefixList) {
	fmt.Fprintf(w, "prefixlist %s %s", list.GetName(), list.GetChange())
	if list.GetAdded()+list.GetRemoved() > 0 {
		fmt.Fprintf(w, ": %d added, %d removed", list.GetAdded(), list.GetRemoved())
	}
	fmt.Fprintln(w)
}

// readPrefixes are those of the arguments, and of a file, if there is one. None at all is an error: a pipe that broke
// must not empty a list.
func readPrefixes(cmd *cobra.Command, arguments []string, file string) ([]string, error) {
	for _, text := range arguments {
		if _, wrong := compile.ParseListed(text); wrong != "" {
			return nil, fmt.Errorf("%s: %s", text, wrong)
		}
	}
	var all []string
	if file != "" {
		text, err := manifestfile.ReadText(cmd.InOrStdin(), file)
		if err != nil {
			return nil, err
		}
		if all, err = parsePrefixes(file, text); err != nil {
			return nil, err
		}
	}
	if all = append(all, arguments...); len(all) == 0 {
		return nil, session.NewUsageError(cmd, errors.New(
			"name a PREFIX, or a --file that has some; a list is emptied by applying a manifest of it with none"))
	}
	return all, nil
}

// wrongLines bounds how many wrong lines of a file are told.
const wrongLines = 20

// parsePrefixes reads a file of prefixes, one on each line.
func parsePrefixes(file string, text []byte) ([]string, error) {
	var prefixes []string
	var errs []error
	lines := bufio.NewScanner(bytes.NewReader(text))
	wrong := 0
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if _, reason := compile.ParseListed(line); reason != "" {
			if wrong++; wrong <= wrongLines {
				errs = append(errs, fmt.Errorf("%s:%d: %s", file, n, reason))
			}
			continue
		}
		prefixes = append(prefixes, line)
	}
	if err := lines.Err(); err != nil {
		errs = append(errs, fmt.Errorf("read %s: %w", file, err))
	}
	if wrong > wrongLines {
		errs = append(errs, fmt.Errorf("%s: %d more lines are wrong", file, wrong-wrongLines))
	}
	return prefixes, errors.Join(errs...)
}
