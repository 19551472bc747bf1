//! The configurations in `packaging/` are ones that the agent takes.

mod common;

use common::{Directory, any_gospect, path_text};
use std::path::Path;

fn check(file: &Path) -> String {
    let output = any_gospect().run(&["agent", "--check", "--config", path_text(file)]);
    output.expect_code(0);
    output.stdout
}

fn packaging(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

#[test]
fn the_commented_configuration_is_right_with_and_without_its_comments() {
    let file = packaging("gospect.toml");
    assert!(check(&file).contains(": right: 1 service\n  1. named by its processes: uprobe;"));
    // What can be taken into use by removing `# ` is right as well.
    let text = std::fs::read_to_string(&file).expect("the configuration");
    let is_setting = |line: &&str| {
        line.starts_with("[[") || line.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '))
    };
    let lines = text.lines().map(|line| line.strip_prefix("# ").filter(is_setting).unwrap_or(line));
    let directory = Directory::new();
    let used = directory.file("gospect.toml");
    std::fs::write(&used, lines.collect::<Vec<_>>().join("\n")).expect("a file");
    let said = check(&used);
    assert!(said.contains(": right: 2 services\n  1. shop: auto;"), "{said}");
    assert!(said.contains("spans are sent to http://127.0.0.1:4318/v1/traces"), "{said}");
}

#[test]
fn the_configuration_for_kubernetes_is_right() {
    let manifest = std::fs::read_to_string(packaging("kubernetes/gospect-agent.yaml"));
    let manifest = manifest.expect("the manifest");
    let block = manifest.split_once("  gospect.toml: |\n").expect("the configuration").1;
    let lines = block.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    let lines: Vec<_> = lines.map(|line| line.strip_prefix("    ").unwrap_or_default()).collect();
    let directory = Directory::new();
    let file = directory.file("gospect.toml");
    std::fs::write(&file, lines.join("\n")).expect("a file");
    let said = check(&file);
    assert!(said.contains(": right: 1 service\n"), "{said}");
}
