package daemon

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

// Node holds the flags by which a mux or host presents itself to the manager.
type Node struct {
	Name    string
	Manager string // URLs, separated by commas
}

// Flags adds --name and --manager; usage says what the name is for.
func (n *Node) Flags(flags *pflag.FlagSet, usage string) {
	flags.StringVar(&n.Name, "name", shortHostname(), usage+"; else the machine's, without its domain")
	flags.StringVar(&n.Manager, "manager", rpc.ManagerURL(),
		"URL of the manager, several separated by commas [$"+rpc.ManagerVariable+"]")
	flags.Lookup("manager").DefValue = rpc.DefaultManager
}

// Check says what is wrong with the name, and what to do.
func (n *Node) Check() error {
	if !model.ValidName(n.Name) {
		return fmt.Errorf("read --name: must be a DNS label (lower-case letters, digits and -), is %q", n.Name)
	}
	return nil
}

// shortHostname is the kernel's name of this machine without its domain, or empty.
func shortHostname() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	name, _, _ = strings.Cut(strings.ToLower(name), ".")
	return name
}
