// Command weir operates a Weir load balancer.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/ctl"
	"github.com/weirlb/weir/internal/daemon"
	"github.com/weirlb/weir/internal/lab"
)

func main() {
	os.Exit(daemon.Run(command()))
}

// command returns the root command with all that stands below it.
func command() *cobra.Command {
	root := ctl.Command(ctl.Config{})
	root.AddCommand(lab.Command())
	return root
}
