//! What a hit of a trampoline costs on this machine, several times over.
#![allow(clippy::print_stdout, reason = "an example")]

fn main() -> Result<(), capture_trampoline::Error> {
    for _ in 0..10 {
        let start = std::time::Instant::now();
        let cost = capture_trampoline::calibrate()?;
        println!(
            "recorded {:.1} ns, lost {:.1} ns, measured in {:.1} ms",
            cost.recorded_ps as f64 / 1e3,
            cost.lost_ps as f64 / 1e3,
            start.elapsed().as_secs_f64() * 1e3,
        );
    }
    Ok(())
}
