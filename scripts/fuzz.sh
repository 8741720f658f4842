#!/usr/bin/env bash
# Runs every fuzz target for the given time (default 60s). New findings land in testdata/fuzz beside
# the target: check them in with the mend.
set -euo pipefail

time=${1:-60s}
for package in $(go list ./...); do
	for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
		echo "fuzz: $package $target for $time"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x -parallel 1 "$package"
	done
done
