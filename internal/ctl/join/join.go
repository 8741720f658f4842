package join

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/muesli/cancelreader"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/ctl/diagnose"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/daemon"
	"github.com/weirlb/weir/internal/doctor"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

// role is one that a machine can have.
type role struct {
	kind    trust.Kind
	file    string // in the folder of configuration
	unit    string
	dataDir string // below the folder of states
	device  string // key of the interface; empty: it has none
	doctor  doctor.Role
	owner   string // of the token's file: the user of the unit; empty: the machine joins by itself, without a file
}

var roles = map[string]role{
	"mux":     {trust.Mux, "mux.yaml", "weir-mux", "weir-mux", "interface", doctor.Mux, ""},
	"agent":   {trust.Host, "agent.yaml", "weir-agent", "weir-agent", "uplink", doctor.Host, ""},
	"switch":  {trust.Switch, "switch.yaml", "weir-switch", "weir-switch", "", "", ""},
	"manager": {trust.Manager, "manager.yaml", "weir-manager", "weir", "", doctor.Manager, "weir"},
}

// joinTime bounds how long managers are tried that do not answer.
const joinTime = 30 * time.Second

// maxToken bounds what is read of a token's file.
const maxToken = 4096

// request is one run of the command.
type request struct {
	out, errOut io.Writer
	role        role
	name        string // of the role
	managers    string
	caHash      string
	node        string // empty: the machine's name
	tokenFile   string
	set         []string
	start       bool
	force       bool
	root        string // that /etc and /var/lib lie below; tests have their own
}

// Command returns the command join.
func Command(s *session.Session) *cobra.Command {
	r := request{root: "/"}
	noStart := false
	cmd := &cobra.Command{
		Use: "join ROLE", Short: "Make this machine a mux, host, switch or manager of a cluster",
		Args:      session.Arguments(1, 1, "ROLE"),
		ValidArgs: []string{"mux", "agent", "switch", "manager"},
		Long: `Make this machine a mux, agent, switch or manager of a cluster. weir token create prints
the line. It writes the daemon's configuration, exchanges the token for a certificate, runs
weir doctor, and enables and starts the unit. It may be run again: what is there stays, and
nothing is written over that says otherwise, nor of another cluster.

The token comes by standard input or --token-file, never as an argument: all users of a
machine see those. The managers are known by the hash of their CA, not by their address.`,
		Example: `  printf %s weir_join_... | sudo weir join agent --manager https://10.0.0.10:7400 --ca-hash sha256:...
  sudo weir join mux --token-file token --manager https://10.0.0.10:7400 --ca-hash sha256:... \
    --set as=65010 --set peer=address=10.0.0.1,as=65000,bfd=100ms`,
		RunE: func(cmd *cobra.Command, args []string) error {
			of, ok := roles[args[0]]
			if !ok {
				return session.NewUsageError(cmd, fmt.Errorf("the role is mux, agent, switch or manager, not %.64q", args[0]))
			}
			access, err := s.Access()
			if err != nil {
				return err
			}
			r.role, r.name, r.managers, r.start = of, args[0], access.Managers, !noStart
			r.out, r.errOut = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if r.caHash == "" {
				return session.NewUsageError(cmd, errors.New("--ca-hash is missing: weir token create prints the whole line"))
			}
			return r.run(cmd.Context(), cmd.InOrStdin(), func(found []doctor.Finding) error {
				return diagnose.PrintFindings(s, cmd, found)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&r.caHash, "ca-hash", "", "`hash` of the cluster's CA")
	flags.StringVar(&r.tokenFile, "token-file", "", "`file` with the token; left out: it comes by standard input")
	flags.StringVar(&r.node, "name", "", "`name` of this node; else the machine's, without its domain")
	flags.StringArrayVar(&r.set, "set", nil, "`KEY=VALUE` of the daemon's configuration, such as as=65010; repeatable")
	flags.BoolVar(&noStart, "no-start", false, "do not enable and start the unit")
	flags.BoolVar(&r.force, "force", false, "start the unit also if the doctor says fail")
	return cmd
}

// step tells what was done.
func (r *request) step(format string, args ...any) { fmt.Fprintf(r.out, format+"\n", args...) }

func (r *request) configFile() string { return filepath.Join(r.root, "etc/weir", r.role.file) }

// run joins, step by step; what an earlier run has done is found done.
func (r *request) run(ctx context.Context, stdin io.Reader, report func([]doctor.Finding) error) error {
	settings, err := r.settings()
	if err != nil {
		return err
	}
	keys, err := daemon.ReadConfig(r.configFile())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	dataDir, err := r.dataDir(settings, keys)
	if err != nil {
		return err
	}
	joined, err := r.joined(dataDir, keys)
	if err != nil {
		return err
	}
	// The token is read before anything is written, and the interface chosen: a mistake leaves the machine as it was.
	token := ""
	if !joined {
		if token, err = r.token(ctx, stdin); err != nil {
			return err
		}
	}
	if settings, err = r.withDevice(settings, keys); err != nil {
		return err
	}
	tokenFile := filepath.Join(r.root, "etc/weir", r.name+".token")
	if r.role.owner != "" && !joined {
		settings = append(settings, setting{"token-file", []string{tokenFile}})
	}
	config, err := planConfig(r.configFile(), settings)
	if err != nil {
		return fmt.Errorf("%w: nothing was changed; mend the line or the file, and run it again", err)
	}
	switch {
	case joined:
		r.step("has a certificate of this cluster already: no token was used")
	case r.role.owner != "":
		err = r.keepToken(tokenFile, token)
	default:
		err = r.obtain(ctx, dataDir, token, keys)
	}
	if err != nil {
		return err
	}
	if err := config.write(); err != nil {
		return err
	}
	if config.changed {
		r.step("wrote %s", config.path)
	} else {
		r.step("%s is as it shall be", config.path)
	}
	if err := r.examine(ctx, dataDir, settings, keys, report); err != nil {
		return err
	}
	return r.enable(ctx, config.changed)
}

// settings are the keys that the line asks for.
func (r *request) settings() ([]setting, error) {
	for _, m := range strings.Split(r.managers, ",") {
		if strings.HasPrefix(strings.TrimSpace(m), "http://") {
			return nil, fmt.Errorf("%s has no TLS, so there is nothing to join: write manager: %[1]s into %s", m, r.configFile())
		}
	}
	if _, err := trust.PinnedTLS(r.caHash, time.Now, nil); err != nil {
		return nil, fmt.Errorf("read --ca-hash: %w", err)
	}
	managers := "manager"
	if r.role.kind == trust.Manager {
		managers = "join"
	}
	all := []setting{{managers, []string{r.managers}}, {"ca-hash", []string{r.caHash}}}
	if r.node != "" {
		all = append(all, setting{"name", []string{r.node}})
	}
	set, err := parseSet(r.set)
	return append(all, set...), err
}

// dataDir is the folder of the certificate: what the line says, else the file, else the daemon's default.
func (r *request) dataDir(settings []setting, keys daemon.Keys) (string, error) {
	dir := cmp.Or(valueOf(settings, "data-dir"), keys.Value("data-dir"), "/var/lib/"+r.role.dataDir)
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("data-dir is %q: must begin with /, since %s runs in another folder", dir, r.role.unit)
	}
	return filepath.Join(r.root, dir), nil
}

// joined says whether this machine has its certificate of the cluster. One of another cluster is an error, or of another
// node: the daemon takes neither.
func (r *request) joined(dataDir string, keys daemon.Keys) (bool, error) {
	if there := keys.Value("ca-hash"); there != "" && there != r.caHash {
		return false, fmt.Errorf("%s is of another cluster, with the CA %s: to leave that one, stop %s, and move the file and %s away",
			r.configFile(), there, r.role.unit, dataDir)
	}
	credential, err := trust.LoadCredential(dataDir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case trust.Hash(credential.CA) != r.caHash:
		return false, fmt.Errorf("%s holds a certificate of another cluster, with the CA %s: to leave that one, stop %s, and move %[1]s away",
			dataDir, trust.Hash(credential.CA), r.role.unit)
	}
	if name := r.nodeName(keys); !credential.Identity.Is(r.role.kind, name) {
		return false, fmt.Errorf("%s holds the certificate of %s, and %s/%s is asked for: say that name by --name to go on as it; "+
			"else stop its unit, move %[1]s away, and run the line again", dataDir, credential.Identity, r.role.kind, name)
	}
	return time.Now().Before(credential.Certificate.NotAfter), nil
}

// nodeName is the name that the daemon will have.
func (r *request) nodeName(keys daemon.Keys) string {
	if r.role.kind == trust.Manager {
		return cmp.Or(r.node, keys.Value("name"), "manager") // as its --name has it
	}
	return cmp.Or(r.node, keys.Value("name"), daemon.ShortHostname())
}

// token reads the token.
func (r *request) token(ctx context.Context, stdin io.Reader) (string, error) {
	from, what := stdin, "standard input"
	if terminal, ok := stdin.(*os.File); ok && r.tokenFile == "" && term.IsTerminal(terminal.Fd()) {
		typed, err := r.ask(ctx, terminal)
		if err != nil {
			return "", err
		}
		from = strings.NewReader(typed)
	}
	if r.tokenFile != "" {
		file, err := os.Open(r.tokenFile)
		if err != nil {
			return "", fmt.Errorf("read the token: %w", err)
		}
		defer file.Close()
		if info, err := file.Stat(); err == nil && info.Mode().Perm()&0o077 != 0 {
			fmt.Fprintf(r.errOut, "warning: others than you may read %s: chmod 600 it next time, and remove it now\n", r.tokenFile)
		}
		from, what = file, r.tokenFile
	}
	text, err := io.ReadAll(io.LimitReader(from, maxToken))
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if _, err := trust.ParseJoin(token); err != nil {
		return "", fmt.Errorf("read the token from %s: %w", what, err)
	}
	return token, nil
}

// ask has a person type the token, or paste it, without showing it.
func (r *request) ask(ctx context.Context, terminal *os.File) (_ string, err error) {
	reader, err := cancelreader.NewReader(terminal)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	show, err := hideTyping(int(terminal.Fd()))
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	defer func() { err = errors.Join(err, show()) }()
	fmt.Fprint(r.errOut, "the token that weir token create told (it is not shown), then Enter: ")
	defer fmt.Fprintln(r.errOut)
	defer context.AfterFunc(ctx, func() { reader.Cancel() })()
	line, err := bufio.NewReader(io.LimitReader(reader, maxToken)).ReadString('\n')
	switch {
	case errors.Is(err, cancelreader.ErrCanceled):
		return "", fmt.Errorf("read the token: %w", ctx.Err())
	case err != nil && !errors.Is(err, io.EOF):
		return "", fmt.Errorf("read the token: %w", err)
	}
	return line, nil
}

// hideTyping ends the echo of a terminal, which gives whole lines after it as before, until show.
func hideTyping(terminal int) (show func() error, err error) {
	before, err := unix.IoctlGetTermios(terminal, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	hidden := *before
	hidden.Lflag = hidden.Lflag&^unix.ECHO | unix.ICANON | unix.ISIG
	hidden.Iflag |= unix.ICRNL
	if err := unix.IoctlSetTermios(terminal, unix.TCSETS, &hidden); err != nil {
		return nil, err
	}
	return func() error { return unix.IoctlSetTermios(terminal, unix.TCSETS, before) }, nil
}

// withDevice adds the interface, if neither the line nor the file has it and the machine has but one.
func (r *request) withDevice(settings []setting, keys daemon.Keys) ([]setting, error) {
	device := r.role.device
	if device == "" || keys.Value(device) != "" || valueOf(settings, device) != "" {
		return settings, nil
	}
	names, err := routableInterfaces()
	if err != nil {
		return nil, err
	}
	if len(names) != 1 {
		return nil, fmt.Errorf("which interface? This machine has %s with a routable address: add --set %s=NAME",
			cmp.Or(strings.Join(names, ", "), "none"), device)
	}
	r.step("%s is %s, the only interface with a routable address", device, names[0])
	return append(settings, setting{device, names}), nil
}

// routableInterfaces are those that are up and have an address that others reach.
func routableInterfaces() (names []string, err error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list the interfaces: %w", err)
	}
	for _, i := range all {
		addresses, err := i.Addrs()
		if err != nil || i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		if slices.ContainsFunc(addresses, func(a net.Addr) bool {
			prefix, ok := a.(*net.IPNet)
			return ok && prefix.IP.IsGlobalUnicast()
		}) {
			names = append(names, i.Name)
		}
	}
	return names, nil
}

// keepToken writes the token for a daemon that is another user and joins by itself. Without that user it writes nothing.
func (r *request) keepToken(path, token string) error {
	owner, err := user.Lookup(r.role.owner)
	if err != nil {
		return fmt.Errorf("find the user of %s, who is to read the token: %w: install the package first", r.role.unit, err)
	}
	uid, uidErr := strconv.Atoi(owner.Uid)
	gid, gidErr := strconv.Atoi(owner.Gid)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return fmt.Errorf("find the user of %s: %w", r.role.unit, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := replaceFile(path, []byte(token+"\n"), access{0o600, uid, gid}); err != nil {
		return err
	}
	r.step("wrote %s, which only %s may read; remove it once the manager runs", path, r.role.owner)
	return nil
}

// obtain exchanges the token for a certificate.
func (r *request) obtain(ctx context.Context, dataDir, token string, keys daemon.Keys) error {
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(dataDir, ".token.*") // only root may read it, and it lives as long as the exchange
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.WriteString(token)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	node := daemon.Node{Name: r.nodeName(keys)}
	if err := node.Check(); err != nil {
		return err
	}
	m := &rpc.Membership{
		Managers: r.managers, Kind: r.role.kind, Name: node.Name, DataDir: dataDir, TokenFile: file.Name(), CAHash: r.caHash,
		Log: slog.New(slog.NewTextHandler(r.errOut, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	bounded, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	err = m.Obtain(bounded)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no manager of %s answered within %s: check that weir-manager listens there, not on 127.0.0.1, "+
			"and that TCP passes; then run the line again", r.managers, joinTime)
	}
	if err != nil {
		return err
	}
	r.step("joined as %s %s; the certificate is in %s", r.name, node.Name, dataDir)
	return nil
}

// examine has the doctor look at the machine.
func (r *request) examine(ctx context.Context, dataDir string, settings []setting, keys daemon.Keys, report func([]doctor.Finding) error) error {
	if r.role.doctor == "" || r.role.kind == trust.Manager { // a manager is looked at when it runs
		return nil
	}
	device := cmp.Or(valueOf(settings, r.role.device), keys.Value(r.role.device))
	found := doctor.Examine(ctx, doctor.Subject{
		Role: r.role.doctor, Interface: device, Managers: r.managers, DataDir: dataDir,
		Connect: func() (*rpc.Client, error) {
			return nil, errors.New("this needs a user: weir doctor with --config asks the managers too")
		},
	})
	if err := report(found); err != nil && !r.force {
		return fmt.Errorf("%w; then run the line again, the token is not needed any more; --force starts %s all the same", err, r.role.unit)
	}
	return nil
}

// enable starts the unit, now and at each boot.
func (r *request) enable(ctx context.Context, changed bool) error {
	byHand := fmt.Sprintf("start it: %s --config %s", r.role.unit, r.configFile())
	if !r.start {
		r.step("not started, as you say; %s", byHand)
		return nil
	}
	if _, err := os.Stat(filepath.Join(r.root, "run/systemd/system")); err != nil {
		r.step("no systemd runs here; %s", byHand)
		return nil
	}
	if out, err := exec.CommandContext(ctx, "systemctl", "enable", "--now", r.role.unit).CombinedOutput(); err != nil {
		return fmt.Errorf("systemctl enable --now %s: %w: %s: journalctl -u %[1]s says why", r.role.unit, err, strings.TrimSpace(string(out)))
	}
	r.step("%s runs, and starts at each boot", r.role.unit)
	if changed {
		r.step("if it ran before, it has the configuration before: systemctl restart %s", r.role.unit)
	}
	return nil
}
