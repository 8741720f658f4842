// Command release writes what a release has beside packages: container images without a daemon, and bills of materials.
// scripts/release.sh calls it. The same programs give the same files, byte for byte.
//
//	release image CONTAINERFILE BIN ARCH VERSION OUT   an image as an OCI archive, of a Containerfile from scratch
//	release sbom PROGRAM VERSION OUT                   the modules that a program was linked from, as CycloneDX
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("read SOURCE_DATE_EPOCH, the time of the commit in seconds: %w", err)
	}
	made := time.Unix(seconds, 0).UTC()
	switch {
	case len(args) == 6 && args[0] == "image":
		return writeImage(image{containerfile: args[1], bin: args[2], arch: args[3], version: args[4], made: made}, args[5])
	case len(args) == 4 && args[0] == "sbom":
		return writeSBOM(args[1], args[2], args[3], made)
	}
	return fmt.Errorf("want image CONTAINERFILE BIN ARCH VERSION OUT, or sbom PROGRAM VERSION OUT")
}
