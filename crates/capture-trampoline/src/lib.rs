//! Capture by code in the target: jumps, stubs and a shared recorder, written by ptrace.
