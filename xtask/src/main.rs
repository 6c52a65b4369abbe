//! Every check and chore of the workspace, as `cargo xtask …`.

fn main() -> anyhow::Result<()> {
    anyhow::bail!("no command yet")
}
