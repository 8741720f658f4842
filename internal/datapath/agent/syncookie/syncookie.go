package syncookie

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf/btf"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/model"
)

// SYNCookies are what muxes answer SYNs with: the programs check the ones that clients send back.
type SYNCookies struct {
	objects *bpf.AgentObjects
	mu      *sync.Mutex // the data plane's
	log     *slog.Logger

	cannotTakeOver func() error // says why the kernel makes no sockets of SYN cookies; nil: it does
}

// New is of the tables of objects.
func New(objects *bpf.AgentObjects, mu *sync.Mutex, log *slog.Logger) *SYNCookies {
	return &SYNCookies{objects: objects, mu: mu, log: log, cannotTakeOver: sync.OnceValue(kernelTakesOver)}
}

// SetSYNSecrets tells which secrets make SYN cookies right; with none, no cookie is.
func (c *SYNCookies) SetSYNSecrets(secrets []model.SYNSecret) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var row bpf.AgentSynSecrets
	if err := c.objects.SynSecrets.Get(&row); err != nil {
		return fmt.Errorf("read syn secrets: %w", err)
	}
	before := row
	row.Clock = synClock(len(secrets) != 0)
	clear(row.Rows[:])
	for _, s := range secrets {
		to := &row.Rows[s.ID%uint32(len(row.Rows))]
		to.Id = s.ID
		for i := range to.Key {
			to.Key[i] = binary.LittleEndian.Uint64(s.Secret[8*i:])
		}
	}
	row.Makes = model.MakesSYNCookies(secrets).ID % uint32(len(row.Rows))
	if row == before {
		return nil
	}
	if err := c.objects.SynSecrets.Set(&row); err != nil {
		return fmt.Errorf("set syn secrets: %w", err)
	}
	return nil
}

// SetSYNClock has SYN cookies judged by the system's clock as it is now, which may have been set.
func (c *SYNCookies) SetSYNClock() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var row bpf.AgentSynSecrets
	if err := c.objects.SynSecrets.Get(&row); err != nil {
		return fmt.Errorf("read syn secrets: %w", err)
	}
	if row.Clock == 0 {
		return nil
	}
	row.Clock = synClock(true)
	if err := c.objects.SynSecrets.Set(&row); err != nil {
		return fmt.Errorf("set the clock of syn cookies: %w", err)
	}
	return nil
}

// synClock is how much later CLOCK_MONOTONIC began than 1970, in ns; 0: there are no secrets.
func synClock(secrets bool) uint64 {
	if !secrets {
		return 0
	}
	return uint64(time.Now().UnixNano() - int64(session.Now()))
}

// kernelTakesOver says why the kernel can make no socket of a SYN cookie that the agent has checked; nil: it
// can.
func kernelTakesOver() error {
	types, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("read the kernel's types: %w", err)
	}
	var function *btf.Func
	if err := types.TypeByName("bpf_sk_assign_tcp_reqsk", &function); err != nil {
		return fmt.Errorf("find bpf_sk_assign_tcp_reqsk, as Linux 6.9 and later have it: %w", err)
	}
	return nil
}

// CheckNativeSYNCookies says why the host's own stack makes no sockets of SYN cookies; nil: it does. Where it does
// not, the agent leads it through a handshake, as it does with a workload behind an interface.
func (c *SYNCookies) CheckNativeSYNCookies() error {
	if err := c.cannotTakeOver(); err != nil {
		return err
	}
	mode, err := os.ReadFile("/proc/sys/net/ipv4/tcp_syncookies")
	if err != nil {
		return fmt.Errorf("read net.ipv4.tcp_syncookies: %w", err)
	}
	if strings.TrimSpace(string(mode)) == "0" {
		return errors.New("net.ipv4.tcp_syncookies is 0")
	}
	return nil
}

// TakeOver is CheckNativeSYNCookies for the programs.
func (c *SYNCookies) TakeOver() uint32 {
	if err := c.CheckNativeSYNCookies(); err != nil {
		c.log.Info("the host's stack takes no SYN cookies: the agent leads it through handshakes", "reason", err.Error())
		return 0
	}
	return 1
}
