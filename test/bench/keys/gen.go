package main

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types keys bpf/keys.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -I../../../bpf -I../../../bpf/include
