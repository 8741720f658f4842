package netns

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// folder is where named namespaces are, for ip(8) as for us.
const folder = "/run/netns"

// shareFolder makes the folder a mount of its own that other mount namespaces share, as the first ip
// netns add does. If that came only after our namespace, it would be mounted twice, and what lies
// below could never be removed. ip(8) takes the same lock.
func shareFolder() error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	lock, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", folder, err)
	}
	share := func() error { return unix.Mount("", folder, "none", unix.MS_SHARED|unix.MS_REC, "") }
	err = share()
	if errors.Is(err, unix.EINVAL) { // no mount of its own yet
		if err := unix.Mount(folder, folder, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mount %s on itself: %w", folder, err)
		}
		err = share()
	}
	if err != nil {
		return fmt.Errorf("share %s: %w", folder, err)
	}
	return nil
}
