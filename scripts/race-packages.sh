#!/usr/bin/env bash
# Lists the packages of internal/ and cmd/ whose tests load no eBPF program: nothing that they are built from holds what
# bpf2go wrote. With "others": those whose tests do.
set -euo pipefail

generated=$(git ls-files '*_bpfel.go' | xargs -n1 dirname | sort -u)
go list -test -f '{{.ImportPath}} {{join .Deps " "}}' ./internal/... ./cmd/... | awk -v generated="$generated" -v others="${1:-}" '
	BEGIN { split(generated, dirs, "\n"); for (i in dirs) loads["github.com/weirlb/weir/" dirs[i]] = 1 }
	$1 !~ /\.test$/ { next }
	{
		found = 0
		for (i = 2; i <= NF; i++) if ($i in loads) found = 1
		sub(/\.test$/, "", $1)
		if (found == (others == "others")) print $1
	}'
