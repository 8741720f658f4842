/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

/*
 * Has bpf2go write an enum's constants into Go: an enum is in an object's BTF only if something
 * there has its type.
 */
#define ABI_ENUM(name) const enum name abi_##name __attribute__((section(".rodata"))) = 0
