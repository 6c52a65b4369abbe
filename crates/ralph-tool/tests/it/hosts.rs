//! Installing the tool in a host, and taking it out again.

use std::sync::{Arc, Mutex};

use ralph_tool::{PromptSection, RalphTool, Registration, ToolHost, install};
use serde_json::json;

use crate::stage::Stage;

/// A host that keeps names, and may refuse.
#[derive(Default)]
struct Host {
    present: Arc<Mutex<Vec<String>>>,
    refuses_tools: bool,
    refuses_sections: bool,
}

impl Host {
    fn add(&self, name: &str, refused: bool) -> Result<Registration, &'static str> {
        if refused {
            return Err("the host is full");
        }
        self.present.lock().unwrap().push(name.to_owned());
        let (present, name) = (Arc::clone(&self.present), name.to_owned());
        Ok(Registration::new(move || present.lock().unwrap().retain(|other| *other != name)))
    }

    fn present(&self) -> Vec<String> {
        self.present.lock().unwrap().clone()
    }
}

impl ToolHost for Host {
    type Error = &'static str;

    fn register_tool(&self, tool: Arc<RalphTool>) -> Result<Registration, Self::Error> {
        self.add(tool.definition().name(), self.refuses_tools)
    }

    fn register_prompt_section(&self, section: PromptSection) -> Result<Registration, Self::Error> {
        self.add(section.name(), self.refuses_sections)
    }
}

fn tool() -> Arc<RalphTool> {
    Stage::settable(json!({})).tool
}

#[test]
fn a_host_that_refuses_one_is_left_with_neither() {
    for host in
        [Host { refuses_tools: true, ..Host::default() }, Host { refuses_sections: true, ..Host::default() }]
    {
        assert_eq!(install(tool(), &host).unwrap_err(), "the host is full");
        assert!(host.present().is_empty());
    }
}

#[test]
fn tool_and_section_come_together_and_go_together() {
    let host = Host::default();
    let installation = install(tool(), &host).unwrap();
    assert_eq!(host.present(), ["tool:ralph", "ralph"]);
    drop(installation);
    assert!(host.present().is_empty());
}

#[test]
fn a_tool_can_be_installed_through_a_trait_object() {
    let host = Host::default();
    let host: &dyn ToolHost<Error = &'static str> = &host;
    drop(install(tool(), host).unwrap());
}
