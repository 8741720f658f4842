// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Makes one FBT, for a test. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "net/fbt.h"

struct call {
	struct fbt_key key;
	struct fbt_segment segment;
	struct fbt_content says;
	struct fbt fbt; /* the answer */
};

struct call made SEC(".data.made");

SEC("syscall")
int make(void *ctx)
{
	struct fbt_segment segment = made.segment;
	struct fbt_content says = made.says;
	struct fbt_key key = made.key;
	struct fbt fbt = {};

	fbt_write(&fbt, &key, &segment, &says);
	made.fbt = fbt;
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
