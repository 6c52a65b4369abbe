//! The ralph tool: the Ralph loop as a workflow, and its model-facing tool.
