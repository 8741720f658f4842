package daemon

import (
	"log/slog"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Ready tells systemd, if it started this program, that the program does its work: a data plane forwards,
// or calls are answered. It does not wait for a manager: who forwards without one is ready.
func Ready(log *slog.Logger) {
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		log.Warn("tell systemd that this program is ready", "err", err)
	}
}

// stopping tells systemd that the program ends by itself and needs its time.
func stopping() { _, _ = daemon.SdNotify(false, daemon.SdNotifyStopping) }
