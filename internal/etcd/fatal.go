package etcd

import (
	"fmt"
	"log/slog"
	"os"

	"go.uber.org/zap/zapcore"
)

// fatal ends the process where etcd would panic: on a full disk, and on files that are damaged. That
// happens in goroutines of its own, so it can't come back as an error, and nothing written is safe from
// then on. What forwards packets needs no manager.
type fatal struct {
	log *slog.Logger
	dir string
}

// OnWrite is called by zap for an entry of etcd at the levels panic and fatal.
func (f fatal) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	reason := entry.Message
	for _, field := range fields {
		if err, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			reason += ": " + err.Error()
		}
	}
	f.log.Error("stop: the embedded etcd can't go on", "err", reason, "remedy", advice(f.dir))
	os.Exit(1)
}

// advice is what to do about a data directory that etcd can't use.
func advice(dir string) string {
	return fmt.Sprintf("free space where %s is, and start again; if the files there are damaged, restore them from a backup, "+
		"or move the directory away and apply all manifests anew", dir)
}
