/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What crosses the boundary to the reader: mirrors the Rust crate `wire`, whose
 * documentation states the offsets asserted at the end.
 */
#pragma once

#include "types.h"

#define MAX_PROGRAM_OPS 512
#define MAX_STEPS 4096
#define MAX_CONDITION_OPS 128
#define MAX_BLOCKS 8
#define MAX_FIELD_DATA 1024
#define FIELD_HEADER 8
#define HEADER_SIZE 64
#define MAX_PAYLOAD 4096
#define MAX_RECORD (HEADER_SIZE + MAX_PAYLOAD)

enum record_kind {
	KIND_HIT = 1,
	KIND_EXEC = 2,
	KIND_PROCESS_EXIT = 3,
	KIND_PROCESS = 4,
};

enum record_flags {
	FLAG_SYSTEM_STACK = 1 << 0,
	FLAG_NO_G = 1 << 1,
	FLAG_NO_CALLER = 1 << 2,
};

/* A record's header; the payload follows. */
struct header {
	__u64 ts_ns;
	__u64 goid;
	__u64 stack;
	__u64 depth;
	__u64 caller;
	__u32 site;
	__u32 pid;
	__u32 tid;
	__u32 lost;
	__u16 cpu;
	__u16 flags;
	__u8 kind;
	__u8 zero;
	__u16 payload_len;
};

/*
 * A site's cookie (attach.rs makes it): what every hit has to know, so that those without a
 * fetch program look nothing up. Bits 0-23 the site's index, 32-63 its sp_delta.
 */
#define COOKIE_SITE 0xffffff
#define COOKIE_CALLER (1u << 24)
#define COOKIE_G_TLS (1u << 25)
/* A hit counts only with the zero flag set, or clear; sites with a fetch program only. */
#define COOKIE_IF_ZERO (1u << 26)
#define COOKIE_IF_NOT_ZERO (1u << 27)

struct site_config {
	__u8 kind;
	__u8 g_source;
	__u16 program_len;
	__u32 program_start;
	__s32 sp_delta;
	/* Ops right before the program that decide whether the hit is wanted. */
	__u16 condition_len;
	__u16 zero;
	__u64 address;
};

/* Of site_config.kind. */
#define SITE_ENTRY 0

enum op_code {
	OP_REG = 1,
	OP_STACK_SLOT = 2,
	OP_CURRENT_G = 3,
	OP_ADD = 4,
	OP_DEREF = 5,
	OP_SET_AUX = 6,
	OP_GET_AUX = 7,
	OP_RESET = 8,
	OP_EMIT_ACC = 9,
	OP_EMIT_BYTES = 10,
	OP_EMIT_STRING = 11,
	OP_NIL_CHECK = 12,
	OP_FLOAT_REG = 13,
	OP_EMIT_ELEMENTS = 14,
	OP_EMIT_DYNAMIC = 15,
	OP_EACH = 16,
	OP_BLOCK_WORD = 17,
	OP_SKIP_NON_ZERO = 18,
	OP_SKIP_ZERO = 19,
	OP_IMAGE = 20,
	OP_LOAD = 21,
	OP_NARROW = 22,
	OP_COMPARE = 23,
	OP_TOUCH = 24,
	OP_ADD_AUX = 25,
	OP_MATCH = 26,
	OP_REJECT = 27,
	OP_MAP_ELEM = 28,
};

/* Operand of loads: the size of the integer, and whether its sign is extended. */
#define WORD_SIZE 15
#define WORD_SIGNED 16

/* Operand of comparisons. */
#define RELATION_ORDER 3
#define ORDER_LESS 1
#define ORDER_GREATER 2
#define RELATION_NEGATED 4
#define RELATION_UNSIGNED 8
#define RELATION_WITH_AUX 16

/* Operand of OP_MAP_ELEM, and where maps have their groups: see wire/fetch.rs. */
#define MAX_MAP_GROUPS 64
#define MAP_SWISS 0x80
#define HMAP_FLAGS 8
#define HMAP_BUCKETS 16
#define HMAP_OLD 24
#define HMAP_SAME_SIZE 8
#define SWISS_DIR 16
#define SWISS_GROUPS 16
#define SWISS_MASK 24

/* A type's descriptor: its size first, its kind, and of a pointer what it points to. */
#define TYPE_KIND 23
#define TYPE_ELEM 48
#define KIND_POINTER 22

#define IMAGE_PLACE 1

struct op {
	__u8 code;
	__u8 a;
	__u16 zero16;
	__u32 zero32;
	__s64 imm;
};

enum field_status {
	FIELD_OK = 0,
	FIELD_FAULT = 1,
	FIELD_NIL = 2,
	FIELD_NO_ROOM = 3,
	FIELD_UNREAD = 4,
	FIELD_NO_REGISTER = 5,
};

struct field {
	__u8 status;
	__u8 zero;
	__u16 len;
	__u32 original;
};

/* Set before the program is loaded: the verifier treats the values as constants. */
struct config {
	__u32 g_goid;
	__u32 g_stack_hi;
	__u32 g_m;
	__u32 m_g0;
	__u32 m_curg;
	/* No check of the process; it is noted at its first hit. */
	__u8 every_process;
	/* The interpreter runs in a bounded loop instead of bpf_loop. */
	__u8 bounded_loop;
	/* Fetch programs may wait for pages that are not resident. */
	__u8 may_fault;
	/* Is 0. */
	__u8 never;
	/* The one process in scope, 0 when it is not exactly one. */
	__u32 only_pid;
	__u32 zero32;
	__s64 tls_g;
	/* Pid namespace of the reader, 0 for the initial one. */
	__u64 pidns_dev;
	__u64 pidns_ino;
	/* Bytes waiting in a ring from which on the reader is woken. */
	__u64 wake_bytes;
	/* A ring's size less 1. */
	__u64 ring_mask;
};

/*
 * A goroutine as a hit of its own found it, in the era of that hit. Programs of one CPU can
 * preempt one another between any two words: `check` tells what belongs together.
 */
struct seen {
	__u64 g;
	__u64 era;
	__u64 goid;
	__u64 stack_hi;
	__u64 check;
};

#define SEEN_BITS 4

/* One per CPU. Programs of one CPU can preempt one another: counted atomically. */
struct cpu {
	/* Its ring; install.rs sets it. */
	__u32 ring;
	__u32 zero;
	__u64 lost;
	__u64 foreign;
	/* Bytes reserved behind headers: what else is reserved is 64 for each record. */
	__u64 payload_bytes;
	/* Hits that a condition rejected: no record, and none lost. */
	__u64 rejected;
	struct seen seen[1 << SEEN_BITS];
};

#define AT(type, member, offset) \
	_Static_assert(__builtin_offsetof(struct type, member) == offset, #type "." #member)

_Static_assert(sizeof(struct header) == HEADER_SIZE, "header");
AT(header, ts_ns, 0);
AT(header, goid, 8);
AT(header, stack, 16);
AT(header, depth, 24);
AT(header, caller, 32);
AT(header, site, 40);
AT(header, pid, 44);
AT(header, tid, 48);
AT(header, lost, 52);
AT(header, cpu, 56);
AT(header, flags, 58);
AT(header, kind, 60);
AT(header, payload_len, 62);
_Static_assert(sizeof(struct site_config) == 24, "site_config");
AT(site_config, program_len, 2);
AT(site_config, program_start, 4);
AT(site_config, sp_delta, 8);
AT(site_config, condition_len, 12);
AT(site_config, address, 16);
_Static_assert(sizeof(struct op) == 16, "op");
AT(op, a, 1);
AT(op, imm, 8);
_Static_assert(sizeof(struct field) == FIELD_HEADER, "field");
AT(field, len, 2);
AT(field, original, 4);
_Static_assert(sizeof(struct config) == 72, "config");
AT(config, every_process, 20);
AT(config, only_pid, 24);
AT(config, tls_g, 32);
AT(config, pidns_dev, 40);
AT(config, wake_bytes, 56);
AT(config, ring_mask, 64);
AT(cpu, ring, 0);
AT(cpu, lost, 8);
AT(cpu, foreign, 16);
AT(cpu, payload_bytes, 24);
AT(cpu, rejected, 32);
