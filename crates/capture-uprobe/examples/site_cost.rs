//! What a hit costs on this machine, and how long it takes to find out. Needs root.
//!
//! `cargo run --release -p capture-uprobe --example site_cost`
#![allow(clippy::print_stdout)] // It is a program whose result is text.

fn main() -> Result<(), capture::Error> {
    for _ in 0..5 {
        let start = std::time::Instant::now();
        let cost = capture_uprobe::calibrate()?;
        println!("{cost:?}, measured in {:?}", start.elapsed());
    }
    Ok(())
}
