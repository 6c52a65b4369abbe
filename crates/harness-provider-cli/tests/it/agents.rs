//! The agents, each played by this binary started anew.

mod conformance;
mod ends;
mod fake;
mod plays;
mod tolerance;
mod what_an_agent_gets;
