/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

struct agent_settings {
	__u64 generation; /* of the desired state that the tables hold */
	__u32 uplink; /* ifindex */
	__u32 mtu; /* of the uplink; 0: leave MSS options alone */
};

_Static_assert(sizeof(struct agent_settings) == 16, "agent_settings");
