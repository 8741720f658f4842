package ctl

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
	"github.com/weirlb/weir/internal/manifest"
	"github.com/weirlb/weir/internal/rpc"
)

// prefixTime is how much longer a call may take than another, for each prefix of a list.
const prefixTime = 60 * time.Microsecond

func prefixListCommand(s *session) *cobra.Command {
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
	group(cmd)
	cmd.AddCommand(s.changeListCommand("add", "Add prefixes to a list; those that it has already stay"),
		s.changeListCommand("remove", "Remove prefixes from a list; those that it does not have are passed over"),
		s.replaceListCommand())
	return cmd
}

func (s *session) changeListCommand(verb, short string) *cobra.Command {
	var file string
	var wait waiting
	cmd := &cobra.Command{
		Use:               verb + " NAME [PREFIX...]",
		Short:             short,
		Args:              arguments(1, maxNames, "NAME [PREFIX...]"),
		ValidArgsFunction: s.complete(1, prefixListNames),
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
			err = s.callWithin(cmd.Context(), listTime(prefixes), func(ctx context.Context, client *rpc.Client) (err error) {
				response, err = client.ChangePrefixList(ctx, request)
				return err
			})
			if err != nil {
				return fmt.Errorf("change prefix list %s: %w", args[0], err)
			}
			change := "unchanged"
			if response.GetAdded()+response.GetRemoved() > 0 {
				change = "updated"
			}
			printApplied(cmd.OutOrStdout(), &weirv1.AppliedPrefixList{
				Name: args[0], Change: change, Added: response.GetAdded(), Removed: response.GetRemoved(),
			})
			return s.wait(cmd, wait, response.GetGeneration())
		},
	}
	prefixFileFlag(cmd, &file)
	wait.flags(cmd)
	return cmd
}

func (s *session) replaceListCommand() *cobra.Command {
	var file, tenant string
	var wait waiting
	cmd := &cobra.Command{
		Use:   "replace NAME [PREFIX...]",
		Short: "Make a list of these prefixes alone; one that is not there yet is created",
		Long: `Make a list of these prefixes alone; one that is not there yet is created, of --tenant, or
for all tenants. One that is there keeps its tenant and its labels.`,
		Args:              arguments(1, maxNames, "NAME [PREFIX...]"),
		ValidArgsFunction: s.complete(1, prefixListNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			prefixes, err := readPrefixes(cmd, args[1:], file)
			if err != nil {
				return err
			}
			list := &weirv1.PrefixList{Name: args[0], Tenant: tenant, Prefixes: prefixes}
			var response *weirv1.ApplyVIPsResponse
			err = s.callWithin(cmd.Context(), listTime(prefixes), func(ctx context.Context, client *rpc.Client) error {
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
			return s.wait(cmd, wait, response.GetGeneration())
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
	return callTime + time.Duration(len(prefixes))*prefixTime
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

// readPrefixes are those of the arguments, and of a file, if there is one. None at all is an error: a pipe that broke must
// not empty a list.
func readPrefixes(cmd *cobra.Command, arguments []string, file string) ([]string, error) {
	for _, text := range arguments {
		if _, wrong := compile.ParseListed(text); wrong != "" {
			return nil, fmt.Errorf("%s: %s", text, wrong)
		}
	}
	var all []string
	if file != "" {
		text, err := readManifest(cmd.InOrStdin(), file)
		if err != nil {
			return nil, err
		}
		if all, err = parsePrefixes(file, text); err != nil {
			return nil, err
		}
	}
	if all = append(all, arguments...); len(all) == 0 {
		return nil, &usageError{cmd, errors.New("name a PREFIX, or a --file that has some; a list is emptied by applying a manifest of it with none")}
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
		errs = append(errs, readError(file, err))
	}
	if wrong > wrongLines {
		errs = append(errs, fmt.Errorf("%s: %d more lines are wrong", file, wrong-wrongLines))
	}
	return prefixes, errors.Join(errs...)
}

func (s *session) getPrefixListsCommand() *cobra.Command {
	var labels, tenant string
	cmd := &cobra.Command{
		Use:     "prefixlists [NAME]",
		Aliases: []string{"prefixlist"},
		Short:   "List prefix lists with who names them, or the one named with its prefixes",
		Long: `List prefix lists with how many prefixes they have and the VIPs whose endpoints name them.

With -o yaml or json the one named is written with all its prefixes, as weir apply reads
it; a list of all is written without them.`,
		Args:              arguments(0, 1, "[NAME]"),
		ValidArgsFunction: s.complete(1, prefixListNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return s.getPrefixList(cmd, args[0])
			}
			return s.call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				lists, err := listPrefixLists(ctx, client, &weirv1.ListPrefixListsRequest{LabelSelector: labels, Tenant: tenant})
				if err != nil {
					return fmt.Errorf("list prefix lists: %w", err)
				}
				if s.format != formatTable {
					return s.print(cmd.OutOrStdout(), message{&weirv1.ListPrefixListsResponse{PrefixLists: lists}}, nil)
				}
				return prefixListColumns(cmd.OutOrStdout(), lists)
			})
		},
	}
	selectorFlag(cmd, &labels)
	cmd.Flags().StringVar(&tenant, "tenant", "", "only those of the tenant")
	s.outputFlag(cmd)
	return cmd
}

func (s *session) getPrefixList(cmd *cobra.Command, name string) error {
	const getTime = time.Minute
	return s.callWithin(cmd.Context(), getTime, func(ctx context.Context, client *rpc.Client) error {
		response, err := client.GetPrefixList(ctx, &weirv1.GetPrefixListRequest{Name: name})
		if err != nil {
			return fmt.Errorf("get prefix list %s: %w", name, err)
		}
		p := response.GetPrefixList()
		if s.format == formatTable {
			return prefixListColumns(cmd.OutOrStdout(), []*weirv1.PrefixList{p})
		}
		return s.printDocuments(cmd.OutOrStdout(), []manifest.Document{{Message: p, Status: message{p.GetStatus()}}})
	})
}

func prefixListColumns(w io.Writer, lists []*weirv1.PrefixList) error {
	t := newColumns("", "no prefix lists: weir prefixlist replace makes one", "NAME", "TENANT", "IPV4", "IPV6", "VIPS")
	for _, p := range lists {
		tenant := p.GetTenant()
		if tenant == "" {
			tenant = "all"
		}
		status := p.GetStatus()
		t.add(p.GetName(), tenant, fmt.Sprint(status.GetIpv4()), fmt.Sprint(status.GetIpv6()), strings.Join(status.GetVips(), ","))
	}
	return t.write(w)
}

// listPrefixLists reads all pages.
func listPrefixLists(ctx context.Context, client *rpc.Client, request *weirv1.ListPrefixListsRequest) ([]*weirv1.PrefixList, error) {
	var all []*weirv1.PrefixList
	for {
		response, err := client.ListPrefixLists(ctx, request)
		if err != nil {
			return nil, err
		}
		all = append(all, response.GetPrefixLists()...)
		if request.PageToken = response.GetNextPageToken(); request.PageToken == "" {
			return all, nil
		}
	}
}

func prefixListNames(ctx context.Context, client *rpc.Client) ([]string, error) {
	lists, err := listPrefixLists(ctx, client, &weirv1.ListPrefixListsRequest{})
	var names []string
	for _, list := range lists {
		names = append(names, list.GetName())
	}
	return names, err
}

func (s *session) deletePrefixListCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "prefixlist NAME...",
		Short:             "Delete prefix lists. It is refused while an endpoint names one",
		Args:              arguments(1, maxNames, "NAME..."),
		ValidArgsFunction: s.complete(maxNames, prefixListNames),
		RunE:              func(cmd *cobra.Command, args []string) error { return s.deletePrefixLists(cmd, args) },
	}
}

func (s *session) deletePrefixLists(cmd *cobra.Command, names []string) error {
	return s.deleteEach(cmd, "prefixlist", names, func(ctx context.Context, client *rpc.Client, name string) error {
		_, err := client.DeletePrefixList(ctx, &weirv1.DeletePrefixListRequest{Name: name})
		return err
	})
}
