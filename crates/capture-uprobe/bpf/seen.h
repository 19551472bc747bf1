/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What earlier hits found in g, so that most need not read it: a read of user memory costs a
 * hit more than all the rest of this file.
 *
 * Why what was found still holds. A goroutine's id is set while nothing runs it, by newproc1
 * (runtime/proc.go) on a g that is new or was given up in gdestroy, before Go 1.22 goexit0. The
 * upper end of its stack is set by copystack (runtime/stack.go), which another goroutine's or
 * the system's stack runs while this one is stopped, and by what frees and takes stacks of given
 * up g's. A goroutine of a thread that C made keeps its id. So between the two looks of two hits
 * of one goroutine, a change comes with a hit of `g_changes` at one of these functions, and that
 * begins another era before the runtime's own locks let the goroutine run on. Which of them the
 * binary has, and that no copy is inlined elsewhere, the planner finds out (Plan::g_changes).
 * Only what has an id is kept: the stacks of g0 and gsignal change without such a place.
 */
#pragma once

#include "wire.h"

/* install.rs sets it when all sites are in place. */
struct {
	/* Speaks for config.only_pid too, which a hit need not look up. */
	__u32 active;
	__u32 zero;
	/*
	 * Odd when hits may rely on what an earlier hit of the same era found in g (seen.h);
	 * another era begins whenever a g may change.
	 */
	__u64 era;
} gate;

static __always_inline __u64 current_era(void)
{
	return *(volatile __u64 *)&gate.era;
}

static __always_inline void next_era(void)
{
	__sync_fetch_and_add(&gate.era, 2);
}

static __always_inline struct seen *place_of(struct cpu *cpu, __u64 g)
{
	return &cpu->seen[g * 0x9e3779b97f4a7c15 >> (64 - SEEN_BITS)];
}

/*
 * Differs for words of two hits. A plain xor would not: ids and stacks can differ by the same
 * bits.
 */
static __always_inline __u64 check_of(__u64 g, __u64 era, __u64 ids, __u64 stack_hi, __u64 goid)
{
	return g * 0xbf58476d1ce4e5b9 + era * 0x94d049bb133111eb + (ids >> 32) * 0xd6e8feb86659fd93 +
	       stack_hi * 0xa0761d6478bd642f + goid * 0xe7037ed1a0b428db;
}

static __always_inline int recall(volatile const struct seen *seen, __u64 g, __u64 era, __u64 ids,
				  __u64 *stack_hi, __u64 *goid)
{
	if (seen->g != g || seen->era != era)
		return 0;
	*stack_hi = seen->stack_hi;
	*goid = seen->goid;
	/* Of another process, torn, or never written. */
	return seen->check == check_of(g, era, ids, *stack_hi, *goid) && era & 1;
}

static __always_inline void remember(volatile struct seen *seen, __u64 g, __u64 era, __u64 ids,
				     __u64 stack_hi, __u64 goid)
{
	if (!(era & 1))
		return;
	seen->g = g;
	seen->era = era;
	seen->stack_hi = stack_hi;
	seen->goid = goid;
	seen->check = check_of(g, era, ids, stack_hi, goid);
}
