use std::fmt;
use std::sync::Arc;

use crate::{PromptSection, RalphTool};

/// What a host must offer for the tool to be installed in it: a list of tools and a system prompt.
///
/// # Contract
///
/// [`install`] calls it; the author of a harness implements it. Each method registers one thing and returns the
/// [`Registration`] by which it is removed again.
pub trait ToolHost {
    /// What the host refuses a registration with.
    type Error;

    /// Adds `tool` to the tools that the host offers its model.
    ///
    /// # Errors
    ///
    /// Whatever keeps the host from it, a name that is taken for example. Nothing is then registered.
    fn register_tool(&self, tool: Arc<RalphTool>) -> Result<Registration, Self::Error>;

    /// Adds `section` to the host's system prompt, at the place that its [order](PromptSection::order) says.
    ///
    /// # Errors
    ///
    /// Whatever keeps the host from it. Nothing is then registered.
    fn register_prompt_section(&self, section: PromptSection) -> Result<Registration, Self::Error>;
}

/// Something that is registered for as long as this lives.
#[must_use = "what is registered is removed when this is dropped"]
pub struct Registration {
    remove: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Registration {
    /// Makes a registration that `remove` ends. It is called once and should not panic.
    pub fn new(remove: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { remove: Some(Box::new(remove)) }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(remove) = self.remove.take() {
            remove();
        }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Registration")
    }
}

/// The tool in its host, with the section that tells the model when to use it: both or neither.
///
/// Dropping it removes both. Calls that are under way go on.
#[derive(Debug)]
#[must_use = "the tool is removed from its host when this is dropped"]
pub struct Installation {
    // Fields are dropped in this order: no section without a tool to talk about is left for a moment longer than the
    // other way around.
    _tool: Registration,
    _section: Registration,
}

/// Registers the tool and its section with a host, for as long as the returned value lives.
///
/// # Errors
///
/// The host's own, from whichever registration it refused. Nothing is then left of the other one.
pub fn install<H: ToolHost + ?Sized>(tool: Arc<RalphTool>, host: &H) -> Result<Installation, H::Error> {
    let section = host.register_prompt_section(tool.prompt_section())?;
    let tool = host.register_tool(tool)?;
    Ok(Installation { _tool: tool, _section: section })
}
