/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/shared/address.h"

/* Who may relay what a switch brought: the tunnel of a backend of the VIP. VIP not set: of any. */
struct relay_host {
	struct address vip;
	struct address tunnel;
};

_Static_assert(sizeof(struct relay_host) == 32, "relay_host");
