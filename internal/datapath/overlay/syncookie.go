package overlay

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/model"
)

// SetSYNSecrets tells which secrets make the muxes' SYN cookies right, by the system's clock as it is now; with none, no
// cookie is.
func (d *Datapath) SetSYNSecrets(secrets []model.SYNSecret) error {
	var before, next overlaySynSecrets
	if err := d.objects.SynSecrets.Get(&before); err != nil {
		return fmt.Errorf("read syn secrets: %w", err)
	}
	for _, s := range secrets {
		row := &next.Rows[s.ID%uint32(len(next.Rows))]
		row.Id = s.ID
		for i := range row.Key {
			row.Key[i] = binary.LittleEndian.Uint64(s.Secret[8*i:])
		}
	}
	if len(secrets) > 0 {
		next.Clock = synClock()
	}
	if next == before {
		return nil
	}
	if err := d.objects.SynSecrets.Set(&next); err != nil {
		return fmt.Errorf("set syn secrets: %w", err)
	}
	return nil
}

// synClock is how much later CLOCK_MONOTONIC began than 1970, in ns.
func synClock() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // can't fail for this clock
	return uint64(time.Now().UnixNano() - ts.Nano())
}
