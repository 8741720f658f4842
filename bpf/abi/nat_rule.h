/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/address.h"

/* Backends of one endpoint on one host are told apart by the outer destination. */
struct nat_rule_key {
	struct address vip;
	struct address tunnel;
	__be16 port;
	__u8 protocol;
	__u8 pad;
};

struct nat_rule {
	struct address dip;
	__be16 port;
	__u16 pad;
};

_Static_assert(sizeof(struct nat_rule_key) == 36, "nat_rule_key");
_Static_assert(sizeof(struct nat_rule) == 20, "nat_rule");
