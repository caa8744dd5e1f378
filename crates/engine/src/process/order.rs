//! What the gateway tells a shim, and what the shim tells back.
