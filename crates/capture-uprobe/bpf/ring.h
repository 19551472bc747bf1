/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where records go: rings of our own in a map that the reader has mapped. Each CPU has its ring,
 * or shares it with a few; reserving a place is one compare-and-swap, for what shares a ring and
 * for what preempts another program on its CPU alike. The kernel's ring buffer costs a hit more:
 * a lock, and a cache line of all CPUs.
 *
 * A record is 64 bytes and its payload, rounded up to 8: where there are no payloads it is one cache
 * line. It lies at its position modulo the size and never wraps: behind the data there is room for
 * the longest.
 * Its first word is its time. The place is reserved, then the clock is read, and the time is
 * written last: a record whose first word is 0 is not there yet, and one of before a time T lies
 * below the head as it is after T. The reader relies on both (order.rs). It zeroes what it has read
 * before it raises the tail, so a writer leaves out what is 0.
 */
#pragma once

#include "wire.h"

#include <bpf/bpf_helpers.h>

#define RING_DATA 128
#define RING_UNIT 8
/* How often a reservation is tried while others get in between. */
#define RING_TRIES 64
/* Of the head, in bytes: how often it is asked whether much is waiting. A power of two. */
#define WAKE_STEP 4096

/* The data follows. */
struct ring {
	/* Bytes reserved since the start. Only programs write it. */
	__u64 head;
	__u64 of_writers[7];
	/* Bytes read since the start. Only the reader writes it. */
	__u64 tail;
	__u64 of_reader[7];
};

_Static_assert(sizeof(struct ring) == RING_DATA, "ring");
AT(ring, tail, 64);

/* Number and size are set before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, RING_DATA + 4096 + MAX_RECORD);
} rings SEC(".maps");

/* What the reader waits for. Nothing is read from it. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} bell SEC(".maps");

static __always_inline struct ring *ring_of(const struct cpu *cpu)
{
	__u32 index = cpu->ring;

	return bpf_map_lookup_elem(&rings, &index);
}

static __always_inline void *place_at(struct ring *ring, __u64 position)
{
	return (char *)ring + RING_DATA + (position & config.ring_mask);
}

/*
 * Fetches the next record's place into the cache while the program does other things: the
 * reader had it, or it was long ago.
 */
static __always_inline void touch_next(struct ring *ring)
{
	__u64 word = *(volatile __u64 *)place_at(ring, *(volatile __u64 *)&ring->head);

	barrier_var(word);
}

/* A wake-up per record would cost more than the record; the reader looks by itself, too. */
static __noinline void wake_reader(void)
{
	__u64 nothing = 0;

	/* When it is full the reader has not heard the last one yet. */
	bpf_ringbuf_output(&bell, &nothing, sizeof(nothing), BPF_RB_FORCE_WAKEUP);
}

/* A place for a record of `bytes`, a multiple of RING_UNIT; 0 when it is lost and counted. */
static __always_inline void *reserve(struct ring *ring, struct cpu *cpu, __u32 bytes)
{
	for (int i = 0; i < RING_TRIES; i++) {
		__u64 head = *(volatile __u64 *)&ring->head;
		__u64 waiting = head + bytes - *(volatile __u64 *)&ring->tail;

		if (waiting > config.ring_mask + 1)
			break;
		if (__sync_val_compare_and_swap(&ring->head, head, head + bytes) != head)
			continue;
		if ((head ^ (head + bytes)) & WAKE_STEP && waiting > config.wake_bytes)
			wake_reader();
		return place_at(ring, head);
	}
	__sync_fetch_and_add(&cpu->lost, 1);
	return 0;
}

/*
 * Writes the time, with which the record is there. Stores become visible in their order on
 * x86-64: what is left is to keep the compiler from another one.
 */
static __always_inline void commit(struct header *h, __u64 ts_ns)
{
	barrier();
	*(volatile __u64 *)&h->ts_ns = ts_ns;
}
