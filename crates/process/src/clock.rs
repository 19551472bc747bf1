//! The kernel's clock source, which decides whether TSC times can be trusted.

/// Name of the current clock source (`tsc`, `kvm-clock`, `hpet` …); `None` when the kernel does not say.
pub fn clock_source() -> Option<String> {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}
