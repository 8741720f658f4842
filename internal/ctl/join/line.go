package join

import (
	"fmt"
	"strings"
	"time"
)

// Line is what a node needs to join.
type Line struct {
	Role     string // as token create takes it: mux, agent, switch or manager
	Managers string // URLs, separated by commas
	CAHash   string
	Name     string   // the only one that the token is good for; empty: the machine's
	Set      []string // KEY=VALUE of the daemon's configuration
	Token    string
	File     string // that has the token; empty: it is in the line
	Expires  time.Time
	Uses     uint32
}

// args are the arguments of weir on the node, without the token.
func (l Line) args(tokenFile string) []string {
	args := []string{"weir", "join", l.Role, "--manager", l.Managers, "--ca-hash", l.CAHash}
	if l.Name != "" {
		args = append(args, "--name", l.Name)
	}
	for _, s := range l.Set {
		args = append(args, "--set", s)
	}
	if tokenFile != "" {
		args = append(args, "--token-file", tokenFile)
	}
	return args
}

// Shell is the line for a shell. The token comes by standard input: printf is of the shell itself, so that no list of
// processes shows it.
func (l Line) Shell() string {
	if l.File != "" {
		return "sudo " + quoteAll(l.args(l.File))
	}
	return "printf %s " + quote(l.Token) + " | sudo " + quoteAll(l.args(""))
}

// cloudInitToken is where cloud-init puts the token. It is below /run, which no image and no backup holds.
const cloudInitToken = "/run/weir-join-token"

// CloudInit is the line as user data.
func (l Line) CloudInit() string {
	var b strings.Builder
	fmt.Fprintf(&b, `#cloud-config
# A secret until %s: whoever reads user data, as every process that reaches the metadata service of this machine,
# can join as a %s with it. It is good for %d. The image must have the packages weir and weir-%[2]s.
write_files:
- path: %[4]s
  permissions: '0600'
  content: %[5]s
runcmd:
- [%[6]s]
- [rm, -f, %[4]s]
`, l.Expires.UTC().Format(time.RFC3339), l.Role, l.Uses, cloudInitToken, doubleQuoted(l.Token), l.list())
	return b.String()
}

// list writes the arguments as items of YAML.
func (l Line) list() string {
	args := l.args(cloudInitToken)
	for i, a := range args {
		args[i] = doubleQuoted(a)
	}
	return strings.Join(args, ", ")
}

// doubleQuoted is a text as YAML and JSON have it.
func doubleQuoted(s string) string { return fmt.Sprintf("%q", s) }

func quoteAll(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = quote(a)
	}
	return strings.Join(quoted, " ")
}

// plainInShell are the characters that mean themselves in every shell.
const plainInShell = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,@%+"

// quote writes one word of a shell.
func quote(s string) string {
	if s != "" && strings.Trim(s, plainInShell) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
