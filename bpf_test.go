package weir

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// cFunctionLines bounds a function of the eBPF programs, from its name to its closing brace.
const cFunctionLines = 60

// A header includes what it uses: nothing depends on the order in which headers are included.
func TestBPFHeadersCompileAlone(t *testing.T) {
	places := make(chan struct{}, 4)
	var all sync.WaitGroup
	for _, path := range files(t, ".h") {
		if !strings.HasPrefix(path, "bpf/") {
			continue
		}
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			out, err := exec.Command("clang-19", "-target", "bpfel", "-O2", "-mcpu=v3", "-Wall", "-Wextra", "-Werror",
				"-Wno-unused-function", "-Wno-unused-parameter", "-Wno-pragma-once-outside-header",
				"-Ibpf", "-Ibpf/include", "-fsyntax-only", "-x", "c", path).CombinedOutput()
			if err != nil {
				t.Errorf("%s does not compile alone: %v\n%s", path, err, out)
			}
		})
	}
	all.Wait()
}

func TestBPFFunctionsAreShort(t *testing.T) {
	// By clang-format's rules the braces of functions, and nothing else but of types, stand in the first column.
	function := regexp.MustCompile(`(?ms)^[a-zA-Z_][^;{}=#]*?\b(\w+)\([^;{}]*?\)\n\{\n.*?^\}\n`)
	found := 0
	for _, path := range files(t, ".h", ".c") {
		if !strings.HasPrefix(path, "bpf/") {
			continue
		}
		for _, match := range function.FindAllStringSubmatch(read(t, path), -1) {
			found++
			name := path + ":" + match[1]
			if lines := strings.Count(match[0], "\n"); lines > cFunctionLines && exceptions[name] == "" {
				t.Errorf("%s has %d lines, more than %d", name, lines, cFunctionLines)
			}
		}
	}
	if found < 400 {
		t.Errorf("found %d functions: the pattern misses some", found)
	}
}

// bpf/net knows neither program, bpf/mux and bpf/agent do not know each other.
func TestBPFIncludesStayInTheirRooms(t *testing.T) {
	include := regexp.MustCompile(`(?m)^#include "([a-z]+)/([a-z]+)?`)
	for _, path := range files(t, ".h", ".c") {
		room := strings.Split(filepath.ToSlash(path), "/")
		if room[0] != "bpf" {
			continue
		}
		for _, match := range include.FindAllStringSubmatch(read(t, path), -1) {
			to := match[1]
			if to == "abi" {
				to = match[2]
			}
			program := to == "mux" || to == "agent" || to == "overlay" || to == "switch"
			if program && to != room[1] && (room[1] != "abi" || to != room[2]) {
				t.Errorf("%s includes a header of %s", path, to)
			}
		}
	}
}

// What crosses to Go is generated from the C: nobody copies a constant by hand.
func TestABIEnumsAreInGo(t *testing.T) {
	generated := read(t, "internal/datapath/mux/bpf/mux_bpfel.go") + read(t, "internal/datapath/agent/bpf/agent_bpfel.go") +
		read(t, "internal/testkit/bpftest/fbt/maker_bpfel.go") + read(t, "internal/datapath/overlay/overlay_bpfel.go") + read(t, "internal/hardware/xdp/bpf/switch_bpfel.go")
	enum := regexp.MustCompile(`(?m)^enum (\w*) ?\{`)
	found := 0
	for _, path := range files(t, ".h") {
		if !strings.HasPrefix(path, "bpf/abi/") {
			continue
		}
		for _, match := range enum.FindAllStringSubmatch(read(t, path), -1) {
			found++
			name := regexp.MustCompile(`(?m)^type (?i:mux|agent|maker|overlay|switch)(?i:` + strings.ReplaceAll(match[1], "_", "") + `) `)
			if match[1] == "" {
				t.Errorf("%s: an enum without a name", path)
			} else if !name.MatchString(generated) {
				t.Errorf("%s: enum %s is not in the generated Go: have a map use it, or ABI_ENUM(%[2]s)", path, match[1])
			}
		}
	}
	if found < 40 {
		t.Errorf("found %d enums: the pattern misses some", found)
	}
}

// The kernel keeps 15 characters of a map's or a program's name: two that differ later look alike in bpftool.
func TestBPFNamesFitTheKernel(t *testing.T) {
	const most = 15
	object := regexp.MustCompile(`(?m)(?:^\} (\w+) SEC\("\.maps"\)|^SEC\("(?:xdp|tcx|syscall)[^"]*"\)\nint (\w+)\()`)
	found := 0
	for _, path := range files(t, ".h", ".c") {
		if !strings.HasPrefix(path, "bpf/") {
			continue
		}
		for _, match := range object.FindAllStringSubmatch(read(t, path), -1) {
			found++
			if name := match[1] + match[2]; len(name) > most {
				t.Errorf("%s: %s has %d characters, more than %d", path, name, len(name), most)
			}
		}
	}
	if found < 60 {
		t.Errorf("found %d maps and programs: the pattern misses some", found)
	}
}
