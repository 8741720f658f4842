#!/usr/bin/env bash
# scripts/manuals.sh BIN OUT [NAME...] has the programs in BIN, all or those named, write their man pages and the
# completions of three shells into OUT/NAME, laid out as below /usr/share. SOURCE_DATE_EPOCH dates the pages.
set -euo pipefail

bin=$1
out=$2
names=("${@:3}")
[ "${#names[@]}" -gt 0 ] || names=(weir weir-manager weir-mux weir-agent weir-switch)

for name in "${names[@]}"; do
	share=$out/$name
	section=8
	[ "$name" != weir ] || section=1
	mkdir -p "$share/man/man$section" "$share/bash-completion/completions" "$share/zsh/site-functions" "$share/fish/vendor_completions.d"
	"$bin/$name" man "$share/man/man$section"
	gzip -9n "$share/man/man$section"/*
	"$bin/$name" completion bash >"$share/bash-completion/completions/$name"
	"$bin/$name" completion zsh >"$share/zsh/site-functions/_$name"
	"$bin/$name" completion fish >"$share/fish/vendor_completions.d/$name.fish"
done
