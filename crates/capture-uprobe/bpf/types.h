/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The few kernel types the program uses, in place of a vmlinux.h: CO-RE finds the
 * real offsets at load time, so only names and kinds have to be right.
 */
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed short __s16;
typedef signed int __s32;
typedef signed long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
};

/* Of a map. */
enum {
	BPF_F_MMAPABLE = 1 << 10,
};

enum {
	BPF_RB_FORCE_WAKEUP = 2,
};

/* arch/x86/include/asm/ptrace.h, x86-64. The layout BPF programs see is UAPI. */
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8;
	unsigned long ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};

struct bpf_raw_tracepoint_args {
	__u64 args[0];
};

struct bpf_pidns_info {
	__u32 pid;
	__u32 tgid;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

struct thread_struct {
	unsigned long fsbase;
};

struct signal_struct {
	atomic_t live;
};

struct task_struct {
	struct signal_struct *signal;
	struct thread_struct thread;
};

#pragma clang attribute pop
