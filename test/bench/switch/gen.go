package main

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types bench bpf/bench.bpf.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I../../../bpf -I../../../bpf/include
