// Command weir operates a Weir load balancer.
package main

import (
	"os"

	"github.com/weirlb/weir/internal/ctl"
	"github.com/weirlb/weir/internal/daemon"
)

func main() {
	os.Exit(daemon.Run(ctl.Command(ctl.Config{})))
}
