package bpf

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package bpf -type verdict -type tip Switch ../../../../bpf/switch/switch.bpf.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I../../../../bpf -I../../../../bpf/include
