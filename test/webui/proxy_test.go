package webui

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/ctl"
)

// The page by weir ui, in a browser: that resolves its name, and keeps its cookie from others.
func TestProxyInBrowser(t *testing.T) {
	if os.Getenv("WEIR_UI") == "" {
		t.Skip("needs Node: make ui-test runs it")
	}
	config := startCluster(t, 1).config
	root := ctl.Command(ctl.Config{})
	root.SetArgs([]string{"ui", "--open=false", "--config", config})
	read, write := io.Pipe()
	root.SetOut(write)
	root.SetErr(io.Discard)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		write.Close()
		ended <- err
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	address, err := bufio.NewReader(read).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	out := browse(t, (*exec.Cmd).Start, []string{"WEIR_PROXY=" + strings.TrimSpace(address)}, "proxy.spec.ts")
	if !strings.Contains(out, "1 passed") {
		t.Error("proxy.spec.ts did not run")
	}
}
