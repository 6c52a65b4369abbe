//! Links the unwinder of the C compiler into the program.
//!
//! It is `libgcc_s.so.1` otherwise, a library that nothing else here needs, and that looks at the processor when it is
//! loaded: a tenth of the time to the start of `main`. A compiler that does not have it as an archive links as it always
//! does.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Some(unwinder) = unwinder() {
        // Only what is there whole is taken before the shared library, which stands earlier on the linker's command line.
        for argument in ["-Wl,--whole-archive", &unwinder.to_string_lossy(), "-Wl,--no-whole-archive"] {
            println!("cargo::rustc-link-arg-bins={argument}");
        }
    }
}

/// Asks the compiler that links where its archive is. A compiler for another machine is not known here.
fn unwinder() -> Option<PathBuf> {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let is_gnu_linux =
        variable("CARGO_CFG_TARGET_OS") == "linux" && variable("CARGO_CFG_TARGET_ENV") == "gnu";
    let is_static = variable("CARGO_CFG_TARGET_FEATURE").split(',').any(|feature| feature == "crt-static");
    if !is_gnu_linux || is_static || variable("HOST") != variable("TARGET") {
        return None;
    }
    let compiler = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let output = Command::new(compiler).arg("-print-file-name=libgcc_eh.a").output().ok()?;
    // It answers with the bare name if it has none.
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim_end());
    (output.status.success() && path.is_absolute() && path.is_file()).then_some(path)
}
