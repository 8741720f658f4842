package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/cluster"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/rpc"
)

// restoreTime bounds a restore.
const restoreTime = 10 * time.Minute

// BackupCommand returns the command backup.
func BackupCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the whole store of a cluster of managers into a file",
		Long: `Copy the whole store of a cluster of managers into a file, as of now, from any of them.
The copy is checked by its hash, and for what was acknowledged before, before it takes
the file's name. It holds the cluster's
secrets: only its owner may read it.`,
		Example: `  weir backup weir.backup`,
		Args:    session.Arguments(1, 1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := s.Connect()
			if err != nil {
				return err
			}
			defer client.Close()
			progress := s.Progress(cmd.ErrOrStderr())
			size, err := backUp(cmd.Context(), client, args[0], progress)
			progress.Done()
			if err != nil {
				return fmt.Errorf("back up to %s: %w", args[0], err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d bytes written to %s\n", size, args[0])
			return nil
		},
	}
}

// backUp writes a backup to path, whole or not at all.
func backUp(ctx context.Context, client *rpc.Client, path string, progress *session.Progress) (size int, err error) {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	check := &trailer{sum: sha256.New()}
	revision := uint64(0)
	err = client.EachBackup(ctx, func(part *weirv1.BackupResponse) error {
		chunk := part.GetChunk()
		revision = max(revision, part.GetRevision())
		check.add(chunk)
		size += len(chunk)
		progress.Tell("%d MiB copied", size>>20)
		_, err := file.Write(chunk)
		return err
	})
	if err == nil {
		err = check.err()
	}
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = cluster.CheckBackup(file.Name(), int64(revision))
	}
	if err != nil {
		return 0, err
	}
	return size, os.Rename(file.Name(), path)
}

// trailer checks that what it takes ends in the SHA-256 of all before.
type trailer struct {
	sum  hash.Hash
	last []byte // as many bytes as a sum has, or fewer
}

func (t *trailer) add(chunk []byte) {
	t.last = append(t.last, chunk...)
	if n := len(t.last) - sha256.Size; n > 0 {
		t.sum.Write(t.last[:n])
		t.last = append([]byte(nil), t.last[n:]...)
	}
}

func (t *trailer) err() error {
	if !bytes.Equal(t.sum.Sum(nil), t.last) {
		return errors.New("the copy is not what its hash says: try again")
	}
	return nil
}

// RestoreCommand returns the command restore.
func RestoreCommand() *cobra.Command {
	var dir, name string
	var newCA bool
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make the data directory of a manager of a backup",
		Long: `Make the data directory of a manager of a backup, on the machine where that manager will
run. It founds a new cluster: stop all managers of the old one for good, start this one,
and have others join it with empty data directories.

With --rotate-ca the cluster gets another CA. No certificate and no join token from before is
good any more: managers, hosts and muxes join with new tokens. Users' bearer tokens stay.`,
		Example: `  weir restore weir.backup --data-dir /var/lib/weir --name m1`,
		Args:    session.Arguments(1, 1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), restoreTime)
			defer cancel()
			generation, err := cluster.Restore(ctx, args[0], dir, name, newCA, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "restored into %s, at generation %d: start weir-manager --name %s --data-dir %s\n",
				dir, generation, name, dir)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", "/var/lib/weir", "data `directory` of the manager, without a store yet")
	cmd.Flags().BoolVar(&newCA, "rotate-ca", false, "leave the CA out, and all that it signed: the manager makes another")
	cmd.Flags().StringVar(&name, "name", cluster.DefaultName, "`name` of the manager that will run on it")
	return cmd
}
