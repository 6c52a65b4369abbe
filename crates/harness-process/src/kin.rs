//! What a child has started, and what those have started in turn: how it is told from the rest of the
//! system, and how it is ended.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

#[cfg(target_os = "linux")]
pub(crate) use linux::Kin;
#[cfg(target_os = "macos")]
pub(crate) use macos::Kin;
