//! What types promise.

use std::sync::Arc;

use harness_registry_local::{InvalidLimit, LocalRegistry, LocalRegistryBuilder};
use harness_subagent::SubagentRegistry;

use crate::double::Double;

#[test]
fn public_types_can_be_shared_between_threads() {
    fn check<T: Send + Sync + 'static>() {}
    check::<LocalRegistry>();
    check::<LocalRegistryBuilder>();
    check::<InvalidLimit>();
}

#[test]
fn a_registry_shows_its_providers_by_name() {
    let registry: Arc<dyn SubagentRegistry> = Arc::new(LocalRegistry::default());
    registry.register(Double::new("shown")).unwrap();
    assert!(format!("{registry:?}").contains("\"shown\""));
}
