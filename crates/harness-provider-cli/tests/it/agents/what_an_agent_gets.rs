//! What an agent's child is started with.
