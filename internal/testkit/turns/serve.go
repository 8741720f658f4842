package turns

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Serve names the measurements on stdout, then takes one for each line of stdin that names it, on the CPU, until stdin
// ends. A measurement returns nanoseconds a packet.
func Serve(cpu int, names []string, measure func(name string) (float64, error)) error {
	runtime.LockOSThread()
	if err := TakeCPU(cpu); err != nil {
		return err
	}
	fmt.Println(strings.Join(names, " "))
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		nanos, err := measure(lines.Text())
		if err != nil {
			return fmt.Errorf("measure %s: %w", lines.Text(), err)
		}
		fmt.Println(nanos)
	}
	return lines.Err()
}
