// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Has datagrams remembered in one set, for a test. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "net/datagram.h"

enum {
	DATAGRAMS = 16, /* that are remembered by turns: twice what there is room for */
	TURNS = 100000,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct datagram_set);
} sets SEC(".maps");

/* Of whom place() is to find a cell for. */
__u64 hash;
__u32 owner;
__u32 now;

/* What read() found: datagrams that were known, and those that were told what is another's. */
__u64 known;
__u64 wrong;

static __always_inline struct datagram_set *the_set(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&sets, &zero);
}

SEC("tc")
int place(struct __sk_buff *skb)
{
	struct datagram d = { .hash = hash, .owner = owner };
	struct datagram_set *set = the_set();

	return set ? datagram_place(set, &d, now) : DATAGRAM_CELLS;
}

static __always_inline struct datagram any_datagram(void)
{
	struct datagram d = {
		.hash = (bpf_get_prandom_u32() % DATAGRAMS + 1) * 0x9e3779b97f4a7c15ULL,
		.owner = 1,
	};

	return d;
}

/* The word that the datagram is told behind its first one. */
static __always_inline __u64 second_word(const struct datagram *d)
{
	return (d->words[0] ^ d->hash) * 0xff51afd7ed558ccdULL;
}

static long write_one(__u32 turn, void *none)
{
	struct datagram d = any_datagram();

	d.words[0] = bpf_get_prandom_u32();
	d.words[1] = second_word(&d);
	datagram_note(the_set(), &d);
	return 0;
}

SEC("tc")
int write(struct __sk_buff *skb)
{
	return bpf_loop(TURNS, write_one, NULL, 0) != TURNS;
}

static long read_one(__u32 turn, void *none)
{
	struct datagram d = any_datagram();

	if (!datagram_recall(the_set(), &d))
		return 0;
	known++;
	wrong += d.words[1] != second_word(&d);
	return 0;
}

SEC("tc")
int read(struct __sk_buff *skb)
{
	return bpf_loop(TURNS, read_one, NULL, 0) != TURNS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
