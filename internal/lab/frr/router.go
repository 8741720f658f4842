package frr

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const programs = "/usr/lib/frr"

// Namespace runs commands where the router lives.
type Namespace interface {
	Run(name string, args ...string) (output string, err error)
}

// Router is a running FRR.
type Router struct{ dir string }

// sysctls make the namespace a router that spreads flows by ports, not by addresses alone.
var sysctls = []string{
	"net.ipv4.ip_forward=1",
	"net.ipv6.conf.all.forwarding=1",
	"net.ipv4.fib_multipath_hash_policy=1",
	"net.ipv6.fib_multipath_hash_policy=1",
}

// Start starts a router in ns. What was started is ended again if a later step fails.
func Start(ns Namespace, config Config) (*Router, error) {
	if _, err := os.Stat(filepath.Join(programs, "bgpd")); err != nil {
		return nil, fmt.Errorf("start frr: %w: install the package frr", err)
	}
	if config.AS == 0 || config.PeerAS == 0 || !config.RouterID.Is4() {
		return nil, fmt.Errorf("start frr: AS %d, peers' AS %d and router id %s: the first two must not be 0, the last must be IPv4",
			config.AS, config.PeerAS, config.RouterID)
	}
	if config.Dir == "" {
		dir, err := os.MkdirTemp("", "frr-")
		if err != nil {
			return nil, fmt.Errorf("start frr: %w", err)
		}
		config.Dir = dir
	}
	r := &Router{dir: config.Dir}
	if err := r.start(ns, config); err != nil {
		return nil, fmt.Errorf("start frr: %w", errors.Join(err, r.Stop()))
	}
	return r, nil
}

func (r *Router) start(ns Namespace, config Config) error {
	if err := makeDir(r.dir); err != nil {
		return err
	}
	for _, s := range sysctls {
		if out, err := ns.Run("sysctl", "-qw", s); err != nil {
			return fmt.Errorf("set %s: %w: %s", s, err, out)
		}
	}
	if err := r.zebra(ns, config); err != nil {
		return err
	}
	daemons := []struct {
		name, config string
		args         []string
	}{
		{"bfdd", config.bfdd(), r.bfdctl()},
		// Never -l: it implies -n, no routes in the kernel.
		{"bgpd", config.bgpd(), []string{"-p", "179"}},
	}
	for _, d := range daemons {
		if d.name == "bfdd" && config.BFD == 0 {
			continue
		}
		if err := r.daemon(ns, d.name, d.config, d.args...); err != nil {
			return err
		}
	}
	return nil
}

// zebra starts zebra. From FRR 10 on its maps are mgmtd's, which reads no file of ours and has sockets where -N says.
func (r *Router) zebra(ns Namespace, config Config) error {
	args, maps := []string{"-s", "90000000"}, config.zebraMaps()
	if _, err := os.Stat(filepath.Join(programs, "mgmtd")); err != nil || len(maps) == 0 {
		return r.daemon(ns, "zebra", config.zebra()+strings.Join(maps, "\n")+"\n", args...)
	}
	if err := makeDir(r.sockets()); err != nil {
		return err
	}
	space := []string{"-N", filepath.Base(r.sockets())}
	if err := r.daemon(ns, "mgmtd", "", space...); err != nil {
		return err
	}
	if err := r.daemon(ns, "zebra", config.zebra(), append(args, space...)...); err != nil {
		return err
	}
	for end := time.Now().Add(grace); ; time.Sleep(50 * time.Millisecond) {
		_, err := r.Vtysh("configure terminal\n" + strings.Join(maps, "\n"))
		if err == nil || time.Now().After(end) { // mgmtd that has only begun keeps its configuration locked
			return err
		}
	}
}

// sockets is the folder of those of mgmtd.
func (r *Router) sockets() string {
	return filepath.Join("/run/frr", strings.ReplaceAll(strings.Trim(r.dir, "/"), "/", "-"))
}

// Version is that of the installed FRR.
func Version() (major, minor int, err error) {
	out, err := exec.Command(filepath.Join(programs, "bgpd"), "--version").Output()
	if err != nil {
		return 0, 0, fmt.Errorf("ask for the version of frr: %w", err)
	}
	if _, err := fmt.Sscanf(string(out), "bgpd version %d.%d", &major, &minor); err != nil {
		return 0, 0, fmt.Errorf("read the version of frr from %q: %w", out, err)
	}
	return major, minor, nil
}

// bfdctl names bfdd's control socket, which would be the same for all routers. That of FRR 10.3 has none.
func (r *Router) bfdctl() []string {
	help, _ := exec.Command(filepath.Join(programs, "bfdd"), "--help").Output()
	if !bytes.Contains(help, []byte("--bfdctl")) {
		return nil
	}
	return []string{"--bfdctl", filepath.Join(r.dir, "bfdd.sock")}
}

// makeDir hands a folder to the user that the daemons drop to: they must own it.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	frr, err := user.Lookup("frr")
	if err != nil {
		return fmt.Errorf("%w: install the package frr", err)
	}
	uid, err := strconv.Atoi(frr.Uid)
	if err != nil {
		return fmt.Errorf("read the id of user frr: %w", err)
	}
	gid, err := strconv.Atoi(frr.Gid)
	if err != nil {
		return fmt.Errorf("read the group of user frr: %w", err)
	}
	if err := os.Chown(dir, uid, gid); err != nil {
		return err
	}
	return os.Chmod(dir, 0o755)
}

// daemon starts one daemon; it returns once the daemon has read its configuration and runs.
func (r *Router) daemon(ns Namespace, name, config string, args ...string) error {
	file := filepath.Join(r.dir, name+".conf")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return err
	}
	args = append([]string{
		"-d", "-u", "frr", "-g", "frr", "-P", "0",
		"-z", filepath.Join(r.dir, "zserv.api"), "--vty_socket", r.dir, "-i", r.pidFile(name),
	}, args...)
	if config != "" {
		args = append(args, "-f", file)
	}
	// FRR 10's daemons keep their outputs open when they go to the background: a pipe would never end.
	out := filepath.Join(r.dir, name+".out")
	run := append([]string{"-c", `exec "$@" >"$0" 2>&1`, out, filepath.Join(programs, name)}, args...)
	if _, err := ns.Run("sh", run...); err != nil {
		said, _ := os.ReadFile(out)
		return fmt.Errorf("start %s: %w: %s", name, err, said)
	}
	return nil
}

func (r *Router) pidFile(daemon string) string { return filepath.Join(r.dir, daemon+".pid") }

// Open names a router that was started before, perhaps by another process.
func Open(dir string) *Router { return &Router{dir: dir} }

// Dir is where the router's files are.
func (r *Router) Dir() string { return r.dir }

// Vtysh runs a command of FRR's shell.
func (r *Router) Vtysh(command string) (string, error) {
	out, err := exec.Command("vtysh", "--vty_socket", r.dir, "-c", command).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("vtysh %q: %w: %s", command, err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// Announce has the router tell its BGP peers of networks more, while it has routes to them.
func (r *Router) Announce(networks ...netip.Prefix) error {
	lines := []string{"configure terminal", "router bgp"}
	for _, p := range networks {
		family := "ipv6"
		if p.Addr().Is4() {
			family = "ipv4"
		}
		lines = append(lines, "address-family "+family+" unicast", "network "+p.String(), "exit-address-family")
	}
	_, err := r.Vtysh(strings.Join(lines, "\n"))
	return err
}

// Stop ends the router's daemons and removes its files. It is no error if nothing runs.
func (r *Router) Stop() error {
	var errs []error
	for _, name := range []string{"bgpd", "bfdd", "zebra", "mgmtd"} {
		if err := r.end(name); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", name, err))
		}
	}
	errs = append(errs, os.RemoveAll(r.dir), os.RemoveAll(r.sockets()))
	return errors.Join(errs...)
}

// Grace before a daemon that does not end is killed, and for one that begins.
const grace = 5 * time.Second

func (r *Router) end(name string) error {
	text, err := os.ReadFile(r.pidFile(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("read %s: %w", r.pidFile(name), err)
	}
	if !runs(pid, name) {
		return nil // died; its id may be another's by now
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return err
	}
	for end := time.Now().Add(grace); runs(pid, name); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return nil
}

func runs(pid int, program string) bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && filepath.Base(strings.TrimSuffix(exe, " (deleted)")) == program
}
