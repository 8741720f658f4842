package change

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/manifestfile"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/manifest"
	"github.com/weirlb/weir/internal/rpc"
)

// PatchCommand returns the command patch.
func PatchCommand(s *session.Session) *cobra.Command {
	var text string
	var version uint64
	var wait waiting
	cmd := &cobra.Command{
		Use:   "patch NAME",
		Short: "Change fields of a VIP by a JSON merge patch",
		Long: `Change fields of a VIP by a JSON merge patch (RFC 7396) of the VIP as the API has it:
null removes a field, an object is merged, and a list replaces the whole list.`,
		Example: `  weir patch shop --patch '{"ping": "ignore", "labels": {"stage": null}}'`,
		Args:    session.Arguments(1, 1, "NAME"), ValidArgsFunction: s.Complete(1, session.VIPNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			var patch structpb.Struct
			if err := protojson.Unmarshal([]byte(text), &patch); err != nil {
				return session.NewUsageError(cmd, errors.New("--patch must be a JSON object"))
			}
			var generation uint64
			err := s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				request := &weirv1.PatchVIPRequest{Name: args[0], Patch: &patch, ResourceVersion: version}
				response, err := client.PatchVIP(ctx, request)
				generation = response.GetGeneration()
				return err
			})
			if err != nil {
				return fmt.Errorf("patch vip %s: %w", args[0], err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "vip %s patched\n", args[0])
			return wait.forMuxes(s, cmd, generation)
		},
	}
	cmd.Flags().StringVarP(&text, "patch", "p", "", "the patch, as `JSON`")
	cmd.Flags().Uint64Var(&version, "resource-version", 0, "only if the VIP is still of this `version`")
	wait.flags(cmd)
	return cmd
}

// EditCommand returns the command edit.
func EditCommand(s *session.Session) *cobra.Command {
	var wait waiting
	cmd := &cobra.Command{
		Use:   "edit NAME",
		Short: "Change a VIP in an editor",
		Long: `Open the manifest of a VIP in $EDITOR (vi, if it says nothing) and write what was made of
it, if nobody else changed the VIP meanwhile.`,
		Args: session.Arguments(1, 1, "NAME"), ValidArgsFunction: s.Complete(1, session.VIPNames),
		RunE: func(cmd *cobra.Command, args []string) error { return edit(s, cmd, args[0], wait) },
	}
	wait.flags(cmd)
	return cmd
}

func edit(s *session.Session, cmd *cobra.Command, name string, wait waiting) error {
	var vip *weirv1.VIP
	err := s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
		response, err := client.GetVIP(ctx, &weirv1.GetVIPRequest{Name: name})
		vip = response.GetVip()
		return err
	})
	if err != nil {
		return fmt.Errorf("edit vip %s: %w", name, err)
	}
	version := vip.GetResourceVersion()
	vip.ResourceVersion = 0 // it is no business of whoever edits the file
	before, err := manifest.Encode(manifest.Document{Message: vip})
	if err != nil {
		return err
	}
	file, err := inEditor(cmd, name, before)
	if err != nil {
		return fmt.Errorf("edit vip %s: %w", name, err)
	}
	after, err := manifestfile.ReadText(nil, file)
	if err != nil {
		return err
	}
	if bytes.Equal(before, after) {
		fmt.Fprintf(cmd.OutOrStdout(), "vip %s unchanged\n", name)
		return os.RemoveAll(filepath.Dir(file))
	}
	generation, err := writeEdited(s, cmd, file, name, version)
	if err != nil {
		return fmt.Errorf("%w\nwhat you wrote is in %s", err, file)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "vip %s updated\n", name)
	if err := os.RemoveAll(filepath.Dir(file)); err != nil {
		return err
	}
	return wait.forMuxes(s, cmd, generation)
}

// inEditor opens text in the user's editor and returns the file that it is in.
func inEditor(cmd *cobra.Command, name string, text []byte) (string, error) {
	dir, err := os.MkdirTemp("", "weir-edit-")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, name+".yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return "", err
	}
	// By a shell, since $EDITOR may have arguments.
	editor := exec.CommandContext(cmd.Context(), "sh", "-c", cmp.Or(os.Getenv("EDITOR"), "vi")+` "$1"`, "sh", file)
	editor.Stdin, editor.Stdout, editor.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	if err := editor.Run(); err != nil {
		return "", fmt.Errorf("run the editor: %w", err)
	}
	return file, nil
}

// writeEdited replaces the VIP, if it is still of that version of the store, by the one in the file.
func writeEdited(s *session.Session, cmd *cobra.Command, file, name string, version uint64) (uint64, error) {
	resources, err := manifestfile.Read(cmd, []string{file})
	if err != nil {
		return 0, err
	}
	if len(resources) != 1 {
		return 0, fmt.Errorf("the file must hold VIP %s and nothing else", name)
	}
	edited, ok := resources[0].Message.(*weirv1.VIP)
	if !ok || edited.GetName() != name {
		return 0, fmt.Errorf("the file must hold VIP %s and nothing else", name)
	}
	edited.ResourceVersion = version
	var generation uint64
	err = s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
		response, err := client.UpdateVIP(ctx, &weirv1.UpdateVIPRequest{Name: name, Vip: edited})
		generation = response.GetGeneration()
		return err
	})
	return generation, err
}
